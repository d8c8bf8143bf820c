"""Training of `three_player`: the game of all settings, and the choice among its iterates."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ratecli.rates.analysis import split_goal
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.base import Progress, Solution
from ratecli.solvers.gradient_steps import Stepper
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.oracles.plugin import make_oracle, make_oracle_rows
from ratecli.solvers.players.game import (
    BestResponsePlayer,
    ClassifierPlayer,
    DescentPlayer,
    GradientAscent,
    MultiplierPlayer,
    SwapRegret,
    ThreePlayerGame,
)
from ratecli.solvers.players.lagrangian import ProgramLagrangian
from ratecli.solvers.players.mixtures import SettingResult, best_solution
from ratecli.solvers.players.rows import LaneRows
from ratecli.solvers.problem import Problem

if TYPE_CHECKING:
    from ratecli.solvers.players.options import ThreePlayer

MAX_PAIRS = 10_000
"""Largest number of pairs of rates that are compared, as of 100 groups."""
Settings = Sequence[Mapping[str, float]]
"""Learning rate and multiplier rate of each lane of a game, in this order."""


def solve(
    solver: ThreePlayer, problem: Problem, rng: np.random.Generator, progress: Progress
) -> Solution:
    """Return the solution of one problem, with a linear classifier or boosted trees."""
    if solver.boosted:
        from ratecli.solvers.players.boosting import train_boosted  # imports LightGBM

        return train_boosted(solver, problem, rng, progress)
    return train(solver, [problem], rng, progress)[0]()


def train_together(
    solver: ThreePlayer, problems: Sequence[Problem], rng: np.random.Generator, progress: Progress
) -> list[Callable[[], Solution] | None]:
    """Play the games of the first problem and of those whose goals differ in numbers alone.

    Return None for other problems.
    """
    structures = [form.structure for form in _lagrangians(solver, problems)[1]]
    alike = [structure == structures[0] for structure in structures]
    solutions = iter(train(solver, [*itertools.compress(problems, alike)], rng, progress))
    return [next(solutions) if each else None for each in alike]


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
    form = ProgramLagrangian.in_lanes([form for form, _ in lanes]) if len(forms) > 1 else forms[0]
    with np.errstate(over="ignore"):  # of learning rates in single precision
        game = make_game(solver, problems[0], form, [setting for _, setting in lanes], rng)
    assert solver.steps is not None
    assert solver.every is not None
    begun = time.perf_counter()
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is checked below
            played = game.play(solver.steps, solver.every)
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
        return best_solution(solver, problem, results, pace, deepcopy(rng))

    own = np.split(np.arange(used), len(problems))
    return [
        partial(choose, problem, program, part.tolist())
        for problem, program, part in zip(problems, programs, own, strict=True)
    ]


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
        rows = LaneRows(problem.X if problem.stream is None else problem.stream, kinds)
        batch = None if solver.batch is None else rows.batches(solver.batch, rng)
        stepper, surrogate = Stepper(solver.optimizer, learning), solver.rates == "surrogate"
        player = DescentPlayer(form, rows, stepper, len(grid), batch, surrogate=surrogate)
    ascent = GradientAscent(Stepper(solver.optimizer, raising), solver.radius)
    multipliers: MultiplierPlayer = ascent
    if solver.multipliers == "swap_regret":
        multipliers = SwapRegret(1 + form.constraints + len(form.signs), raising)
    leader = solver.multipliers == "leader"
    return ThreePlayerGame(form, player, multipliers, learning, leader=leader)
