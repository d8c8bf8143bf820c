"""fairlearn's reductions: `ExponentiatedGradient` and `GridSearch`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Progress, RandomizableSolver, Solution, Solver, Variant
from ratecli.solvers.oracles.choice import LINEAR_MODEL, ReducedModelOption
from ratecli.solvers.problem import Problem
from ratecli_peers.rules import EQUALIZED_ODDS, PARITIES, Kind, KnownRules


@dataclass(frozen=True)
class ExponentiatedGradient(RandomizableSolver):
    """fairlearn's `ExponentiatedGradient` (Agarwal et al. 2018, algorithm 1).

    It returns a mixture, which is the model with `randomize`. By default, the model is the best
    classifier on lines between members of the mixture, with the best threshold, as in `mixture`.

    Multipliers grow exponentially with the violation of their constraint. The learner is fitted to
    the signs of the costs and weighted by their size. After each step a linear program finds the
    best mixture of the classifiers so far. Any affine constraint is enforced exactly as written,
    through ratecli's own moments; this includes demographic parity, equal opportunity, equalized
    odds and error rate parity, as differences or as ratios. A constraint may be violated by up to
    twice the remaining gap (`not_met`).

    Attributes
    ----------
    eps
        Inverse of the largest sum of multipliers.
    iterations
        Maximum number of steps.
    model
        The learner: `linear`, which is LIBLINEAR's logistic regression with a regularized bias, or
        a classifier as in `unconstrained`: `{lightgbm: {num_leaves: 15}}`.
    gap
        Duality gap at which the algorithm stops. The default is fairlearn's: half a standard error
        of the first classifier's error.
    """

    eps: Annotated[float, Gt(0)] = 0.01
    iterations: Annotated[int, Ge(1)] = 50
    model: ReducedModelOption = LINEAR_MODEL
    gap: Annotated[float, Gt(0)] | None = None

    version: ClassVar[int] = 5
    needs: ClassVar[tuple[str, ...]] = ("fairlearn",)
    offers: ClassVar[Collection[Variant]] = ("deterministic", "stochastic", "voted", "hashed")
    objectives: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli_peers.reductions import solve_exponentiated_gradient

        return solve_exponentiated_gradient(self, problem, rng, progress)


@dataclass(frozen=True)
class GridSearch(KnownRules, Solver):
    """fairlearn's `GridSearch` (Agarwal et al. 2018, section 3.4): one classifier of a grid.

    The learner is fitted for each point of a grid of multipliers. fairlearn's moments compare each
    group with all rows. A limit d on the difference of two groups therefore limits the difference
    to all rows. A ratio to all rows does not imply the same ratio between groups. The grid does not
    depend on the limit. Of the classifiers, `selection_rule` selects one; by default the
    one with the smallest error that satisfies the constraint as it is written. Ten of them are
    often too few for a limit: fairlearn's example takes `grid_size: 31`. Every labelled row must be
    in a group. Without constraints, the learner is fitted to the labels.

    Attributes
    ----------
    grid_size
        Number of multipliers.
    grid_limit
        Largest multiplier.
    model
        The learner, as in `exponentiated_gradient`.
    selection_rule
        `rule`: the smallest error among classifiers that satisfy the constraint, as fairlearn's
        examples choose among `predictors_` by hand. `tradeoff_optimization`, its own default: the
        smallest weighted sum of the error and the violation.
    constraint_weight
        Weight of the violation in that sum, 0 to 1; the error has the rest.
    """

    grid_size: Annotated[int, Ge(2)] = 10
    grid_limit: Annotated[float, Gt(0)] = 2.0
    model: ReducedModelOption = LINEAR_MODEL
    selection_rule: Literal["rule", "tradeoff_optimization"] = "rule"
    constraint_weight: Annotated[float, Ge(0), Le(1)] = 0.5

    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ("fairlearn",)
    accepts: ClassVar[tuple[tuple[Kind, str], ...]] = (
        *(("difference", rate) for rate in (*PARITIES, EQUALIZED_ODDS)),
        *(("ratio", rate) for rate in PARITIES),
    )

    @property
    def idle(self) -> Mapping[str, str]:
        if self.selection_rule == "rule":
            return {"constraint_weight": "selection_rule is 'rule'"}
        return {}

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:  # noqa: ARG002
        from ratecli_peers.reductions import solve_grid_search

        return solve_grid_search(self, problem, progress)
