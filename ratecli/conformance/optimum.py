"""Exact optima of tiny problems, by linear programs over all decisions and by a look at every line.

None of the solvers' own machinery is used: what they are measured by is found in another way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from ratecli.conformance.rows import DecisionLinear, TinyTable
from ratecli.models.base import Array

OPTIMUM_TOLERANCE = 1e-9
BIG_M = 1e3
"""More than any ratio here."""
MAX_CUT_ROUNDS = 200
DecisionMasks = NDArray[np.bool_]


@dataclass(frozen=True)
class DecisionRatio:
    """`top / bottom`, the bottom positive for some decisions and never negative."""

    top: DecisionLinear
    bottom: DecisionLinear

    def at(self, decisions: Array) -> float:
        bottom = self.bottom.at(decisions)
        return self.top.at(decisions) / bottom if bottom > 0 else math.nan


@dataclass(frozen=True)
class DecisionConvex:
    """A convex function of linear parts, with its slopes there: `of((K,))` gives value and slopes (K,)."""

    parts: tuple[DecisionLinear, ...]
    of: Callable[[Array], tuple[float, Array]]

    def at(self, decisions: Array) -> float:
        return self.of(np.array([part.at(decisions) for part in self.parts]))[0]


ObjectiveForm = DecisionLinear | DecisionRatio | DecisionConvex


@dataclass(frozen=True)
class ExactProblem:
    """A problem in numbers: minimize the objective so that each limit is at most 0.

    `limits` may be convex, not ratios.
    """

    objective: ObjectiveForm
    limits: tuple[DecisionLinear | DecisionConvex, ...]

    def violation(self, decisions: Array) -> float:
        return max((limit.at(decisions) for limit in self.limits), default=0.0)

    def best(self, cells: NDArray[np.intp], slack: float = 0.0) -> float:
        """The least objective where rows of a cell are decided alike, and limits may be missed by `slack`.

        `cells` (n,) are numbers from 0. Infinite where nothing meets the limits.
        """
        groups = np.equal.outer(np.arange(cells.max() + 1), cells).astype(float)
        return _Program(self, groups, slack).least()

    def best_line(self, masks: DecisionMasks, slack: float = 1e-9) -> float:
        """The least of some classifiers, given by whom they decide yes (M, n); NaN if all break a limit."""
        values = [
            self.objective.at(mask.astype(float))
            for mask in masks
            if self.violation(mask.astype(float)) <= slack
        ]
        return min((value for value in values if not math.isnan(value)), default=math.nan)


@dataclass(frozen=True)
class _Program:
    """Over q in [0, 1]^C, the decision of each cell: `groups` (C, n) says which rows are in it."""

    exact: ExactProblem
    groups: Array
    slack: float

    @cached_property
    def flat(self) -> list[DecisionLinear]:
        return [self.cell(each) for each in self.exact.limits if isinstance(each, DecisionLinear)]

    def cell(self, form: DecisionLinear) -> DecisionLinear:
        return DecisionLinear(self.groups @ form.coefficients, form.constant)

    def least(self) -> float:
        objective = self.exact.objective
        if isinstance(objective, DecisionRatio):
            return self.least_ratio(objective)
        if isinstance(objective, DecisionConvex):
            return self.cut([objective], None)
        return self.cut([], objective)

    def least_ratio(self, ratio: DecisionRatio) -> float:
        """By Dinkelbach's method: the value at which `top - value * bottom` cannot be made negative."""
        value = BIG_M
        for _ in range(MAX_CUT_ROUNDS):
            found, point = self.solved([], ratio.top - value * ratio.bottom)
            if point is None:
                return math.inf
            now = ratio.at(self.groups.T @ point)
            if math.isnan(now) or found >= -OPTIMUM_TOLERANCE:
                return value
            value = now
        return value

    def cut(self, objectives: list[DecisionConvex], linear: DecisionLinear | None) -> float:
        """By Kelley's cutting planes, for what is convex in the objective and the limits."""
        curved = [each for each in self.exact.limits if isinstance(each, DecisionConvex)]
        cuts: list[tuple[DecisionLinear, bool]] = []
        found = math.inf
        for _ in range(MAX_CUT_ROUNDS):
            found, point = self.solved(cuts, linear)
            if point is None:
                return math.inf
            if not objectives and not curved:
                return found
            decisions = self.groups.T @ point
            near = True
            for each, aim in [*((o, True) for o in objectives), *((c, False) for c in curved)]:
                touch = _tangent(each, decisions)
                over = touch.at(decisions) - (found if aim else self.slack)
                if over > OPTIMUM_TOLERANCE:
                    near = False
                    cuts.append((touch, aim))
            if near:
                return found
        return found

    def solved(
        self, cuts: Sequence[tuple[DecisionLinear, bool]], linear: DecisionLinear | None
    ) -> tuple[float, Array | None]:
        """Least value and where; with no `linear` objective that of a number above the cuts that aim."""
        count = len(self.groups)
        rows, ends = [], []
        for form in self.flat:
            rows.append(np.append(form.coefficients, 0.0))
            ends.append(self.slack - form.constant)
        for form, aim in cuts:
            own = self.cell(form)
            rows.append(np.append(own.coefficients, -1.0 if aim else 0.0))
            ends.append((0.0 if aim else self.slack) - own.constant)
        costs = np.append(np.zeros(count), 1.0)
        if linear is not None:
            costs = np.append(self.cell(linear).coefficients, 0.0)
        bounds = [(0.0, 1.0)] * count + [(0.0, None)]  # convex objectives here are never negative
        found = linprog(costs, np.array(rows) if rows else None, ends or None, bounds=bounds)
        if found.status == 2:
            return math.inf, None
        if found.status != 0:
            raise ArithmeticError(f"a tiny linear program was not solved: {found.message}")
        constant = 0.0 if linear is None else linear.constant
        return float(found.fun) + constant, np.asarray(found.x[:count])


