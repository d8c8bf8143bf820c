"""The plain linear classifier of rows that are in no memory, by Newton steps of a few passes.

A pass adds up the loss, its slopes, and the curvature of some of the rows: 2^17 of them tell it so well
that each step leaves a few hundredths of the error, however many rows there are. Of rows with a rare
feature more are taken, so that none looks flat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.coded import Coding, Rows
from ratecli.models.linear import Logistic, Threshold
from ratecli.models.stream import Stream, Sums
from ratecli.solvers.problem import Problem
from ratecli.solvers.streamed.kernel import line_pass, loss_pass

Separating = Literal["hinge", "logistic"]

SAMPLE = 2**17
"""Rows whose curvature is added up."""
LEAST = 2**10
"""Rows of a feature whose curvature is, if it has so many."""
CLOSE = 1e-9
"""What a Newton step may still promise where the logistic loss is least, relative to it."""
GAP = 1e-5
"""Of the SVM, relative to the mean hinge loss."""
PASSES = 200
WIDTHS = tuple(4 * 10.0 ** (-k / 2) for k in range(16))
"""Over how much of the margin the hinge is rounded, at first of all rows where nothing is known yet: each
is nearly solved from the one before.
"""
ROUGH = 1e-3
"""What a step may still promise before the next width, relative to the gap that is wanted at the end."""
MOSTLY = 0.9
ENOUGH = 1e-4
ROUNDING = 1e-11
"""Values do not tell whether a step that promises less, relative to them, brings anything: slopes do."""
SHARES: Array = 0.6 ** np.arange(1.0, 49.0)
"""Of a step, where all of it is too much."""


@dataclass(frozen=True)
class LossSums:
    """What a pass adds up at weights and bias `w` (see `kernel.loss_pass`)."""

    coding: Coding
    side: Array
    share: Array
    w: Array
    width: float
    every: NDArray[np.int64]

    def zeros(self) -> Sums:
        d = len(self.w)
        return np.zeros(4), np.zeros(d), np.zeros((d, d))

    def add(self, rows: Rows, sums: Sums) -> None:
        loss_pass(
            rows.numbers, rows.codes, rows.cell, rows.weight, rows.start, self.coding,
            self.side, self.share, self.w, self.width, self.every, *sums,
        )  # fmt: skip


@dataclass(frozen=True)
class LineSums:
    """The loss at several shares (T,) of a step (see `kernel.line_pass`)."""

    coding: Coding
    side: Array
    share: Array
    w: Array
    step: Array
    width: float
    shares: Array

    def zeros(self) -> Sums:
        return (np.zeros(len(self.shares)),)

    def add(self, rows: Rows, sums: Sums) -> None:
        line_pass(
            rows.numbers, rows.codes, rows.cell, rows.weight, self.coding, self.side, self.share,
            self.w, self.step, self.width, self.shares, *sums,
        )  # fmt: skip


@dataclass(frozen=True)
class Point:
    """Weights, and what is known there: value, slopes (d + 1,) and curvature of what is least, the hinge
    loss with the penalty, and what the dual says is the least of that.
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
        return self.primal - self.dual


