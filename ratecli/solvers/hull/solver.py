"""The `mixture` algorithm: the best mixture of classifiers of a model, by column generation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt

from ratecli.rates.analysis import PROGRAM_SHAPES, SEARCHED_SHAPES
from ratecli.solvers.base import RandomizableSolver, Variant
from ratecli.solvers.oracles.choice import (
    DEFAULT_FOLDS,
    LINEAR_ORACLE,
    OracleOption,
    Scores,
    is_ensemble,
    oracle_uses_groups,
)

ROUGH_GAP = 1e-3
"""Gap with which the training is repeated to judge a margin: far below the noise of rows."""


@dataclass(frozen=True)
class Mixture(RandomizableSolver):
    """The best classifier of a model, found through the best mixture of its classifiers.

    The rates of random choices among classifiers form the hull of the classifiers' rates, and
    optimizing goals over a hull is a small program. The algorithm alternates between the best
    mixture of the known classifiers and a fit of the model that returns a classifier that is cheap
    at the prices which this optimum puts on the rates, until that would improve the objective by no
    more than `gap`. Only a few classifiers have positive chances in the end.

    The model is the best single classifier, with the best threshold, on lines between those that
    cost least at these prices: one vector of weights, or of costs of probabilities. Its last row in
    the trace says how far its objective is at most above that of the best mixture
    (`deterministic_gap`). With `randomize`, the model is the mixture. If the
    constraints of a convex problem cost nothing, its optimum is not unique. The mixture with the
    most slack is then chosen, because constraints hold less well on new data.

    Sums and comparisons of ratios, and smooth objectives that are neither convex nor made of
    ratios, such as `-mcc`, have several local optima. Each mixture is then the best of several
    local searches, and the result has no certificate: `gap` in the trace, `first_order_gap` for
    smooth objectives, is by how much small steps towards a new classifier improve it.

    Attributes
    ----------
    gap
        The search ends when a new classifier promises to improve the objective by no more than
        this.
    calls
        Maximum number of rounds, each with a mixture and a classifier that may improve it.
    model
        Finds a cheap classifier: `linear`; `plugin`, which fits probabilities once and weighs them
        with the prices; boosted trees or a forest (`lightgbm`, `xgboost`, `catboost`,
        `HistGradientBoostingClassifier`, `RandomForestClassifier`, ...), whose probabilities of the
        label and of the groups given the label are weighed in the same way; or any other classifier
        of scikit-learn whose fit takes sample weights, fitted anew to the costs in each round.
        Options follow the name: `{DecisionTreeClassifier: {max_depth: 3}}`, `{plugin:
        {probabilities: GaussianNB}}` (default: LogisticRegression), `{plugin: {groups: true}}` (the
        groups named in goals are known when a row is classified, and each has a threshold on the
        probability of a positive label).
    scores
        By which probabilities a mixture of boosted trees or forests is chosen: `in_sample`, those
        of the models for their own rows; `{folds: K}`, each row's by models fitted to the other K -
        1 folds, 2 <= K <= 100; `{held_out: S}`, those of a share S of the rows, 0 < S <= 0.9, which
        the models are not fitted to. Default: `{folds: 3}`. A recall of .8 that is chosen in sample
        is missed on new rows of Adult by .07.
    sweeps
        Number of passes over all features with which the linear model ends each answer. A pass
        sets every weight to the value of least 0-1 cost. This lowers the training objective and
        raises the test error: on a9a, at a ratio of 1.25, from .1590 to .1564 and from .1642 to
        .1671.
    """

    gap: Annotated[float, Gt(0)] = 1e-4
    calls: Annotated[int, Ge(1)] = 60
    model: OracleOption = LINEAR_ORACLE
    scores: Scores | None = None
    sweeps: Annotated[int, Ge(0)] = 0

    version: ClassVar[int] = 11
    runs: ClassVar[str] = "ratecli.solvers.hull.mixture:find_mixture"
    offers: ClassVar[Collection[Variant]] = ("deterministic", "stochastic", "voted", "hashed")
    objectives: ClassVar[frozenset[str]] = SEARCHED_SHAPES
    constraints: ClassVar[frozenset[str]] = PROGRAM_SHAPES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scores is None and is_ensemble(self.model):  # record the resolved value, not None
            object.__setattr__(self, "scores", {"folds": DEFAULT_FOLDS})
        if self.sweeps and self.model != LINEAR_ORACLE:
            raise ValueError("'sweeps' requires the linear model: leave it out with another one")

    @property
    def idle(self) -> Mapping[str, str]:
        if is_ensemble(self.model):
            return {}
        return {"scores": "'scores' is for boosted trees and forests"}

    @property
    def sees_slices(self) -> bool:
        return oracle_uses_groups(self.model)

    @property
    def rough(self) -> Mixture:
        return replace(self, gap=max(self.gap, ROUGH_GAP))
