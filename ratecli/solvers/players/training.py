"""Training of `three_player`: the game of all settings, and the choice among its iterates."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import MixtureClassifier, mixture_variants
from ratecli.models.linear import Threshold
from ratecli.rates.analysis import split_goal
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.base import Progress, Solution
from ratecli.solvers.hull.best import MAX_EXCESS, optimize_over_hull
from ratecli.solvers.hull.deterministic import SingleChoice, best_of_members, best_single
from ratecli.solvers.hull.forms import (
    UNDEFINED_RATIO_REASON,
    LinearTerm,
    ProgramForm,
    RatePoints,
    RateProgram,
)
from ratecli.solvers.numerics import Stepper
from ratecli.solvers.oracles.build import make_oracle, make_oracle_rows
from ratecli.solvers.players.blocks import WIDTH
from ratecli.solvers.players.game import (
    BestResponsePlayer,
    ClassifierPlayer,
    DescentPlayer,
    GradientAscent,
    Iterate,
    MultiplierPlayer,
    SwapRegret,
    ThreePlayerGame,
)
from ratecli.solvers.players.lagrangian import ProgramLagrangian
from ratecli.solvers.players.rows import LaneRows
from ratecli.solvers.players.streamed import StreamedLaneRows
from ratecli.solvers.problem import Problem, sum_by_goal

if TYPE_CHECKING:
    from ratecli.solvers.players.solver import ThreePlayer

MAX_PROMISED = 0.01
"""Largest improvement by another answer of an oracle that a solved game may leave."""
MAX_PAIRS = 10_000
"""Largest number of pairs of rates that are compared, as of 100 groups."""
LINE_POINTS = 33
"""Number of classifiers on a line that are measured on streamed rows."""
SHRINK_GAP = 1e-5
SHRINK_SLACK = 1e-6
"""Added to the smallest attainable violation: keeps the loosened program feasible when rounded."""
Settings = Sequence[Mapping[str, float]]
"""Learning rate and multiplier rate of each lane of a game, in this order."""


def train(
    solver: ThreePlayer, problems: Sequence[Problem], rng: np.random.Generator, progress: Progress
) -> list[Callable[[], Solution]]:
    """Play the games of all problems and settings at once.

    The problems have the same rows and rates, and are `alike`. Return functions that choose the
    solution of each from the iterates.
    """
    programs, forms = _lagrangians(solver, problems)
    lanes = list(itertools.product(forms, solver.settings()))
    used = len(lanes)
    if solver.oracle is None:  # the numbers of a lane in a full block do not depend on the others
        lanes += lanes[-1:] * (-used % WIDTH)
    form = ProgramLagrangian.in_lanes([form for form, _ in lanes]) if len(forms) > 1 else forms[0]
    with np.errstate(over="ignore"):  # of learning rates in single precision
        game = make_game(solver, problems[0], form, [setting for _, setting in lanes], rng)
    assert solver.steps is not None
    assert solver.every is not None
    begun = time.perf_counter()
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is checked below
            played = game.play(solver.steps, solver.every, used)
    except (FloatingPointError, np.linalg.LinAlgError) as error:
        return [partial(Solution, {}, "diverged", str(error)) for _ in problems]
    pace = (time.perf_counter() - begun) / (solver.steps + 1)
    progress(f"{solver.steps} steps of {used} settings")

    def choose(problem: Problem, program: RateProgram, lanes: Sequence[int]) -> Solution:
        results = [
            SettingResult(program, game.player, played, lane, solver.shrink)
            for lane in lanes
            if game.player.is_finite(played[-1].answer, lane)
        ]
        return _best_solution(solver, problem, results, pace, deepcopy(rng))

    own = np.split(np.arange(used), len(problems))
    return [
        partial(choose, problem, program, part.tolist())
        for problem, program, part in zip(problems, programs, own, strict=True)
    ]


def alike(solver: ThreePlayer, problems: Sequence[Problem]) -> list[int]:
    """Return the first problem and those whose goals differ from its goals in numbers alone."""
    structures = [form.structure for form in _lagrangians(solver, problems)[1]]
    return [k for k, each in enumerate(structures) if each == structures[0]]


def _lagrangians(
    solver: ThreePlayer, problems: Sequence[Problem]
) -> tuple[list[RateProgram], list[ProgramLagrangian]]:
    """Return the programs of problems over the same rates, and their Lagrangians.

    The slopes of a maximum of many rates depend on one of them. Players that follow the leader
    compare pairs of rates instead, if there are not too many.
    """
    programs, kinds = [RateProgram.of(each) for each in problems], RowKinds.by(problems[0].rates)
    if solver.multipliers == "leader":
        split = [[split_goal(goal, MAX_PAIRS) for goal in each.constraints] for each in problems]
        pairs = zip(problems, split, strict=True)
        own = [RateProgram.of(replace(each, constraints=tuple(goals))) for each, goals in pairs]
        return programs, [ProgramLagrangian(program, kinds) for program in own]
    return programs, [ProgramLagrangian(program, kinds) for program in programs]


def _best_solution(
    solver: ThreePlayer,
    problem: Problem,
    results: Sequence[SettingResult],
    pace: float,
    rng: np.random.Generator,
) -> Solution:
    """Return the solution of the best setting, of those with finite weights."""
    if not results:
        rates = "learning_rate or multiplier_rate"
        return Solution({}, "diverged", f"the weights became infinite: lower {rates}")
    kept = [each for each in results if not each.allowed] or results
    chosen = kept[0] if problem.validation is None else _best_setting(kept, problem.validation)
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


def make_game(
    solver: ThreePlayer,
    problem: Problem,
    form: ProgramLagrangian,
    grid: Settings,
    rng: np.random.Generator,
) -> ThreePlayerGame:
    """Return the game of a setting in each lane before its first step.

    `form` is the Lagrangian of the problem, or those of the lanes.
    """
    kinds = form.kinds
    learning, raising = (np.array([each[name] for each in grid]) for name in grid[0])
    player: ClassifierPlayer
    if solver.oracle is not None:
        oracle_rows = make_oracle_rows(solver.oracle, problem, kinds)
        oracle = make_oracle(solver.oracle, oracle_rows, problem.l2, rng)
        player = BestResponsePlayer(form, oracle_rows, oracle)
    else:
        stream = problem.stream
        rows = LaneRows(problem.X, kinds) if stream is None else StreamedLaneRows(stream, kinds)
        batch = None if solver.batch is None else rows.batches(solver.batch, rng)
        stepper, surrogate = (solver.optimizer, learning), solver.rates == "surrogate"
        player = DescentPlayer(form, rows, stepper, batch, surrogate=surrogate)
    ascent = GradientAscent(Stepper(solver.optimizer, raising), solver.radius)
    multipliers: MultiplierPlayer = ascent
    if solver.multipliers == "swap_regret":
        multipliers = SwapRegret(1 + form.constraints + len(form.signs), raising)
    leader = solver.multipliers == "leader"
    return ThreePlayerGame(form, player, multipliers, learning, leader=leader)


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
    found = optimize_over_hull(program, points, SHRINK_GAP)
    if found is None:
        return np.eye(rates.shape[1])[-1], np.inf
    if found.feasible:
        return found.weights, 0.0
    allowed = max(found.value, 0.0) + SHRINK_SLACK
    loose = optimize_over_hull(program.loosened(allowed), points, SHRINK_GAP)
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
            ends = np.array(
                [np.append(m.weights, m.bias) for m in members if isinstance(m, Threshold)]
            )
            shares = np.linspace(0, 1, LINE_POINTS)[:, None, None]
            lines = ((1 - shares) * ends[-1] + shares * ends).reshape(-1, ends.shape[1])
            lines = lines.astype(np.float32).astype(float)  # as they are measured
            key, k = self.program.best_point(self.player.rates_of(lines.T), MAX_EXCESS)
            return SingleChoice(*key, Threshold(lines[k, :-1], float(lines[k, -1])))
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
        found = optimize_over_hull(program, RatePoints.classifiers(self.rates), SHRINK_GAP)
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


def _best_setting(results: Sequence[SettingResult], validation: Problem) -> SettingResult:
    """Return the setting whose stochastic classifier ranks best on validation rows.

    See protocols 3.5.
    """
    program = RateProgram.of(validation)
    decisions = [validation.decisions(each.stochastic) for each in results]
    rates = np.stack([validation.rates.rates(each) for each in decisions], axis=1)
    return results[best_iterate(program.cost(rates), program.missed(rates))]
