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
from typing import Any

import numba
import numpy as np
from scipy import sparse
from scipy.special import expit

from ratecli.models.base import Array
from ratecli.models.linear import Logistic, Threshold
from ratecli.models.records import RowBlock
from ratecli.solvers.design_matrix import DesignMatrix
from ratecli.solvers.liblinear import ClassificationLoss
from ratecli.solvers.problem import Problem
from ratecli.streaming.stream import RowStream, SumArrays


def margin_losses(margin: Array, width: float) -> tuple[Array, Array, Array]:
    """Return the losses of margins (m,), the negatives of their slopes, and their curvatures.

    The loss is logistic if `width` is 0, else a hinge rounded over an interval of that width of the
    margin below 1.
    """
    if width == 0:
        pull = expit(-margin)
        return np.logaddexp(0, -margin), pull, pull * (1 - pull)
    hinge = np.maximum(0.0, 1.0 - margin)
    rounded = np.minimum(hinge, width)
    inside = (hinge > 0) & (hinge < width)
    return rounded * (hinge - 0.5 * rounded) / width, rounded / width, inside / width


@numba.njit(cache=True, nogil=True)
def add_squares(starts: Any, columns: Any, values: Any, weights: Any, curve: Any) -> None:
    """Add weighted outer squares of rows in compressed form, of sorted columns, to `curve` (d, d).

    Only its diagonal and the entries below it are changed.
    """
    for i in range(len(weights)):
        for k in range(starts[i], starts[i + 1]):
            scaled, row = weights[i] * values[k], curve[columns[k]]
            for j in range(starts[i], k + 1):
                row[columns[j]] += scaled * values[j]


def sum_losses(
    labels: tuple[Array, Array], w: Array, width: float, chances: Array, blocks: Iterable[RowBlock]
) -> SumArrays:
    """Sum losses of linear scores and their derivatives in weights and bias, w (d + 1,).

    `labels` are the side (1, -1, or 0 for none) of the rows of each cell, and the factor of their
    weights. Returns four totals: the loss, the hinge without rounding, the sum of the negative
    slopes in the margin, and the number of rows with curvature; the first derivatives (d + 1,); and
    the second derivatives (d + 1, d + 1), on the diagonal and below, of a sample of rows: those
    with feature j are sampled with at least the probability `chances[j]` (d + 1,), always the same.
    """
    side, share = labels
    d = len(w) - 1
    totals, slope, curve = np.zeros(4), np.zeros(d + 1), np.zeros((d + 1, d + 1))
    rare = np.where(chances > chances[-1], chances, 0.0)[:-1]
    for rows in blocks:
        sides, counted = side[rows.cell], rows.weight * share[rows.cell]
        design = DesignMatrix(rows.X)
        margin = sides * design.scores(w)
        loss, pull, bend = margin_losses(margin, width)
        hinge = np.maximum(0.0, 1.0 - margin)
        (bent,) = np.nonzero(bend * np.abs(sides))
        counted = np.where(sides == 0, 0.0, counted)
        totals += np.array([counted @ loss, counted @ hinge, counted @ pull, len(bent)])
        slope += design.pull(-counted * pull * sides)
        chance = np.full(len(rows), chances[-1])
        if rare.any():
            chance = np.minimum(1.0, chance + (rows.X != 0) @ rare)
        bent = bent[np.random.default_rng(rows.start).random(len(rows))[bent] < chance[bent]]
        some, weights = sparse.csr_array(rows.X[bent]), (counted * bend / chance)[bent]
        add_squares(some.indptr, some.indices, some.data, weights, curve)
        curve[-1] += DesignMatrix(some).pull(weights)
    return totals, slope, curve


SAMPLE_ROWS = 2**17
"""Rows whose curvature is summed, and rows of the first sample."""
SAMPLE_GROWTH = 8
MIN_FEATURE_ROWS = 2**10
"""Rows per feature whose curvature is summed, if there are as many."""
LOGISTIC_TOLERANCE = 1e-6
"""Predicted relative decrease of the last Newton step for the logistic loss. What is left after
that step is smaller by orders of magnitude.
"""
SVM_GAP = 1e-5
"""Duality gap of the SVM relative to the mean hinge loss."""
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
            tolerance = 0.1 * len(self.stream.encoded.shares) * every / self.rows
            yield replace(self, share=share, l2=l2, every=every, passes=0), tolerance
            size *= SAMPLE_GROWTH

    def at(self, w: Array, width: float, curved: float) -> NewtonPoint:
        """Evaluate a point in a pass over the rows, of which about `curved` have curvature."""
        self.passes += 1
        often = np.maximum(np.append(self.stream.encoded.shares, 1.0) * curved, 1.0)
        least = min(1.0, SAMPLE_ROWS / max(curved, 1.0))
        chances = np.clip(MIN_FEATURE_ROWS / often, least, 1.0)
        labels = self.side, self.share
        sums = partial(sum_losses, labels, w, width, chances)
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
    """Fit as `linear_fits.fit_plain_classifier` does, for rows that do not fit in memory."""
    descent = StreamedNewton.of(problem)
    w = np.zeros(len(descent.stream.encoded.shares) + 1)
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
