"""Column generation: best mixtures of known classifiers, and an oracle that adds classifiers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import MIN_CHANCE, MixtureClassifier, mixture_variants
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Shape, constraint_goal, objective_goal
from ratecli.rates.matrix import RowKinds
from ratecli.rates.resolve import violation_expression
from ratecli.solvers.base import JudgedRows, Progress, Solution, trace_row
from ratecli.solvers.hull.deterministic import SingleChoice, best_single, no_single_ending
from ratecli.solvers.hull.forms import UNDEFINED_RATIO_REASON, RatePoints, RateProgram
from ratecli.solvers.hull.infeasible import unmet_status
from ratecli.solvers.hull.master import MAX_EXCESS, HullOptimum, Tangents, best_in_hull
from ratecli.solvers.oracles.base import Oracle, OracleRows
from ratecli.solvers.oracles.choice import LINEAR_ORACLE, is_ensemble
from ratecli.solvers.oracles.plugin import make_oracle, make_oracle_rows
from ratecli.solvers.problem import ERROR_RATE, Problem, sum_by_goal

if TYPE_CHECKING:
    from ratecli.solvers.hull.options import Mixture

MAX_NEAR = 6
"""Number of classifiers with the smallest costs between which the best single one is sought."""
CONSTANTS = 2
"""Number of constant classifiers; they come first."""
CAUTIONS = (0.05, 0.1, 0.2, 0.4)
"""Relative increases of the multipliers, tried in this order when no answer improves the mixture.
Higher multipliers lead to answers that satisfy stricter constraints, such as a higher precision.
"""
MAX_SINGLES = 5
"""Number of times that the best single classifier is added to the known ones."""
CONVEX_SHAPES = frozenset({Shape.AFFINE, Shape.CONVEX})


@dataclass
class ColumnGeneration:
    """Alternates between the best mixture of known classifiers and an answer to its prices.

    Attributes
    ----------
    program
        The goals as functions of rates.
    gap
        The search ends when an answer promises to improve the objective by no more than this.
    calls
        Maximum number of rounds.
    cautions
        Relative increases of all prices, tried in this order when the search is stuck.
    members
        The known classifiers.
    found
        The best mixture, or the one of least violation, after a round.
    ended
        Whether no answer promises more than the gap, or answers repeat known classifiers.
    promised
        How much the last answer promised to improve the objective, to first order if it is smooth.
    """

    program: RateProgram
    rows: OracleRows
    oracle: Oracle
    gap: float
    calls: int
    cautions: Sequence[float] = ()
    members: list[Classifier] = field(default_factory=list)
    ended: bool = False
    promised: float = np.inf
    trace: list[Mapping[str, Any]] = field(default_factory=list)
    found: HullOptimum = field(init=False)
    _rates: list[Array] = field(default_factory=list)
    _tangents: Tangents = ()

    def __post_init__(self) -> None:
        self._aim = self.program
        self._begun = time.perf_counter()

    @property
    def rates(self) -> Array:
        """(K, T) rates of the members."""
        return np.stack(self._rates, axis=1)

    @property
    def mixture(self) -> MixtureClassifier:
        """The best mixture, of the members with positive chances."""
        return MixtureClassifier.of(self.members, self.found.weights)

    def start(self, prices: Array) -> None:
        """Add both constant classifiers and one that is cheap at `prices` (K,).

        The latter is skipped if all decisions cost the same.
        """
        for yes in (True, False):
            self._add(self.rows.constant(yes=yes))
        if self.rows.costs(prices).any():
            self._add(self.oracle.answer(prices, None))

    @property
    def objective(self) -> float:
        """The objective of the best mixture."""
        return float(self.program.value(self.program.objective, self.found.rates))

    def single(self, near: int = 0) -> SingleChoice:
        """Return the best of all classifiers, and with any threshold, of the mixture's members.

        With `near`, return the best classifier on lines between these and the cheapest ones, of
        which there are so many.
        """
        key, best = self.program.best_point(self.rates, MAX_EXCESS)
        places = [best, *np.flatnonzero(self.found.weights > MIN_CHANCE).tolist()]
        places += np.argsort(self.found.prices @ self.rates, kind="stable")[:near].tolist()
        others = [self.members[k] for k in dict.fromkeys(places)]
        start = SingleChoice(*key, self.members[best])
        return best_single(self.program, self.rows, others, start, moving=near > 0)

    def run(self, progress: Progress = lambda _: None) -> None:
        """Take rounds until the search has ended or all calls are used."""
        while not self.ended and len(self.trace) < self.calls:
            progress(self._step())

    @property
    def key(self) -> tuple[float, float]:
        """The violation of the best mixture, and an objective that is worth adding a classifier."""
        missed = float(self.program.missed(self.found.rates, MAX_EXCESS))
        return missed, self.objective - self.gap

    def add(self, classifier: Classifier) -> None:
        """Add a classifier, and continue."""
        self._add(classifier)
        self.ended = False

    @property
    def has_room(self) -> bool:
        """Whether no answer promises more and constraints do not affect the optimum."""
        price = float(np.abs(self.found.multipliers).sum())
        return self.found.feasible and max(price, self.promised) <= self.gap

    def turn_to(self, other: Problem) -> None:
        """Continue with another problem on the same rates."""
        self._aim, self._tangents, self.ended = RateProgram.of(other), (), False

    def _step(self) -> str:
        """Find the best mixture and ask the oracle at its prices; return a message."""
        self._mix()
        saved, self.ended = self._ask()
        found = self.found
        objective, violation = self.objective, max(float(self.program.excess(found.rates)), 0.0)
        number = len(self.trace) + 1
        name = "first_order_gap" if self._aim.objective.smooth else "gap"
        self.trace.append(trace_row(number, objective, violation, self._begun, **{name: saved}))
        self.promised = saved
        if self.ended and self.cautions and self._is_stuck:
            part, *self.cautions = self.cautions
            caution = part * np.abs(found.prices)
            self._saving(replace(found, prices=found.prices + caution), None)
            self.ended = False
        return f"objective {objective:.5g}, violation {violation:.2g}, gap {saved:.2g}"

    def _mix(self) -> None:
        """Find the best mixture of the known classifiers, or the one of least violation."""
        points, gap = RatePoints.classifiers(self.rates), 0.5 * self.gap
        last = self.found.weights if self.trace else None
        for frugal in (True, False):  # few boxes may all be undefined
            found = best_in_hull(self._aim, points, gap, self._tangents, frugal=frugal, near=last)
            if found is not None:
                break
        assert found is not None
        self.found = found
        if found.feasible:
            self._tangents = found.tangents

    def _ask(self) -> tuple[float, bool]:
        """Add the oracle's answers to the prices.

        Return how much they save, and whether that is no more than the gap or none is new.
        """
        known = np.array(self._rates)
        near = self.members[int(np.argmin(known @ self.found.prices))]
        saved = self._saving(self.found, near)
        if saved <= self.gap and self.oracle.starts:
            saved = max(saved, self._saving(self.found, None))
        distances = (np.abs(known - row).max(axis=1).min() for row in self._rates[len(known) :])
        return saved, saved <= self.gap or max(distances, default=0.0) <= MAX_EXCESS

    @property
    def _is_stuck(self) -> bool:
        """Whether the best mixture has only constant classifiers or violates a constraint.

        If the model's probabilities are not calibrated, its answers may violate a constraint by a
        little at any price.
        """
        return not self.found.feasible or self.found.weights[CONSTANTS:].sum() <= MAX_EXCESS

    def _saving(self, found: HullOptimum, near: Classifier | None) -> float:
        """Return how much the oracle's answer, sought from `near`, saves at the prices."""
        if not self.rows.costs(found.prices).any():
            return 0.0  # all decisions cost the same
        answer = self._add(self.oracle.answer(found.prices, near))
        return float(found.prices @ (found.rates - answer))

    def _add(self, classifier: Classifier) -> Array:
        """Add a classifier and return its rates (K,)."""
        rates = self.rows.rates(self.rows.decide(classifier))
        self.members.append(classifier)
        self._rates.append(rates)
        return rates


