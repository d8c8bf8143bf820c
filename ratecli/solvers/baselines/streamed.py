"""The plain linear classifier of rows that do not fit in memory, by Newton's method.

A pass sums the loss, its slopes, and the curvature of a subset of the rows: 2^17 rows estimate it
well enough that each step reduces the error to a few percent, however many rows there are. Rows
with a rare feature are sampled more often, so that no direction looks flat. For many rows, samples
that grow by `SAMPLE_GROWTH` are solved first, each as accurately as it represents the rest, so that
only a few passes over all rows remain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.linear import Logistic, Threshold
from ratecli.solvers.baselines.options import SVM_GAP
from ratecli.solvers.liblinear import ClassificationLoss
from ratecli.solvers.problem import Problem
from ratecli.streaming.stream import RowBlock, RowStream, SumArrays


def sum_losses(
    labels: tuple[Array, Array],
    w: Array,
    width: float,
    every: NDArray[np.int64],
    blocks: Iterable[RowBlock],
) -> SumArrays:
    """Return the sums over blocks that `streaming.record_loops.add_losses` describes.

    `labels` are the side of the rows of each cell and the factor of their weights.
    """
    from ratecli.streaming.record_loops import add_losses  # numba

    side, share = labels
    sums = np.zeros(4), np.zeros(len(w)), np.zeros((len(w), len(w)))
    for block in blocks:
        rows = block.numbers, block.codes, block.rows, block.start, block.weight
        add_losses(rows, (side[block.cell], share[block.cell]), block.coding, w, width, every, sums)
    return sums


SAMPLE_ROWS = 2**17
"""Rows whose curvature is summed, and rows of the first sample."""
SAMPLE_GROWTH = 8
MIN_FEATURE_ROWS = 2**10
"""Rows per feature whose curvature is summed, if there are as many."""
LOGISTIC_TOLERANCE = 1e-6
"""Predicted relative decrease of the last Newton step for the logistic loss. What is left after
that step is smaller by orders of magnitude.
"""
MAX_PASSES = 200
HINGE_WIDTHS = tuple(4 * 10.0 ** (-k / 2) for k in range(16))
"""Widths of the interval of the margin over which the hinge is rounded, in decreasing order; the
solution for one width is nearly that of the next.
"""
CLOSABLE_GAP_SHARE = 0.02
"""The next width is tried when a step would decrease the value by less than this share of the part
of the gap that steps cannot close, if that part is too large.
"""
ARMIJO_SHARE = 1e-4
MIN_STEP_FACTOR = 0.1
"""Smallest factor by which a step is shortened, to the minimum of a parabola."""
MIN_STEP = 1e-10
"""Smallest part of a step that is tried."""
ROUNDING = 1e-11
"""For steps with a smaller predicted decrease, relative to the value, rounding hides the change of
the value, and slopes are compared instead.
"""


@dataclass(frozen=True)
class NewtonPoint:
    """Weights and the results of a pass over the rows at these weights.

    `value`, `slope` (d + 1,) and `curve` (d + 1, d + 1) are those of the function that Newton's
    method minimizes. `primal` is the hinge loss with the penalty, and `dual` a lower bound on its
    minimum.
    """

    w: Array
    value: float
    slope: Array
    curve: Array
    primal: float
    dual: float
    curved: float

    @property
    def gap(self) -> float:
        """By how much `primal` may exceed the minimum, for the hinge loss."""
        return self.primal - self.dual

    def newton_step(self) -> tuple[Array, float]:
        """Return the step, and twice the decrease of the value that it promises."""
        step = -np.asarray(np.linalg.solve(self.curve, self.slope), dtype=float)
        return step, -float(self.slope @ step)


@dataclass
class StreamedNewton:
    """Newton's method for the mean loss plus `l2 / 2 |w|^2`, which includes the bias.

    Attributes
    ----------
    rows
        Number of rows of the stream with a label.
    every
        Only one in `every` runs of rows is used.
    """

    stream: RowStream
    side: Array
    share: Array
    l2: float
    rows: float
    every: int = 1
    passes: int = 0

    @classmethod
    def of(cls, problem: Problem) -> StreamedNewton:
        """Return the problem on all rows; raise E306 if no row has a label."""
        assert problem.stream is not None
        side, weights = problem.labels()
        total = problem.stream.weight
        share = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        rows = float(problem.stream.count[side != 0].sum())
        return cls(problem.stream, side, share, problem.l2, rows)

    @property
    def seen(self) -> float:
        """Approximate number of rows used."""
        return self.rows / self.every

    def samples(self) -> Iterator[tuple[StreamedNewton, float]]:
        """Yield problems on growing samples of the rows, each with a tolerance for `least`.

        The tolerance is for the predicted decrease relative to the value. It is below the sampling
        error, which is about the number of weights divided by the rows of the sample. The penalty
        is at least that of one sampled row: otherwise the scores of small groups would diverge.
        """
        size = SAMPLE_ROWS
        while size * SAMPLE_GROWTH <= self.rows:
            every = int(self.rows / size)
            l2, share = max(self.l2, every / self.rows), self.share * every
            tolerance = 0.1 * len(self.stream.coding.shares) * every / self.rows
            yield replace(self, share=share, l2=l2, every=every, passes=0), tolerance
            size *= SAMPLE_GROWTH

    def at(self, w: Array, width: float, curved: float) -> NewtonPoint:
        """Evaluate a point in a pass over the rows, of which about `curved` have curvature."""
        self.passes += 1
        most, shares = max(1, int(curved / SAMPLE_ROWS)), np.append(self.stream.coding.shares, 1.0)
        every = np.clip(shares * curved / MIN_FEATURE_ROWS, 1, most).astype(np.int64)
        sums = partial(sum_losses, (self.side, self.share), w, width, every)
        totals, slope, half = self.stream.sums(sums, self.every)
        penalty, slope = 0.5 * self.l2 * float(w @ w), slope + self.l2 * w
        curve = half + half.T - np.diag(np.diag(half)) + self.l2 * np.eye(len(w))
        apart = w - slope / self.l2  # the weights that correspond to the dual variables
        dual = float(totals[2]) - 0.5 * self.l2 * float(apart @ apart)
        value, primal = float(totals[0]) + penalty, float(totals[1]) + penalty
        return NewtonPoint(w, value, slope, curve, primal, dual, float(totals[3]))

    def least(self, start: Array, tolerance: float) -> tuple[Array, bool]:
        """Minimize the logistic loss; return the weights and whether the tolerance was reached."""
        found = self.at(start, 0.0, self.seen)
        while self.passes < MAX_PASSES:
            step, promised = found.newton_step()
            if 0.5 * promised <= tolerance * found.value:
                return found.w + step, True
            new = self._search_line(found, step, promised, 0.0)
            if new is None:  # no progress beyond rounding
                return found.w, True
            found = new
        return found.w, False

    def least_rounded(self, found: NewtonPoint, width: float, gap: float) -> NewtonPoint:
        """Minimize the rounded hinge from a point until its width, not the slopes, limits the gap.

        Ends earlier if the duality gap is at most `gap` relative to the hinge loss.
        """
        while self.passes < MAX_PASSES and found.gap > gap * found.primal:
            step, promised = found.newton_step()
            # steps can only close the part of the gap that is due to slopes
            rest = found.gap - float(found.slope @ found.slope) / (2 * self.l2)
            if rest > gap * found.primal and 0.5 * promised <= CLOSABLE_GAP_SHARE * rest:
                break
            if promised > ROUNDING * found.value:
                new = self._search_line(found, step, promised, width)
            else:
                new = self.at(found.w + step, width, found.curved)
                new = new if new.slope @ new.slope < found.slope @ found.slope else None
            if new is None:
                break
            found = new
        return found

    def _search_line(
        self, found: NewtonPoint, step: Array, promised: float, width: float
    ) -> NewtonPoint | None:
        """Return the point after a step, shortened until the value decreases enough, or None.

        Each time the step is shortened to the minimum of a parabola.
        """
        length = 1.0
        while length >= MIN_STEP and self.passes < MAX_PASSES:
            new = self.at(found.w + length * step, width, found.curved)
            rise, expected = new.value - found.value, length * promised
            if rise <= -ARMIJO_SHARE * expected:
                return new
            length *= max(expected / (2 * (rise + expected)), MIN_STEP_FACTOR)
        return None


def fit_plain_streamed(problem: Problem, loss: ClassificationLoss) -> tuple[Threshold, str]:
    """Fit as `label_model.fit_model` does, for rows that do not fit in memory."""
    descent = StreamedNewton.of(problem)
    w = np.zeros(len(descent.stream.coding.shares) + 1)
    if loss == "logistic":
        for some, tolerance in [*descent.samples(), (descent, LOGISTIC_TOLERANCE)]:
            w, done = some.least(w, tolerance)
        late = f"Newton's method stopped after {descent.passes} passes over the rows"
        return Logistic(w[:-1], float(w[-1])), "" if done else late
    first, share = 0, 1.0
    for some, tolerance in [*descent.samples(), (descent, 0.0)]:
        gap = max(tolerance, SVM_GAP)
        found, first = _minimize_rounded_hinge(some, w, first, share, gap)
        w, share = found.w, found.curved / some.seen
    late = f"the SVM stopped after {descent.passes} passes with a gap of {found.gap:.2g}"
    return Threshold(w[:-1], float(w[-1])), late if found.gap > SVM_GAP * found.primal else ""


def _minimize_rounded_hinge(
    descent: StreamedNewton, w: Array, first: int, share: float, gap: float
) -> tuple[NewtonPoint, int]:
    """Minimize hinges with less and less rounding until the duality gap is small.

    The gap falls with the square of the width. Starts with width number `first`, where a fraction
    `share` of the rows has curvature. Returns the best point and the number of its width.
    """
    points, curved = list[tuple[NewtonPoint, int]](), share * descent.seen
    for k, width in enumerate(HINGE_WIDTHS[first:], first):
        found = descent.least_rounded(descent.at(w, width, curved), width, gap)
        points.append((found, k))
        if found.gap <= gap * found.primal or descent.passes >= MAX_PASSES:
            break
        w, curved = found.w, found.curved
    return min(points, key=lambda point: point[0].gap)
