"""`three_player` with boosted trees: one booster that grows while the multipliers move."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Classifier
from ratecli.models.composed import ARGMAX_COSTS, CostSensitiveClassifier
from ratecli.models.layout import ColumnLayout
from ratecli.models.linear import Threshold
from ratecli.models.output_cache import take_rows
from ratecli.models.tree_formats.lightgbm import read_lightgbm
from ratecli.models.trees import LEAF
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.base import JudgedRows, Progress, Solution
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.oracles.choice import named_options
from ratecli.solvers.oracles.estimators import lightgbm_columns, lightgbm_sums, make_estimator
from ratecli.solvers.oracles.unseen import hold_out
from ratecli.solvers.players.game import ClassifierPlayer, Iterate
from ratecli.solvers.players.lagrangian import ProgramLagrangian
from ratecli.solvers.players.mixtures import SettingResult, best_solution
from ratecli.solvers.problem import Problem

if TYPE_CHECKING:
    from ratecli.solvers.players.options import ThreePlayer

WARM_SHARE = 0.1
"""Share of the trees that are grown before the multipliers of constraints move."""
PROPORTIONAL, INTEGRAL = 8.0, 2.0
"""Row weight per violation, and per sum of the violations over trees (see `RowWeightAscent`).

Chosen with `WARM_SHARE` on splits of Adult, Bank and COMPAS; half or twice as much does as well.
"""
MAX_ROW_WEIGHT = 3.0
"""Largest weight that a constraint gives to a row: otherwise the rows of small groups, whose rates
few rows change, would get weights that hide all their differences.
"""
MAX_START = 5.0
"""Largest log-odds before the first tree."""
MIN_CURVATURE = 1e-16
TINY_EFFECT = 1e-12
"""Lower limit of the effect of rows on a constraint, which is a divisor."""
NOT_OF_BOOSTERS = ("class_weight", "importance_type", "n_estimators", "objective")
"""Parameters of `LGBMClassifier` that its booster does not have, or that the game decides."""
GAME_PARAMETERS = {"objective": "none", "metric": "none", "feature_pre_filter": False}
"""Parameters of every booster.

By default, LightGBM drops columns that it cannot split with so few rows, and fails if none is left.
"""
ALL_NEGATIVE, ALL_POSITIVE = -2, -1
"""Answers of constant decisions."""


@dataclass(frozen=True)
class ColumnRows:
    """Rows as LightGBM takes them, and the rates over them.

    Attributes
    ----------
    rows
        (m,) their indices among the rows of the problem.
    columns
        (m, C) numbers and categories, see `ColumnLayout.columns`.
    """

    layout: ColumnLayout
    rows: NDArray[np.intp]
    columns: Array | sparse.csr_matrix
    kinds: RowKinds

    @classmethod
    def of(cls, problem: Problem, rows: NDArray[np.intp]) -> ColumnRows:
        """Return some rows of a problem."""
        layout, kinds = problem.layout, RowKinds.by(problem.rates.on(rows))
        return cls(layout, rows, lightgbm_columns(take_rows(problem.X, rows), layout), kinds)

    def rates(self, decisions: Array) -> Array:
        """Return the rates (K, 1) of decisions (m,)."""
        return self.kinds.rates_of(decisions[:, None])

    def dataset(self, start: float, **more: Any) -> Any:
        """Return LightGBM's data set; `start` is the score before the first tree."""
        import lightgbm  # an optional package

        count = len(self.rows)
        return lightgbm.Dataset(
            self.columns,
            np.zeros(count),
            init_score=np.full(count, start),
            categorical_feature=self.layout.categories,
            **more,
        )