def max_slack_problem(problem: Problem, objective: float) -> Problem | None:
    """Return the problem of maximizing the least slack at an objective of at most `objective`.

    None if there are no constraints or the problem is not convex.
    """
    goals = (problem.objective, *problem.constraints)
    pieces = problem.pieces
    if not pieces or not all(goal.shape in CONVEX_SHAPES for goal in goals):
        return None
    bound = ex.subtract(problem.objective.expression, ex.Constant(objective))
    limit = constraint_goal("objective", problem.objective.text, (bound,), bound)
    aim = objective_goal("the worst violation", violation_expression(tuple(pieces)))
    return replace(problem, objective=aim, constraints=(*problem.constraints, limit))


def find_mixture(
    solver: Mixture, problem: Problem, rng: np.random.Generator, progress: Progress
) -> Solution:
    """Return the solution of `mixture`."""
    begun = time.perf_counter()
    rows, oracle, judged = _rows_and_oracle(solver, problem, rng)
    program = RateProgram.of(judged)
    search = ColumnGeneration(program, rows, oracle, solver.gap, solver.calls, CAUTIONS)
    search.start(np.array([float(leaf == ERROR_RATE) for leaf in judged.rates.leaves]))
    if solver.model == LINEAR_ORACLE and isinstance(problem.near, MixtureClassifier):
        for member in problem.near.members:
            search.add(member)
    search.run(progress)
    single = search.single()
    for _ in range(MAX_SINGLES):
        if single.key >= search.key or len(search.trace) >= search.calls:
            break
        search.add(single.classifier)
        search.run(progress)
        single = search.single()
    multipliers = sum_by_goal(search.program.owners, search.found.multipliers)
    promised = search.promised
    # the objective is at least this, provided that the oracle's answers are the cheapest
    least = search.objective - promised
    room = max_slack_problem(judged, least + solver.gap) if search.has_room else None
    if solver.randomize and room:
        search.turn_to(room)
        search.run(progress)
    main, status, reason = search.mixture, *_ending(judged, search, promised)
    if "deterministic" in solver.wanted:
        single = search.single(MAX_NEAR)
    found = mixture_variants(main, rng) | {"deterministic": lambda: single.classifier}
    variants = solver.select(found)
    if not solver.randomize:
        row = {"deterministic_gap": single.objective - least} if status == "solved" else {}
        row = trace_row(len(search.trace) + 1, single.objective, single.violation, begun, **row)
        search.trace.append(row)
        if single.violation and search.found.feasible:
            rates = rows.rates(rows.decide(single.classifier))
            status, reason = no_single_ending(judged, rates)
    return Solution(
        variants,
        status,
        reason,
        multipliers,
        tuple(search.trace),
        judged=_judged_rows(solver, rows, judged, variants[solver.wanted[0]]),
        near=main if solver.model == LINEAR_ORACLE else None,
    )


