"""The `mixture` algorithm: the best mixture of an oracle's classifiers, by column generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from ratecli.rates import expression as ex
from ratecli.rates.analysis import PROGRAM_SHAPES, Shape, constraint_goal, objective_goal
from ratecli.rates.resolve import violation_expression
from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.oracles.choice import (
    LINEAR_ORACLE,
    OracleOption,
    make_oracle,
    make_oracle_rows,
    oracle_uses_groups,
)

if TYPE_CHECKING:
    from ratecli.models.base import Array, Classifier
    from ratecli.solvers.mixture.search import ColumnGeneration
    from ratecli.solvers.problem import Problem

CONVEX_SHAPES = frozenset({Shape.AFFINE, Shape.CONVEX})


def max_slack_problem(problem: Problem, objective: float) -> Problem | None:
    """Return the problem of maximizing the least slack at an objective of at most `objective`.

    None if there are no constraints or the problem is not convex.
    """
    goals = (problem.objective, *problem.constraints)
    pieces = [piece for goal in problem.constraints for piece in goal.pieces]
    if not pieces or not all(goal.shape in CONVEX_SHAPES for goal in goals):
        return None
    bound = ex.subtract(problem.objective.expression, ex.Constant(objective))
    limit = constraint_goal("objective", problem.objective.text, (bound,), bound)
    aim = objective_goal("the worst violation", violation_expression(tuple(pieces)))
    return replace(problem, objective=aim, constraints=(*problem.constraints, limit))


@dataclass(frozen=True)
class Mixture(Solver):
    """The best stochastic classifier over an oracle's answers, fully corrective.

    The rates of random choices among classifiers form the hull of the classifiers' rates, and
    optimizing goals over a hull is a small program. The algorithm alternates between the best
    mixture of the known classifiers and an oracle that returns a classifier that is cheap at the
    prices which this optimum puts on the rates, until the answer would improve the objective by no
    more than `gap`. Only a few classifiers have positive chances in the end.

    If the optimum is not unique because the constraints of a convex problem cost nothing, the
    mixture with the most slack is chosen, because constraints hold less well on new data.

    Attributes
    ----------
    gap
        The search ends when an answer of the oracle promises to improve the objective by no more
        than this.
    calls
        Maximum number of rounds, each with a mixture and the oracle's answer to it.
    oracle
        Finds a cheap classifier: `linear`; `plugin`, which fits probabilities once and weighs them
        with the prices; or the name of any scikit-learn classifier whose fit takes sample weights,
        such as `HistGradientBoostingClassifier`. Options follow the name: `{DecisionTreeClassifier:
        {max_depth: 3}}`, `{plugin: {probabilities: GaussianNB}}` (default: LogisticRegression),
        `{plugin: {groups: true}}` (the groups named in goals are known when a row is classified,
        and each has a threshold on the probability of a positive label).
    sweeps
        Number of passes over all features with which the linear oracle ends each answer. A pass
        sets every weight to the value of least 0-1 cost. This lowers the training objective and
        raises the test error: on a9a, at a ratio of 1.25, from .1590 to .1564 and from .1642 to
        .1671.
    hashed
        Whether to add the variant `hashed`, which selects a member by a hash of the row.
    """

    gap: Annotated[float, Gt(0)] = 1e-4
    calls: Annotated[int, Ge(1)] = 60
    oracle: OracleOption = "linear"
    sweeps: Annotated[int, Ge(0)] = 0
    hashed: bool = False

    version: ClassVar[int] = 3
    objectives: ClassVar[frozenset[str]] = PROGRAM_SHAPES
    constraints: ClassVar[frozenset[str]] = PROGRAM_SHAPES

    def __post_init__(self) -> None:
        if self.sweeps and self.oracle != LINEAR_ORACLE:
            raise ValueError("'sweeps' are of the linear oracle: leave them out with another one")

    @property
    def sees_slices(self) -> bool:
        return oracle_uses_groups(self.oracle)

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli.rates.matrix import RowKinds
        from ratecli.solvers.hull.forms import RateProgram
        from ratecli.solvers.mixture.search import ClassifierPool, ColumnGeneration
        from ratecli.solvers.problem import ERROR_RATE

        ground = make_oracle_rows(self.oracle, problem, RowKinds.by(problem.rates))
        found = make_oracle(self.oracle, ground, problem.l2, rng, sweeps=self.sweeps)
        search = ColumnGeneration(
            RateProgram.of(problem), ClassifierPool(ground), found, self.gap, self.calls
        )
        search.start(np.array([float(leaf == ERROR_RATE) for leaf in problem.rates.leaves]))
        while search.goes_on():
            progress(search.step())
        multipliers = search.program.by_goal(search.found.multipliers)
        search.turn_to(max_slack_problem(problem, search.least + self.gap))
        while search.goes_on():
            progress(search.step())
        salt = int(rng.integers(2**31)) if self.hashed else None
        answer = _SearchOutcome(search)
        return Solution(
            answer.variants(salt),
            *answer.ending(),
            multipliers,
            tuple(search.trace),
        )


@dataclass(frozen=True)
class _SearchOutcome:
    """Variants and status of a finished search."""

    search: ColumnGeneration

    def variants(self, salt: int | None) -> dict[str, Classifier]:
        from ratecli.models.hashed import HashedMixture
        from ratecli.models.mixture import MajorityVote
        from ratecli.models.mixture import MixtureClassifier as Stochastic

        members, chances = self.search.pool.some(self.search.found.weights)
        found: dict[str, Classifier] = {
            "stochastic": Stochastic(members, chances),
            "deterministic": self._single(members),
            "voted": MajorityVote(members, chances),
        }
        return found if salt is None else found | {"hashed": HashedMixture(members, chances, salt)}

    def _single(self, members: Sequence[Classifier]) -> Classifier:
        """Return the best single classifier: the feasible one of least objective, else the nearest.

        Candidates are all classifiers found, and those with positive chances at every threshold.
        """
        from ratecli.solvers.oracles.base import with_threshold

        key, k = self._ranked(self.search.pool.rates)
        options = [(key, self.search.pool.members[k])]
        ground = self.search.pool.ground
        for member in members:
            scores = ground.ranks(member)
            if scores is not None:
                cuts, rates = ground.cut_rates(scores)
                key, k = self._ranked(rates)
                options.append((key, with_threshold(member, float(cuts[k]))))
        return min(options, key=lambda option: option[0])[1]

    def _ranked(self, rates: Array) -> tuple[tuple[float, float], int]:
        """Return violation and objective of the best column, and its index."""
        from ratecli.solvers.hull.best import MAX_EXCESS

        missed = self.search.program.missed(rates, MAX_EXCESS)
        values = np.nan_to_num(
            self.search.program.value(self.search.program.objective, rates), nan=np.inf
        )
        k = int(np.lexsort((values, missed))[0])
        return (float(missed[k]), float(values[k])), k

    def ending(self) -> tuple[str, str]:
        """Return status and reason."""
        from ratecli.solvers.feasibility import unmet_status
        from ratecli.solvers.hull.forms import UNDEFINED_RATIO_REASON

        last = self.search.trace[-1]
        if self.search.feasible and self.search.program.missed(self.search.found.rates) == np.inf:
            return "iteration_limit", UNDEFINED_RATIO_REASON
        if self.search.feasible and self.search.ended:
            return "solved", ""
        if self.search.feasible:
            promised = f"an answer promised {last['gap']:.2g} of the objective"
            return "iteration_limit", f"after {len(self.search.trace)} rounds {promised}"
        reason = (
            f"every mixture of {len(self.search.pool.members)} classifiers misses some "
            "constraint by "
        )
        reason += f"{last['violation']:.3g} or more"
        return unmet_status(self.search.program, self.search.pool.ground.kinds, reason)