@dataclass
class Descent:
    """Newton's method on the mean loss plus `l2 / 2 |w|^2`, the bias in it."""

    stream: Stream
    side: Array
    share: Array
    l2: float
    passes: int = 0

    @classmethod
    def of(cls, problem: Problem) -> Descent:
        """Raises E306 where no row has a label."""
        assert problem.stream is not None
        side, weights = problem.labels()
        total = problem.stream.weight
        share = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        return cls(problem.stream, side, share, problem.l2)

    def at(self, w: Array, width: float, curved: float) -> Point:
        """A pass over the rows, of which about so many are curved."""
        self.passes += 1
        most = max(1, int(curved / SAMPLE))
        shares = np.append(self.stream.encoded.shares, 1.0)
        every = np.clip(shares * curved / LEAST, 1, most).astype(np.int64)
        part = LossSums(self.stream.encoded.coding, self.side, self.share, w, width, every)
        totals, slope, below = self.stream.sums(part)
        penalty = 0.5 * self.l2 * float(w @ w)
        slope = slope + self.l2 * w
        curve = below + np.tril(below, -1).T
        curve[np.diag_indices(len(w))] += self.l2
        apart = w - slope / self.l2  # the weights that the dual variables stand for
        dual = float(totals[2]) - 0.5 * self.l2 * float(apart @ apart)
        value, primal = float(totals[0]) + penalty, float(totals[1]) + penalty
        return Point(w, value, slope, curve, primal, dual, float(totals[3]))

    def least(self, found: Point, width: float, close: float, gap: float) -> tuple[Point, bool]:
        """The least point from one on: a step promises no more than `close`, relative to the value, or
        the duality gap is `gap` of the hinge. And whether that was reached.
        """
        while self.passes < PASSES:
            step = -np.asarray(np.linalg.solve(found.curve, found.slope), dtype=float)
            promised = -float(found.slope @ step)
            done = 0.5 * promised <= close * found.value
            if width and done:  # of the gap steps can mend what slopes add to it, and not the rest
                rest = found.gap - float(found.slope @ found.slope) / (2 * self.l2)
                done = rest > gap * found.primal or rest > MOSTLY * found.gap
            if done or (width and found.gap <= gap * found.primal):
                return found, True
            new = self.at(found.w + step, width, found.curved)
            if promised <= ROUNDING * found.value:
                if not new.slope @ new.slope < found.slope @ found.slope:
                    return found, True
            elif new.value > found.value - ENOUGH * promised:
                share = self._share(found, step, promised, width)
                if not share:  # rounding is all that is left
                    return found, 0.5 * promised <= ROUGH * found.value
                new = self.at(found.w + share * step, width, found.curved)
            found = new
        return found, False

    def _share(self, found: Point, step: Array, promised: float, width: float) -> float:
        """The part of a step that brings most, of those tried in one pass; 0 if none brings enough."""
        self.passes += 1
        part = LineSums(
            self.stream.encoded.coding, self.side, self.share, found.w, step, width, SHARES
        )
        (losses,) = self.stream.sums(part)
        ends = found.w + SHARES[:, None] * step
        values = losses + 0.5 * self.l2 * (ends**2).sum(axis=1)
        values[values > found.value - ENOUGH * SHARES * promised] = np.inf
        best = int(np.argmin(values))
        return float(SHARES[best]) if np.isfinite(values[best]) else 0.0


def streamed_fit(problem: Problem, loss: Separating) -> tuple[Threshold, str]:
    """As `baselines.plain.plain_fit`, of rows that are in no memory."""
    descent = Descent.of(problem)
    assert problem.stream is not None
    rows = float(problem.stream.count[descent.side != 0].sum())
    start = np.zeros(problem.stream.shape[1] + 1)
    if loss == "logistic":
        found, done = descent.least(descent.at(start, 0.0, rows), 0.0, CLOSE, 0.0)
        short = (
            "" if done else f"Newton's method stopped after {descent.passes} passes over the rows"
        )
        return Logistic(found.w[:-1], float(found.w[-1])), short
    return _svm(descent, start, rows)


def _svm(descent: Descent, w: Array, rows: float) -> tuple[Threshold, str]:
    """The hinge rounded less and less, until its own gap is small: that falls with the width squared."""
    best: Point | None = None
    curved = rows
    for width in WIDTHS:
        found, _ = descent.least(descent.at(w, width, curved), width, ROUGH * GAP, GAP)
        if best is None or found.gap < best.gap:
            best = found
        if best.gap <= GAP * best.primal or descent.passes >= PASSES:
            break
        w, curved = found.w, found.curved
    assert best is not None
    short = "" if best.gap <= GAP * best.primal else (
        f"the SVM stopped after {descent.passes} passes over the rows with a gap of {best.gap:.2g}, "
        f"above {GAP:.2g} of its loss"
    )  # fmt: skip
    return Threshold(best.w[:-1], float(best.w[-1])), short