def _judged_rows(
    solver: Mixture, rows: OracleRows, judged: Problem, model: Classifier
) -> JudgedRows | None:
    """Return the decisions of the model on rows that its probabilities have not seen, if any."""
    if not is_ensemble(solver.model) or solver.scores == "in_sample":
        return None
    members, chances = [model], np.ones(1)
    if isinstance(model, MixtureClassifier):
        members, chances = list(model.members), model.chances
    return JudgedRows(judged, chances @ np.array([rows.decide(each) for each in members]))


def _rows_and_oracle(
    solver: Mixture, problem: Problem, rng: np.random.Generator
) -> tuple[OracleRows, Oracle, Problem]:
    """Return the oracle, the rows by which the mixture is chosen, and the problem on them."""
    if solver.scores is not None and is_ensemble(solver.model):
        # imports scikit-learn, which is slow
        from ratecli.solvers.oracles.plugin import make_unseen_oracle

        plugin, judged = make_unseen_oracle(solver.model, solver.scores, problem)
        return plugin.rows, plugin, judged
    rows = make_oracle_rows(solver.model, problem, RowKinds.by(problem.rates))
    return rows, make_oracle(solver.model, rows, problem.l2, rng), problem


def _ending(problem: Problem, search: ColumnGeneration, promised: float) -> tuple[str, str]:
    """Return status and reason; the last answer promised to improve the objective by so much."""
    if search.found.feasible:
        if search.program.missed(search.found.rates) == np.inf:
            return "iteration_limit", UNDEFINED_RATIO_REASON
        if promised <= search.gap:
            return "solved", ""
        reason = f"after {len(search.trace)} rounds the objective could still improve by "
        return "iteration_limit", f"{reason}{promised:.2g}"
    reason = f"no mixture of {len(search.members)} classifiers satisfies all constraints; "
    reason += f"the closest violates {problem.nearest_miss(search.found.rates[:, None])}"
    status, reason = unmet_status(problem, reason)
    if status != "infeasible":
        reason += ": use a looser limit, other features or another model"
    return status, reason