def _tangent(form: DecisionConvex, decisions: Array) -> DecisionLinear:
    at = np.array([part.at(decisions) for part in form.parts])
    value, slopes = form.of(at)
    total = DecisionLinear(np.zeros_like(decisions), value - float(slopes @ at))
    for slope, part in zip(slopes, form.parts, strict=True):
        total += float(slope) * part
    return total


def indistinguishable_rows(*columns: Array) -> NDArray[np.intp]:
    """(n,) numbers of rows that are alike in all columns, each (n,) or (n, k)."""
    table = np.column_stack([np.asarray(column, dtype=float) for column in columns])
    return np.unique(table, axis=0, return_inverse=True)[1].ravel()


def linear_decisions(rows: TinyTable) -> DecisionMasks:
    """(M, n) all that a linear threshold on two features can decide yes: every direction, every cut."""
    X = rows.X if isinstance(rows.X, np.ndarray) else rows.X.toarray()
    places, of = np.unique(X[:, :2], axis=0, return_inverse=True)
    apart = (places[:, None] - places[None]).reshape(-1, 2)
    apart = apart[np.abs(apart).sum(axis=1) > 0]
    turns = np.unique(np.round(np.arctan2(apart[:, 0], -apart[:, 1]) % (2 * np.pi), 12))
    if not len(turns):
        turns = np.zeros(1)
    angles = turns + np.diff(turns, append=turns[0] + 2 * np.pi) / 2
    found = [np.zeros(len(places), dtype=bool), np.ones(len(places), dtype=bool)]
    for angle in angles:
        scores = places @ np.array([np.cos(angle), np.sin(angle)])
        found += [scores > cut + OPTIMUM_TOLERANCE for cut in scores]
    return np.asarray(np.unique(np.array(found), axis=0)[:, of.ravel()])
