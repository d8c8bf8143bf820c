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

    A mixture decides with a classifier that it picks at random. Its rates are a weighted mean of
    the rates of its classifiers, so finding the best mixture of known classifiers is a small
    program. The optimum puts a price on each rate. The model is then fitted to find a classifier
    that is cheap at these prices. These two steps alternate until a new classifier would improve
    the objective by no more than `gap`. In the end, few classifiers have a positive probability.

    The model is the best single classifier, with the best threshold, on lines between those that
    cost least at these prices. It is one vector of weights, or of costs of probabilities. The last
    row of the trace has an upper bound on the distance of its objective from that of the best
    mixture (`deterministic_gap`). With `randomize`, the model is the mixture. If the constraints of
    a convex problem cost nothing, its optimum is not unique. The mixture with the most slack is
    then chosen, because constraints hold less well on new data.

    Sums and comparisons of ratios have several local optima, and so have smooth objectives such as
    `-mcc`. Each mixture is then the best of several local searches, without a certificate. Small
    steps towards a new classifier could improve it by `gap` in the trace (`first_order_gap` for
    smooth objectives).

    Attributes
    ----------
    gap
        The search ends when a new classifier would improve the objective by no more than this.
    calls
        Maximum number of rounds, each with a mixture and a classifier that may improve it.
    model
        Finds a cheap classifier. `linear`: linear classifiers. `plugin`: fits probabilities once
        and weighs them with the prices. Boosted trees or a forest (`lightgbm`, `xgboost`,
        `catboost`, `HistGradientBoostingClassifier`, `RandomForestClassifier`, ...): their
        probabilities of the label, and of the groups given the label, are weighed in the same way.
        Any other classifier of scikit-learn whose fit takes sample weights is fitted anew to the
        costs in each round. Options follow the name: `{DecisionTreeClassifier: {max_depth: 3}}`,
        `{plugin: {probabilities: GaussianNB}}` (default: LogisticRegression). With `{plugin:
        {groups: true}}`, the groups named in goals must be known when a row is classified, and
        each has a threshold on the probability of a positive label. With a few thousand rows,
        `LogisticRegression` is better than `linear` on new rows (see the page "Methods compared").
    scores
        The probabilities that a mixture of boosted trees or forests is chosen by. `in_sample`:
        those of all training rows. `{folds: K}`: each row's come from models fitted to the other K
        - 1 folds, 2 <= K <= 100. `{held_out: S}`: only those of a share S of the rows, and the
        models are fitted to the others, 0 < S <= 0.9. Default: `{folds: 3}`. A recall of .8 that is
        chosen in sample is missed on new rows of Adult by .07.
    """

    gap: Annotated[float, Gt(0)] = 1e-4
    calls: Annotated[int, Ge(1)] = 60
    model: OracleOption = LINEAR_ORACLE
    scores: Scores | None = None

    version: ClassVar[int] = 11
    runs: ClassVar[str] = "ratecli.solvers.hull.mixture:find_mixture"
    offers: ClassVar[Collection[Variant]] = ("deterministic", "stochastic", "voted", "hashed")
    objectives: ClassVar[frozenset[str]] = SEARCHED_SHAPES
    constraints: ClassVar[frozenset[str]] = PROGRAM_SHAPES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scores is None and is_ensemble(self.model):  # record the resolved value, not None
            object.__setattr__(self, "scores", {"folds": DEFAULT_FOLDS})

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