class BoostingPlayer(ClassifierPlayer):
    """Adds one tree per step, fitted to the derivatives of a weighted log loss.

    A row costs `up * log(1 + exp(score)) + down * log(1 + exp(-score))`, where `up` and `down` are
    the prices of a positive and of a negative decision: smooth counterparts of the hinges of
    `DescentPlayer`. An answer is a number of trees, `ALL_NEGATIVE` or `ALL_POSITIVE`.
    """

    def __init__(
        self,
        form: ProgramLagrangian,
        rows: tuple[ColumnRows, ColumnRows],
        effects: Array,
        parameters: Mapping[str, Any],
        prices: Array,
    ) -> None:
        """Start from the best constant score at `prices` (1 + J + S, 1).

        Trees are fitted to the first `rows`; rates are those of the second, which may be the same.
        `effects` are those of `RowWeightAscent`.
        """
        import lightgbm  # an optional package

        self.form, self.effects, (self.trained, self.judged) = form, effects, rows
        up, down = self._row_prices(prices)
        odds = max(down.sum(), MIN_CURVATURE) / max(up.sum(), MIN_CURVATURE)
        self.start = float(np.clip(np.log(odds), -MAX_START, MAX_START))
        own = dict(parameters) | GAME_PARAMETERS
        dataset = self.trained.dataset(self.start, params=own)
        dataset.construct()
        if max(map(dataset.feature_num_bin, range(dataset.num_feature()))) < 2:
            raise ValueError("no column has two values")
        self.booster = lightgbm.Booster(own, dataset)
        if self.judged is not self.trained:
            judged = self.judged.dataset(self.start, reference=dataset, params=own)
            self.booster.add_valid(judged, "judged")

    def move(self, prices: Array) -> tuple[int, Array]:
        """Grow a tree; return the number of trees and the rates (K, 1) with it."""
        up, down = self._row_prices(prices)

        def slopes(scores: Array, _: Any) -> tuple[Array, Array]:
            share = expit(scores)
            curvature = (up + down) * share * (1 - share)
            return (up + down) * share - down, np.maximum(curvature, MIN_CURVATURE)

        self.booster.update(fobj=slopes)
        decisions = (self._scores() > 0).astype(float)
        return self.booster.current_iteration(), self.judged.rates(decisions)

    def _row_prices(self, prices: Array) -> tuple[Array, Array]:
        """Return the prices (m,) of positive and of negative decisions, about 1 for plain error."""
        kinds = self.trained.kinds
        up, down = kinds.totals.sum() * (self.effects @ prices[:, 0])
        positive, negative = (kinds.weight * each[kinds.of] for each in (up, down))
        return kinds.sum_by_row(positive), kinds.sum_by_row(negative)

    def _scores(self) -> Array:
        """Return the scores of the judged rows."""
        found = []

        def keep(scores: Array, _: Any) -> tuple[str, float, bool]:
            found.append(scores)
            return "kept", 0.0, False

        same = self.judged is self.trained
        (self.booster.eval_train if same else self.booster.eval_valid)(feval=keep)
        return np.asarray(found[0])

    def constants(self, prices: Array) -> list[Iterate]:
        """Return both constant decisions as iterates of step 0."""
        count = len(self.judged.rows)
        answers = {ALL_NEGATIVE: np.zeros(count), ALL_POSITIVE: np.ones(count)}
        return [
            Iterate(0, answer, self.judged.rates(decisions), prices)
            for answer, decisions in answers.items()
        ]

    @cached_property
    def complete(self) -> Any:
        """The booster, once the last tree was grown; the first one's leaves have the start, too."""
        booster = self.booster
        first = read_lightgbm(booster.model_to_string(num_iteration=1), self.trained.layout)
        for leaf in range(int((first.column == LEAF).sum())):
            booster.set_leaf_output(0, leaf, self.start + booster.get_leaf_output(0, leaf))
        return booster

    def classifier(self, answer: int, lane: int) -> Classifier:  # noqa: ARG002
        if answer in {ALL_NEGATIVE, ALL_POSITIVE}:
            bias = 1.0 if answer == ALL_POSITIVE else -1.0
            return Threshold(np.zeros(self.trained.layout.width), bias)
        text = self.complete.model_to_string(num_iteration=answer)
        trees = read_lightgbm(text, self.trained.layout)
        sums = partial(lightgbm_sums, self.complete, rounds=answer)
        return CostSensitiveClassifier(trees.with_library(sums), ARGMAX_COSTS)


