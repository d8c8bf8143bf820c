"""The best deterministic classifier near a mixture: thresholds, and moves between its members."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from ratecli.models.base import Array, Classifier
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.hull.master import MAX_EXCESS
from ratecli.solvers.oracles.base import OracleRows, blend, with_threshold
from ratecli.solvers.problem import Problem

FIRST_SHARE, LAST_SHARE = 0.5, 1 / 64
"""Largest and smallest share of the way to another classifier that a move takes."""
MAX_MOVES = 100
"""Maximum number of moves that are tried, each with all thresholds."""


class SingleChoice(NamedTuple):
    """A deterministic classifier with its violation and its objective; smaller is better."""

    violation: float
    objective: float
    classifier: Classifier

    @property
    def key(self) -> tuple[float, float]:
        return self.violation, self.objective

    def ending(self, problem: Problem) -> tuple[str, str]:
        """Return status and reason if the classifier violates a constraint and a mixture none."""
        return no_single_ending(problem, problem.measured(problem.decisions(self.classifier)))


def no_single_ending(problem: Problem, rates: Array) -> tuple[str, str]:
    """Return status and reason if a classifier with rates (K,) is the closest deterministic one."""
    reason = (
        "no deterministic classifier found satisfies all constraints: the closest violates "
        f"{problem.nearest_miss(rates[:, None])}; `randomize: true` allows random decisions"
    )
    return "iteration_limit", reason


def with_best_threshold(
    program: RateProgram, rows: OracleRows, classifier: Classifier
) -> SingleChoice:
    """Return a classifier with the threshold that is best for the goals, if it has one."""
    scores = rows.ranks(classifier)
    if scores is None:
        rates = rows.rates(rows.decide(classifier))[:, None]
        key, _ = program.best_point(rates, MAX_EXCESS)
        return SingleChoice(*key, classifier)
    cuts, rates = rows.cut_rates(scores)
    key, k = program.best_point(rates, MAX_EXCESS)
    return SingleChoice(*key, with_threshold(classifier, float(cuts[k])))


def best_of_members(problem: Problem, members: Sequence[Classifier]) -> SingleChoice:
    """Return the best deterministic classifier near members of a mixture, for rows in memory."""
    rows = OracleRows.of(problem.X, RowKinds.by(problem.rates), layout=problem.column_layout)
    return best_single(RateProgram.of(problem), rows, members)


def best_single(
    program: RateProgram,
    rows: OracleRows,
    others: Sequence[Classifier],
    start: SingleChoice | None = None,
    *,
    moving: bool = True,
) -> SingleChoice:
    """Return the best classifier: `start`, one of the others, or one on a line between two of them.

    The optimum of a plug-in model has one vector of costs, and the members of the best mixture have
    nearly the same ones. So the search moves from the best classifier towards or away from each
    other one, as long as that helps, and then by half as much. All thresholds are tried each time.
    """
    by_goals = attrgetter("key")
    best = min((with_best_threshold(program, rows, each) for each in others), key=by_goals)
    share, tried = FIRST_SHARE if moving and len(others) > 1 else 0.0, 0
    while share >= LAST_SHARE and tried < MAX_MOVES:
        before = best.key
        for other in others:
            for step in (share, -share):
                moved = blend(best.classifier, other, step)
                if moved is not None:
                    tried += 1
                    best = min(best, with_best_threshold(program, rows, moved), key=by_goals)
        share = share if best.key < before else share / 2
    return min(start or best, best, key=by_goals)
