"""Classifiers composed of other models: mixtures, votes, thresholds by group, decisions by cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array, Classifier, Features, append_columns
from ratecli.models.linear import HALF
from ratecli.models.sklearn_model import SklearnModel
from ratecli.models.trees import TreeEnsemble

MIN_CHANCE = 1e-9
"""Smaller chances of members are rounding errors of 0."""
ARGMAX_COSTS = np.array([1.0, -1.0])
"""Costs that make a decision positive if the second of two classes is the likelier one."""


@dataclass(frozen=True)
class CostSensitiveClassifier(Classifier):
    """Deterministic: positive if its expected cost is below `-cut`, negative in a tie.

    Attributes
    ----------
    chances
        Returns the probabilities (n, Q) of Q classes for each row.
    costs
        (Q,) cost of a positive decision for each class.
    """

    kind: ClassVar[str] = "weighed"
    chances: TreeEnsemble | SklearnModel
    costs: Array
    cut: float = 0.0

    def __post_init__(self) -> None:
        if self.costs.shape != (self.chances.classes,):
            raise ValueError(f"{self.costs.size} costs of {self.chances.classes} classes")

    @property
    def width(self) -> int:
        return self.chances.width

    def gains(self, X: Features) -> Array:
        """Return (n,) the expected gain of a positive decision: minus its expected cost."""
        return np.asarray(self.chances.probabilities(X) @ -self.costs)

    def score(self, X: Features) -> Array:
        return self.gains(X) - self.cut


@dataclass(frozen=True)
class GroupThreshold:
    """Deterministic: positive if the score is above the threshold of the row's group.

    A group is a combination of slices that a row is in. A row in none of the groups gets the
    threshold 0.

    Attributes
    ----------
    scorer
        Returns scores from d features; has no slices itself.
    slices
        S conditions as text, such as `sex = Female`.
    groups
        (C, S) which slices the rows of each group are in; the groups are distinct.
    thresholds
        (C,) the threshold of each group.
    """

    kind: ClassVar[str] = "group_threshold"
    scorer: Classifier
    slices: tuple[str, ...]
    groups: NDArray[np.bool_]
    thresholds: Array

    def __post_init__(self) -> None:
        count, slices = self.groups.shape
        if self.scorer.slices or self.thresholds.shape != (count,) or len(self.slices) != slices:
            raise ValueError(
                f"{self.thresholds.size} thresholds, {count} groups of {len(self.slices)} slices"
            )

    @property
    def width(self) -> int:
        return self.scorer.width

    def score(self, X: Features) -> Array:
        """Return the score minus the threshold; X is (n, d + S) with memberships last."""
        if X.shape[1] != self.width + len(self.slices):
            raise ValueError(
                f"{X.shape[1]} columns, not {self.width} and {len(self.slices)} slices"
            )
        return self.shifted(
            self.scorer.score(X[:, : self.width]), extract_memberships(X, self.width)
        )

    def shifted(self, scores: Array, members: Array) -> Array:
        """Return scores (n,) minus thresholds, for rows with memberships (n, S)."""
        scores = scores.copy()
        for group, threshold in zip(self.groups, self.thresholds, strict=True):
            scores[_matches_group(members, group)] -= threshold
        return scores

    def decide(self, X: Features) -> Array:
        return (self.score(X) > 0).astype(float)

    def estimate(self, X: Features) -> Array:
        return self.decide(X)


def append_memberships(X: Features, members: Sequence[NDArray[np.bool_]]) -> Features:
    """Return (n, d + S) features followed by a 0/1 column for each of S masks of shape (n,)."""
    if not len(members):
        return X
    return append_columns(X, np.stack(members, axis=1).astype(float))


def extract_memberships(X: Features, width: int) -> Array:
    """Return the memberships (n, S) that follow the `width` features in X."""
    shown = X[:, width:]
    return shown if isinstance(shown, np.ndarray) else shown.toarray()


def _matches_group(members: Array, group: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return (n,) whether a row is in exactly the slices (S,) of a group."""
    apart = members @ np.where(group, -1.0, 1.0) + float(group.sum())
    return np.asarray(apart < 0.5)


@dataclass(frozen=True)
class MixtureClassifier(Classifier):
    """Member k decides with probability `chances[k]`; every output is the mean over members.

    Rates are linear in decisions, so the rates of the mean decision are the expected rates. Apply
    nonlinear metrics to those rates; do not average metrics of members.
    """

    kind: ClassVar[str] = "mixture"
    members: tuple[Classifier, ...]
    chances: Array

    def __post_init__(self) -> None:
        chances = self.chances
        fits = chances.shape == (len(self.members),)
        if not (fits and (chances >= 0).all() and abs(chances.sum() - 1) <= 1e-9):
            raise ValueError(
                f"chances {chances} are not a distribution over {len(self.members)} members"
            )
        widths = {member.width for member in self.members}
        if len(widths) > 1:
            raise ValueError(f"members of a mixture have {sorted(widths)} features")
        if len({member.slices for member in self.members}) > 1:
            raise ValueError("members of a mixture use different slices")

    @classmethod
    def of(cls, members: Sequence[Classifier], chances: Array) -> MixtureClassifier:
        """Return the mixture of the members with positive chances, scaled to sum 1."""
        kept = np.flatnonzero(chances > MIN_CHANCE)
        return cls(tuple(members[k] for k in kept.tolist()), chances[kept] / chances[kept].sum())

    @property
    def width(self) -> int:
        return self.members[0].width

    @property
    def slices(self) -> tuple[str, ...]:
        return self.members[0].slices

    def _mean(self, answer: Callable[[Classifier], Array]) -> Array:
        answers = np.stack([answer(member) for member in self.members])
        return np.asarray(self.chances @ answers)

    def decide(self, X: Features) -> Array:
        return np.clip(self._mean(lambda member: member.decide(X)), 0.0, 1.0)  # rounding errors

    def score(self, X: Features) -> Array:
        return self._mean(lambda member: member.score(X))

    def estimate(self, X: Features) -> Array:
        return self._mean(lambda member: member.estimate(X))


@dataclass(frozen=True)
class MajorityVote(MixtureClassifier):
    """Deterministic: positive if the mixture's P(positive decision) is above 1/2."""

    kind: ClassVar[str] = "vote"

    def decide(self, X: Features) -> Array:
        return (super().decide(X) > HALF).astype(float)

    def estimate(self, X: Features) -> Array:
        return self.decide(X)
