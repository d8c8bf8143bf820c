"""The best mixture of the iterates of a game, and the best single classifier near it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import MixtureClassifier, mixture_variants
from ratecli.models.linear import Threshold
from ratecli.solvers.base import Solution
from ratecli.solvers.hull.deterministic import SingleChoice, best_of_members, best_single
from ratecli.solvers.hull.forms import (
    UNDEFINED_RATIO_REASON,
    LinearTerm,
    ProgramForm,
    RatePoints,
    RateProgram,
)
from ratecli.solvers.hull.master import MAX_EXCESS, best_in_hull
from ratecli.solvers.players.game import (
    BestResponsePlayer,
    ClassifierPlayer,
    DescentPlayer,
    Iterate,
)
from ratecli.solvers.problem import Problem, sum_by_goal

if TYPE_CHECKING:
    from ratecli.solvers.players.options import ThreePlayer

LINE_POINTS = 33
"""Number of classifiers on a line that are measured on streamed rows."""
MAX_PROMISED = 0.01
"""Largest improvement by another answer of an oracle that a solved game may leave."""
SHRINK_GAP = 1e-5
SHRINK_SLACK = 1e-6
"""Added to the smallest attainable violation: keeps the loosened program feasible when rounded."""


def best_iterate(objectives: Array, violations: Array) -> int:
    """Return the iterate whose worse rank, by objective (T,) or by violation (T,), is smallest.

    Equal values share the smallest rank, and all satisfied constraints count as equal. Ties go to
    the smaller objective, then to the later iterate (protocols 3.5, vector 9.11).
    """
    ranks = [rankdata(each, method="min") for each in (objectives, np.maximum(violations, 0.0))]
    worse = np.max(ranks, axis=0)
    return int(np.lexsort((-np.arange(len(worse)), objectives, worse))[0])


def shrink_mixture(program: RateProgram, rates: Array) -> tuple[Array, float]:
    """Return the best mixture of iterates with rates (K, T), and the violation that was allowed.

    The mixture is given by the probabilities (T,) of the iterates. It is a vertex solution, so few
    of them are positive. Goals are functions of the rates of the mixture, exactly as it is
    evaluated later. The allowed violation is 0 if some mixture satisfies all constraints, otherwise
    the smallest amount by which they must be loosened (protocols 3.5). If a constraint is undefined
    for every mixture (a ratio with denominator 0), the last iterate is returned.
    """
    points = RatePoints.classifiers(rates)
    found = best_in_hull(program, points, SHRINK_GAP, frugal=True)
    if found is None:
        return np.eye(rates.shape[1])[-1], np.inf
    if found.feasible:
        return found.weights, 0.0
    allowed = max(found.value, 0.0) + SHRINK_SLACK
    loose = best_in_hull(program.loosened(allowed), points, SHRINK_GAP)
    return (loose or found).weights, allowed


def shrink_by_metrics(objectives: Array, violations: Array) -> tuple[Array, float]:
    """Return the best mixture when goals are averaged over its members: the published program.

    Objectives are (T,), violations (J, T). For a ratio, the mixture may have another value than the
    mean over its members (vectors 9.6 and 9.10). Iterates with an undefined metric (a ratio with
    denominator 0) are skipped; if all are undefined, the last one is returned.
    """
    metrics = np.vstack([objectives[None], violations])
    (known,) = np.nonzero(np.isfinite(metrics).all(axis=0))
    chances = np.eye(len(objectives))[-1]
    if not len(known):
        return chances, np.inf
    unit = [ProgramForm(LinearTerm(row, 0.0), np.zeros(0)) for row in np.eye(len(metrics))]
    program = RateProgram(unit[0], tuple(unit[1:]), (), ("",) * len(violations), {})
    chances[:] = 0.0
    chances[known], allowed = shrink_mixture(program, metrics[:, known])
    return chances, allowed


class SettingResult:
    """The iterates of one setting (lane), and the best mixture of them.

    Attributes
    ----------
    rates
        (K, T) rates of the iterates.
    objectives, violations
        (T,) objective, infinite where undefined, and violation of each iterate.
    allowed
        The violation that was allowed to the mixture, see `shrink_mixture`.
    mean
        (K,) the rates of the mixture.
    single
        The iterate that violates the constraints least, and of several, has the best objective.
    """

    def __init__(
        self,
        program: RateProgram,
        player: ClassifierPlayer,
        played: Sequence[Iterate],
        lane: int,
        shrink: str,
    ) -> None:
        """`shrink` is the option of `ThreePlayer`."""
        self.program, self.player, self.played, self.lane = program, player, played, lane
        self.rates = rates = np.stack([each.rates[:, lane] for each in played], axis=1)
        self.objectives, self.violations = program.cost(rates), program.missed(rates)
        if shrink == "metrics":
            each = [program.value(form, rates) for form in program.constraints]
            metrics = np.array(each).reshape(-1, len(played))
            chances, self.allowed = shrink_by_metrics(self.objectives, metrics)
        else:
            chances, self.allowed = shrink_mixture(program, rates)
        self.stochastic = self._mixture(chances)
        _, self.single = program.best_point(rates, MAX_EXCESS)
        self.mean = rates @ chances

    def _classifier(self, place: int) -> Classifier:
        return self.player.classifier(self.played[place].answer, self.lane)

    def _mixture(self, chances: Array) -> MixtureClassifier:
        """Return the mixture of the iterates with positive chances (T,)."""
        used = np.flatnonzero(chances)
        members = [self._classifier(place) for place in used.tolist()]
        return MixtureClassifier.of(members, chances[used])

    def deterministic(self, solver: ThreePlayer, problem: Problem) -> SingleChoice:
        """Return the best classifier near the mixture.

        It is the best iterate if the solver does not want a deterministic variant. Classifiers on
        lines between it and the mixture's members are measured in one pass over streamed rows.
        """
        single, k = self._classifier(self.single), self.single
        members = (*self.stochastic.members, single)
        if "deterministic" not in solver.wanted:
            violation, objective = float(self.violations[k]), float(self.objectives[k])
            return SingleChoice(violation, objective, single)
        if isinstance(self.player, DescentPlayer) and problem.stream is not None:
            linear = [member for member in members if isinstance(member, Threshold)]
            ends = np.array([np.append(member.weights, member.bias) for member in linear])
            shares = np.linspace(0, 1, LINE_POINTS)[:, None, None]
            lines = ((1 - shares) * ends[-1] + shares * ends).reshape(-1, ends.shape[1])
            lines = np.ascontiguousarray(lines.T, np.float32)
            key, k = self.program.best_point(self.player.rates_of(lines), MAX_EXCESS)
            return SingleChoice(*key, self.player.classifier(lines, k))
        if isinstance(self.player, BestResponsePlayer):
            return best_single(self.program, self.player.rows, members)
        return best_of_members(problem, members)

    def variants(
        self, rng: np.random.Generator, single: SingleChoice
    ) -> dict[str, Callable[[], Classifier]]:
        """Return functions that make the classifiers of the solution, by name."""
        counted = np.array([each.prices[0, self.lane] for each in self.played])
        return mixture_variants(self.stochastic, rng) | {
            "deterministic": lambda: single.classifier,
            "uniform": lambda: self._mixture(counted / counted.sum()),
            "last": lambda: self._classifier(-1),
        }

    def promised(self) -> float:
        """Return about how much one more answer of the oracle would improve the mixture.

        0 for a classifier that descends: nothing is known of a better one.
        """
        if not isinstance(self.player, BestResponsePlayer):
            return 0.0
        program, rows = self.program.loosened(self.allowed), self.player.rows
        found = best_in_hull(program, RatePoints.classifiers(self.rates), SHRINK_GAP)
        if found is None or not rows.costs(found.prices).any():
            return 0.0
        near = self._classifier(int(np.argmin(found.prices @ self.rates)))
        answer = self.player.oracle.answer(found.prices, near)
        return float(found.prices @ (found.rates - rows.rates(rows.decide(answer))))

    def multipliers(self) -> dict[str, float]:
        """Return the multipliers of the last step by constraint."""
        owners = self.player.form.owners
        return sum_by_goal(owners, self.played[-1].prices[1 : 1 + len(owners), self.lane])

    def trace(self, pace: float, main: SingleChoice | None) -> list[dict[str, Any]]:
        """Return the trace of single iterates, and of the main classifier if it is deterministic.

        A step of all settings takes `pace` seconds.
        """
        last = self.played[-1].step + 1
        end = [] if main is None else [(last, main.objective, main.violation)]
        steps = [each.step for each in self.played]
        rows = [*zip(steps, self.objectives, self.violations, strict=True), *end]
        return [
            {
                "iteration": step,
                "objective": float(objective),
                "violation": float(violation),
                "seconds": (step + 1) * pace,
            }
            for step, objective, violation in rows
        ]


def best_solution(
    solver: ThreePlayer,
    problem: Problem,
    results: Sequence[SettingResult],
    pace: float,
    rng: np.random.Generator,
) -> Solution:
    """Return the solution of the best setting, of those with finite weights.

    It is the one whose stochastic classifier ranks best on validation rows, if there are some.
    """
    if not results:
        reason = "the weights became infinite: lower learning_rate or multiplier_rate"
        return Solution({}, "diverged", reason)
    kept = [each for each in results if not each.allowed] or results
    chosen, validation = kept[0], problem.validation
    if len(kept) > 1 and validation is not None:  # protocols 3.5
        program = RateProgram.of(validation)
        decisions = [validation.decisions(each.stochastic) for each in kept]
        rates = np.stack([validation.rates.rates(each) for each in decisions], axis=1)
        chosen = kept[best_iterate(program.cost(rates), program.missed(rates))]
    settings, single = solver.settings(), chosen.deterministic(solver, problem)
    variants = solver.select(chosen.variants(rng, single))
    main = next(iter(variants.values()))
    status, reasons = "solved", list[str]()
    if len(settings) > 1:
        setting = settings[chosen.lane % len(settings)]
        shown = ", ".join(f"{key} {value:g}" for key, value in setting.items())
        reasons.append(f"chosen on validation rows: {shown}")
    if single.violation and not solver.randomize and not chosen.allowed:
        status, reason = single.ending(problem)
        reasons.append(reason)
    elif problem.violation(main) > MAX_EXCESS:
        status = "iteration_limit"
        missed = f"after {solver.steps} steps no mixture of classifiers satisfies all constraints"
        reasons.append(missed if chosen.allowed else UNDEFINED_RATIO_REASON)
    elif (promised := chosen.promised()) > MAX_PROMISED:
        status = "iteration_limit"
        reasons.append(
            f"after {solver.steps} steps, one more classifier would improve the objective by "
            f"about {promised:.2g}: use 'mixture', which adds it"
        )
    trace = tuple(chosen.trace(pace, None if solver.randomize else single))
    return Solution(variants, status, "; ".join(reasons), chosen.multipliers(), trace)