@dataclass
class RowWeightAscent:
    """Multipliers that follow true violations, in units of the weight that a row gets.

    The weight that a constraint gives to a row of its smallest group, relative to the largest
    weight from the objective, is proportional to its violation plus a sum of violations, both
    within bounds: a proportional-integral controller. Multipliers of slacks are the slopes of the
    goals at the present rates.

    Attributes
    ----------
    effects
        (2, Q, 1 + J + S) increase and decrease of each term by a positive decision for each kind.
    least
        Effect of a row on plain error: the objective counts as at least as steep.
    total
        (J,) the sums.
    """

    form: ProgramLagrangian
    effects: Array
    least: float
    total: Array | float = 0.0

    @classmethod
    def of(cls, form: ProgramLagrangian, kinds: RowKinds) -> RowWeightAscent:
        """Return the multipliers for trees that are fitted to rows of these kinds."""
        effects = form.effects(kinds).reshape(2, kinds.count, -1)
        return cls(form, effects, 1 / float(kinds.totals.sum()))

    def next(self, rates: Array, *, moving: bool = True) -> Array:
        """Return multipliers (1 + J + S, 1) at rates (K, 1); 0 for constraints unless `moving`."""
        first, terms = 1 + self.form.constraints, self.form.terms(rates)
        slacks = self.form.boxed(self.form.signs * terms[first:])
        weights = np.zeros(self.form.constraints)
        if moving:
            broken = (terms[1:first] + self.form.values(slacks))[:, 0]
            self.total = np.clip(self.total + INTEGRAL * broken, 0.0, MAX_ROW_WEIGHT)
            weights = np.clip(PROPORTIONAL * broken + self.total, 0.0, MAX_ROW_WEIGHT)
        objective, *steepest = self._steepest(slacks)
        prices = np.ones((first, 1))
        prices[1:, 0] = weights * max(objective, self.least) / np.maximum(steepest, TINY_EFFECT)
        return np.concatenate([prices, self.form.slack_multipliers(prices, slacks)])

    def _steepest(self, slacks: Array) -> Array:
        """Return the largest change (1 + J,) of each goal by the decision on a row of weight 1."""
        first = 1 + self.form.constraints
        units = self.form.slack_multipliers(np.ones((first, 1)), slacks)
        owners = np.zeros((first, len(units)))
        for bundle in self.form.bundles:
            owners[bundle.owners, bundle.slots] = 1.0
        own = self.effects[..., :first] + self.effects[..., first:] @ (owners * units[:, 0]).T
        return np.asarray(own.max(axis=(0, 1)))


def train_boosted(
    solver: ThreePlayer, problem: Problem, rng: np.random.Generator, progress: Progress
) -> Solution:
    """Grow one booster in the game, and return the best mixture of its prefixes and of constants.

    Raises
    ------
    FaultError
        E410 if the held-out rows have none that some rate averages over, E501 if LightGBM cannot be
        trained on the rows.
    """
    from lightgbm.basic import LightGBMError  # an optional package

    begun, program = time.perf_counter(), RateProgram.of(problem)
    try:
        player, played = _play(solver, problem, program, rng)
    except (ValueError, LightGBMError) as error:
        message = f"lightgbm cannot be trained: {' '.join(str(error).split())}"
        raise FaultError(Diagnostic("E501", message)) from error
    seen = player.judged is player.trained
    assert solver.steps is not None
    pace = (time.perf_counter() - begun) / (solver.steps + 1)
    progress(f"{solver.steps} trees")
    result = SettingResult(program, player, played, 0, solver.shrink)
    judged = problem if seen else problem.on(player.judged.rows)
    solution = best_solution(solver, judged, [result], pace, rng)
    if seen:
        return solution
    return replace(solution, judged=JudgedRows(judged, judged.decisions(solution.main)))


def _play(
    solver: ThreePlayer, problem: Problem, program: RateProgram, rng: np.random.Generator
) -> tuple[BoostingPlayer, list[Iterate]]:
    """Return the player after the last tree, and the candidates."""
    assert solver.steps is not None
    assert solver.every is not None
    trained, judged = rows = split_rows(problem, solver.scores)
    form = ProgramLagrangian(program, judged.kinds)
    ascent = RowWeightAscent.of(form, trained.kinds)
    prices = ascent.next(judged.rates(np.full(len(judged.rows), 0.5)), moving=False)
    parameters = booster_parameters(solver.model, rng)
    player = BoostingPlayer(form, rows, ascent.effects, parameters, prices)
    warm, played = int(WARM_SHARE * solver.steps), player.constants(prices)
    for step in range(1, solver.steps + 1):
        answer, rates = player.move(prices)
        if step >= warm and (step % solver.every == 0 or step == solver.steps):
            played.append(Iterate(step, answer, rates, prices))
        prices = ascent.next(rates, moving=step >= warm)
    return player, played


def split_rows(problem: Problem, scores: Any) -> tuple[ColumnRows, ColumnRows]:
    """Return the rows that trees are fitted to, and those by which multipliers move.

    Rows that no rate counts are in neither.
    """
    kinds = RowKinds.by(problem.rates)
    counted = kinds.sum_by_row(kinds.weight) > 0
    if scores == "in_sample":
        rows = ColumnRows.of(problem, np.flatnonzero(counted))
        return rows, rows
    parts = hold_out(problem, scores["held_out"])
    trained, judged = (ColumnRows.of(problem, part[counted[part]]) for part in parts)
    return trained, judged


def booster_parameters(model: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Return the parameters of LightGBM's booster for a checked option `model`."""
    parameters = make_estimator(*named_options(model), rng).get_params()
    return {k: v for k, v in parameters.items() if v is not None and k not in NOT_OF_BOOSTERS}
