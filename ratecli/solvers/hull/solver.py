"""The `mixture` algorithm: the best mixture of an oracle's classifiers, by column generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge, Gt

from ratecli.rates.analysis import PROGRAM_SHAPES
from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.oracles.choice import LINEAR_ORACLE, OracleOption, oracle_uses_groups

if TYPE_CHECKING:  # numpy is slow to import
    import numpy as np

    from ratecli.solvers.problem import Problem


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
            raise ValueError("'sweeps' requires the linear oracle: leave it out with another one")

    @property
    def sees_slices(self) -> bool:
        return oracle_uses_groups(self.oracle)

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli.solvers.hull.mixture import find_mixture

        return find_mixture(self, problem, rng, progress)
