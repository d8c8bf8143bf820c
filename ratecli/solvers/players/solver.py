"""The solver `three_player`: a game of classifier, slacks and multipliers.

It also holds the two programs that shrink the iterates to a small mixture.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, MinLen

from ratecli.errors import Diagnostic, FaultError
from ratecli.rates.analysis import PROGRAM_SHAPES
from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.oracles.choice import (
    OracleOption,
    make_oracle,
    make_oracle_rows,
    oracle_uses_groups,
)

if TYPE_CHECKING:
    from ratecli.models.base import Array, Classifier
    from ratecli.models.mixture import MixtureClassifier
    from ratecli.rates.matrix import RowKinds
    from ratecli.solvers.hull.forms import RateProgram
    from ratecli.solvers.players.game import (
        ClassifierPlayer,
        GameIterates,
        MultiplierPlayer,
        ThreePlayerGame,
    )
    from ratecli.solvers.players.lagrangian import ProgramLagrangian
    from ratecli.solvers.problem import Problem

SHRINK_GAP = 1e-5
SHRINK_SLACK = 1e-6
"""Added to the smallest attainable violation: keeps the loosened program feasible when rounded."""


def best_iterate(objectives: Array, violations: Array) -> int:
    """Return the iterate whose worse rank, by objective (T,) or by violation (T,), is smallest.

    Equal values share the smallest rank, and all satisfied constraints count as equal. Ties go to
    the smaller objective, then to the later iterate (protocols 3.5, vector 9.11).
    """
    from scipy.stats import rankdata

    ranks = [rankdata(each, method="min") for each in (objectives, np.maximum(violations, 0.0))]
    worse = np.max(ranks, axis=0)
    order = np.lexsort((-np.arange(len(worse)), objectives, worse))
    return int(order[0])


@dataclass(frozen=True)
class ShrunkMixture:
    """Probabilities (T,) of the iterates, few of them above 0, and the violation that was allowed.

    `allowed` is 0 if some mixture satisfies all constraints.
    """

    chances: Array
    allowed: float


def shrink_mixture(program: RateProgram, rates: Array) -> ShrunkMixture:
    """Return the best mixture of iterates with rates (K, T).

    It is a vertex solution, so few iterates have positive probability. Goals are functions of the
    rates of the mixture, exactly as it is evaluated later. If no mixture satisfies all constraints,
    they are loosened by the smallest amount that makes one feasible (protocols 3.5). If a
    constraint is undefined for every mixture (a ratio with denominator 0), the last iterate is
    returned.
    """
    from ratecli.solvers.hull.best import optimize_over_hull
    from ratecli.solvers.hull.columns import RatePoints
    from ratecli.solvers.hull.relaxation import Relaxation

    columns = RatePoints.classifiers(rates)
    found = optimize_over_hull(Relaxation(program, columns), SHRINK_GAP)
    if found is not None:
        return ShrunkMixture(found.weights, 0.0)
    nearest = optimize_over_hull(Relaxation(program, columns, elastic=True), SHRINK_GAP)
    if nearest is None:
        return _last_iterate(rates.shape[1])
    allowed = max(nearest.value, 0.0) + SHRINK_SLACK
    found = optimize_over_hull(Relaxation(program.loosened(allowed), columns), SHRINK_GAP)
    return ShrunkMixture((found or nearest).weights, allowed)


def shrink_by_metrics(objectives: Array, violations: Array) -> ShrunkMixture:
    """Return the best mixture when goals are averaged over its members: the published program.

    Objectives are (T,), violations (J, T). For a ratio, the mixture may have another value than the
    mean over its members (vectors 9.6 and 9.10). Iterates with an undefined metric (a ratio with
    denominator 0) are skipped; if all are undefined, the last one is returned.
    """
    from ratecli.solvers.hull.forms import LinearTerm, ProgramForm, RateProgram

    metrics = np.vstack([objectives[None], violations])
    known = np.isfinite(metrics).all(axis=0)
    if not known.all():
        if not known.any():
            return _last_iterate(len(objectives))
        found = shrink_by_metrics(objectives[known], violations[:, known])
        chances = np.zeros(len(objectives))
        chances[known] = found.chances
        return ShrunkMixture(chances, found.allowed)
    count = len(metrics)
    unit = [ProgramForm(LinearTerm(row, 0.0), np.zeros(0)) for row in np.eye(count)]
    program = RateProgram(unit[0], tuple(unit[1:]), (), ("",) * (count - 1), {})
    return shrink_mixture(program, metrics)


def _last_iterate(count: int) -> ShrunkMixture:
    """Return the last of `count` iterates alone, with an infinite (unknown) violation."""
    return ShrunkMixture(np.eye(count)[-1], np.inf)


LearningRate = Annotated[float, Gt(0)]
TunedOption = Literal["learning_rate", "multiplier_rate"]

DESCENT_DEFAULTS = {"steps": 5000, "every": 10}
RESPONSE_DEFAULTS = {"steps": 200, "every": 1}
"""With a linear oracle and the default rates, 200 steps leave the mixture .0001 (KL) and .008 (F1)
above the best on Adult, and .000 and .004 on COMPAS; 400 steps are hardly better.
"""


@dataclass(frozen=True)
class ThreePlayer(Solver):
    """Convex and ratio goals as a game of three players (Narasimhan, Cotter, Gupta 2019).

    A linear classifier descends on hinge losses, slack variables stand for the rates in non-affine
    terms and play best responses (for ratios they descend), and multipliers ascend on the true
    rates. The other rows of the paper's Table 2, and two relatives, are settings:

        Algorithm 1   {oracle: linear, steps: 50, every: 1}
        Algorithm 2   {}  where goals are convex
        Algorithm 3   {}  where goals are ratios, with signs and slacks corrected
        Frank-Wolfe   {oracle: linear, multipliers: leader, steps: 50, every: 1}
        SPADE         {rates: surrogate}
        NEMSIS        {rates: surrogate, multipliers: leader}
        swap regret   {multipliers: swap_regret}
        COCO          {oracle: {plugin: {groups: true}}, multipliers: leader, multiplier_rate: 3,
                       steps: 200, every: 2}, which is `coco`

    `optimizer: sgd` takes the steps of the paper's theory. The non-affine part of a goal must be
    monotone in each of its rates.

    Attributes
    ----------
    steps
        Number of steps, each over all rows or a `batch`. Default: 5000, or 200 with an `oracle`.
    every
        Keep one candidate every so many steps and measure it on all rows. Default: 10, or 1 with an
        `oracle`.
    batch
        Approximate number of rows sampled for each step when the classifier descends, stratified by
        group and label. All players then see the rates on the batch. Streamed rows are sampled from
        a pool of at least 2^15 rows in memory that is replaced regularly. Without `batch`, each
        step uses all rows (for streamed data, one pass).
    oracle
        Cost-sensitive learner that best-responds instead of descending: `linear`, `regression`,
        `plugin`, or a classifier of scikit-learn, as for `mixture`. It is called once per step and
        setting. With `{plugin: {groups: true}}`, the classifier uses the groups that the goals
        name, so they must be known at prediction time.
    learning_rate
        Step size of the classifier and the slacks.
    multiplier_rate
        Step size of the multipliers.
    tune
        Values to try for `learning_rate` and `multiplier_rate`; all combinations are trained at
        once. Among those whose stochastic classifier satisfies the constraints on the training set
        (among all if none does), the one with the smallest worse rank by objective or violation on
        the validation set is chosen.
    optimizer
        `adam` or `sgd`, for the classifier and the multipliers.
    multipliers
        `ascent`: gradient ascent. `leader`: multipliers of slacks are the slopes of the goals at
        the mean of all rates so far. `swap_regret`: multipliers are the stationary distribution of
        a matrix that grows with the violations, and iterates are weighted by the objective's
        multiplier (Cotter, Jiang, Sridharan 2019).
    rates
        Rates that the multipliers see: `true` rates or their hinge `surrogate`.
    radius
        Upper bound on the sum of the multipliers.
    shrink
        How the stochastic classifier is made from the candidates: the best mixture by its own
        `rates`, or by the `metrics` of its members averaged, as published (which differs for
        ratios).
    hashed
        Add a variant `hashed`, which picks a member of the mixture by a hash of the row.
    """

    steps: Annotated[int, Ge(1)] | None = None
    every: Annotated[int, Ge(1)] | None = None
    batch: Annotated[int, Ge(1)] | None = None
    oracle: OracleOption | None = None
    learning_rate: LearningRate = 0.1
    multiplier_rate: LearningRate = 0.1
    tune: Mapping[TunedOption, Annotated[tuple[LearningRate, ...], MinLen(1)]] | None = None
    optimizer: Literal["adam", "sgd"] = "adam"
    multipliers: Literal["ascent", "leader", "swap_regret"] = "ascent"
    rates: Literal["true", "surrogate"] = "true"
    radius: LearningRate | None = None
    shrink: Literal["rates", "metrics"] = "rates"
    hashed: bool = False

    version: ClassVar[int] = 4
    one_sided: ClassVar[bool] = True
    streams: ClassVar[Mapping[str, Any] | None] = {"oracle": None}
    objectives: ClassVar[frozenset[str]] = PROGRAM_SHAPES
    constraints: ClassVar[frozenset[str]] = PROGRAM_SHAPES

    def __post_init__(self) -> None:
        for name, value in (DESCENT_DEFAULTS if self.oracle is None else RESPONSE_DEFAULTS).items():
            if getattr(self, name) is None:  # record the resolved values, not None
                object.__setattr__(self, name, value)
        if self.oracle is not None and self.rates == "surrogate":
            raise ValueError(
                "'rates: surrogate' is of a classifier that descends, an 'oracle' has true ones"
            )
        if self.oracle is not None and self.batch is not None:
            raise ValueError("'batch' is of a classifier that descends, an 'oracle' sees all rows")

    @property
    def sees_slices(self) -> bool:
        return self.oracle is not None and oracle_uses_groups(self.oracle)

    @property
    def chooses_by(self) -> str:
        return "tune" if any(len(values) > 1 for values in (self.tune or {}).values()) else ""

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli.rates.matrix import RowKinds
        from ratecli.solvers.hull.best import MAX_EXCESS
        from ratecli.solvers.hull.forms import RateProgram

        grid = self._grid(problem)
        program, kinds = RateProgram.of(problem), RowKinds.by(problem.rates)
        game = self._game(program, kinds, problem, grid, rng)
        assert self.steps is not None
        assert self.every is not None
        begun = time.perf_counter()
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # divergence is checked below
                played = game.play(self.steps, self.every)
        except FloatingPointError as error:
            return Solution({}, "diverged", str(error))
        pace = (time.perf_counter() - begun) / (self.steps + 1)
        progress(f"{self.steps} steps of {len(grid)} settings")
        lanes = [lane for lane in range(len(grid)) if game.player.finite(played.answers[-1], lane)]
        if not lanes:
            rates = "learning_rate or multiplier_rate"
            return Solution({}, "diverged", f"the weights grew beyond all numbers: lower {rates}")
        found = [_GameSetting(self, program, game, played, lane, pace) for lane in lanes]
        kept = [lane for lane in found if not lane.shrunk.allowed] or found
        chosen = kept[0] if problem.validation is None else _best_setting(kept, problem.validation)
        salt = int(rng.integers(2**31)) if self.hashed else None
        reason = _format_setting(grid[chosen.lane]) if len(grid) > 1 else ""
        variants, status = chosen.variants(salt), "solved"
        if problem.violation(chosen.stochastic) > MAX_EXCESS:
            status = "iteration_limit"
            missed = f"after {self.steps} steps no choice among classifiers meets all constraints"
            reason = f"{reason}; {missed}" if reason else missed
        return Solution(variants, status, reason, chosen.multipliers(), tuple(chosen.trace()))

    def _grid(self, problem: Problem) -> list[dict[str, float]]:
        """Return all settings; raise E410 if there are several and no validation rows."""
        rates = {"learning_rate": self.learning_rate, "multiplier_rate": self.multiplier_rate}
        tune = {str(name): each for name, each in (self.tune or {}).items()}
        values = [tune.get(name, (value,)) for name, value in rates.items()]
        grid = [dict(zip(rates, each, strict=True)) for each in itertools.product(*values)]
        if len(grid) > 1 and problem.validation is None:
            hint = "say under the data set: split: {validation: 0.2}"
            raise FaultError(
                Diagnostic("E410", "`tune` chooses on validation rows, and there are none", hint)
            )
        return grid

    def _game(
        self,
        program: RateProgram,
        kinds: RowKinds,
        problem: Problem,
        grid: list[dict[str, float]],
        rng: np.random.Generator,
    ) -> ThreePlayerGame:
        from ratecli.solvers.numerics.steps import Stepper
        from ratecli.solvers.players.game import (
            SwapRegret,
            ThreePlayerGame,
            initial_prices,
            initial_slacks,
        )
        from ratecli.solvers.players.lagrangian import make_lagrangian

        fixed = np.logical_not(kinds.patterns.any(axis=1))
        form = make_lagrangian(program, np.nan_to_num(problem.rates.c), fixed)
        learning, raising = (np.array([each[name] for each in grid]) for name in grid[0])
        player = self._player(form, kinds, problem, learning, rng)
        slacks = initial_slacks(form, len(grid))
        prices = initial_prices(form, slacks)
        multipliers = self._multipliers(form, raising, prices)
        if isinstance(multipliers, SwapRegret):
            prices = np.full_like(prices, 1 / len(prices))
        surrogate = self.rates == "surrogate"
        return ThreePlayerGame(
            form, player, multipliers, Stepper("sgd", learning), prices, slacks, surrogate
        )

    def _player(
        self,
        form: ProgramLagrangian,
        kinds: RowKinds,
        problem: Problem,
        learning: Array,
        rng: np.random.Generator,
    ) -> ClassifierPlayer:
        """Return the classifier player: by an oracle, or descending on streamed rows or rows in
        memory.
        """
        from ratecli.solvers.players.descent import BestResponsePlayer, DescentPlayer
        from ratecli.solvers.players.rows import BatchSampler, LaneRows
        from ratecli.solvers.streamed.player import make_streamed_rows

        if self.oracle is not None:
            ground = make_oracle_rows(self.oracle, problem, kinds)
            return BestResponsePlayer(
                form, ground, make_oracle(self.oracle, ground, problem.l2, rng)
            )
        if problem.stream is not None:
            streamed, drawn = make_streamed_rows(problem.stream, kinds, self.batch, rng)
            return DescentPlayer.start(form, streamed, self.optimizer, learning, drawn)
        rows = LaneRows.of(problem.X, kinds)
        batch = None if self.batch is None else BatchSampler.of(rows, self.batch, rng)
        return DescentPlayer.start(form, rows, self.optimizer, learning, batch)

    def _multipliers(
        self, form: ProgramLagrangian, raising: Array, prices: Array
    ) -> MultiplierPlayer:
        from ratecli.solvers.numerics.steps import Stepper
        from ratecli.solvers.players.game import FollowTheLeader, GradientAscent, SwapRegret

        if self.multipliers == "swap_regret":
            return SwapRegret.even(len(prices), raising)
        ascent = GradientAscent(Stepper(self.optimizer, raising), self.radius)
        return (
            FollowTheLeader(form, ascent, np.zeros((1, 1)))
            if self.multipliers == "leader"
            else ascent
        )


@dataclass(frozen=True)
class _GameSetting:
    """The iterates of one setting (lane); one step of all settings takes `pace` seconds."""

    solver: ThreePlayer
    program: RateProgram
    game: ThreePlayerGame
    played: GameIterates
    lane: int
    pace: float

    @property
    def rates(self) -> Array:
        """Rates (K, T) of the iterates."""
        return np.stack([each[:, self.lane] for each in self.played.rates], axis=1)

    @property
    def objectives(self) -> Array:
        found = self.program.value(self.program.objective, self.rates)
        return np.nan_to_num(found, nan=np.inf)

    @property
    def violations(self) -> Array:
        return self.program.missed(self.rates)

    @cached_property
    def shrunk(self) -> ShrunkMixture:
        if self.solver.shrink == "rates":
            return shrink_mixture(self.program, self.rates)
        each = [self.program.value(form, self.rates) for form in self.program.constraints]
        return shrink_by_metrics(self.objectives, np.array(each).reshape(-1, len(self.objectives)))

    def classifier(self, t: int) -> Classifier:
        return self.game.player.classifier(self.played.answers[t], self.lane)

    def mixed(self, chances: Array) -> MixtureClassifier:
        from ratecli.models.mixture import MixtureClassifier

        kept = np.flatnonzero(chances > MIN_ITERATE_CHANCE)
        return MixtureClassifier(
            tuple(self.classifier(int(t)) for t in kept), chances[kept] / chances[kept].sum()
        )

    @cached_property
    def stochastic(self) -> MixtureClassifier:
        return self.mixed(self.shrunk.chances)

    def variants(self, salt: int | None) -> dict[str, Classifier]:
        """Return the classifiers of the solution by name; `salt` is None without `hashed`."""
        from ratecli.models.hashed import HashedMixture
        from ratecli.models.mixture import MajorityVote

        main = self.stochastic
        counted = np.array([each[0, self.lane] for each in self.played.prices])
        found: dict[str, Classifier] = {
            "stochastic": main,
            "deterministic": self.classifier(best_iterate(self.objectives, self.violations)),
            "uniform": self.mixed(counted / counted.sum()),
            "last": self.classifier(-1),
            "voted": MajorityVote(main.members, main.chances),
        }
        return (
            found
            if salt is None
            else found | {"hashed": HashedMixture(main.members, main.chances, salt)}
        )

    def multipliers(self) -> dict[str, float]:
        """Return the multipliers of the last step by constraint."""
        count = len(self.program.owners)
        return self.program.by_goal(self.played.prices[-1][1 : 1 + count, self.lane])

    def trace(self) -> list[dict[str, Any]]:
        """Return the trace of the single iterates, not of their mixture."""
        rows = zip(self.played.steps, self.objectives, self.violations, strict=True)
        return [
            {
                "iteration": step,
                "objective": float(value),
                "violation": float(broken),
                "seconds": (step + 1) * self.pace,
            }
            for step, value, broken in rows
        ]


MIN_ITERATE_CHANCE = 1e-9
"""Smaller probabilities are rounding errors of 0."""


def _best_setting(found: list[_GameSetting], validation: Problem) -> _GameSetting:
    """Return the setting whose stochastic classifier ranks best on validation rows.

    See protocols 3.5.
    """
    from ratecli.solvers.hull.forms import RateProgram

    program = RateProgram.of(validation)
    decisions = [validation.decisions(lane.stochastic) for lane in found]
    rates = np.stack([validation.rates.rates(each) for each in decisions], axis=1)
    objectives = np.nan_to_num(program.value(program.objective, rates), nan=np.inf)
    return found[best_iterate(objectives, program.missed(rates))]


def _format_setting(setting: Mapping[str, float]) -> str:
    return "chosen on validation rows: " + ", ".join(
        f"{key} {value:g}" for key, value in setting.items()
    )
