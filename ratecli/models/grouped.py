"""A score with a threshold for each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Classifier, Features


@dataclass(frozen=True)
class GroupThreshold:
    """Deterministic: yes where the score is above the threshold of the row's group.

    A group is a combination of slices that a row is in. A row of none of the groups is decided as
    the scorer does: above 0.

    Attributes
    ----------
    scorer
        Gives the scores of d features; it looks at no slices itself.
    slices
        S conditions as text, such as `sex = Female`.
    groups
        (C, S) which slices the rows of each group are in; no two groups are alike.
    thresholds
        (C,).
    """

    kind: ClassVar[str] = "group_threshold"
    scorer: Classifier
    slices: tuple[str, ...]
    groups: NDArray[np.bool_]
    thresholds: Array

    def __post_init__(self) -> None:
        count = len(self.thresholds)
        if self.scorer.slices or self.groups.shape != (count, len(self.slices)):
            raise ValueError(
                f"{count} thresholds, groups of shape {self.groups.shape}, {len(self.slices)} slices"
            )

    @property
    def width(self) -> int:
        return self.scorer.width

    def score(self, X: Features) -> Array:
        """By how much the score is above the threshold; X is (n, d + S), memberships last."""
        if X.shape[1] != self.width + len(self.slices):
            raise ValueError(
                f"{X.shape[1]} columns, not {self.width} and {len(self.slices)} slices"
            )
        return self.shifted(
            self.scorer.score(X[:, : self.width]), extract_memberships(X, self.width)
        )

    def shifted(self, scores: Array, members: Array) -> Array:
        """The scorer's scores (n,) less the thresholds, of rows with memberships (n, S)."""
        scores = scores.copy()
        for group, threshold in zip(self.groups, self.thresholds, strict=True):
            scores[_matches_group(members, group)] -= threshold
        return scores

    def decide(self, X: Features) -> Array:
        return (self.score(X) > 0).astype(float)

    def estimate(self, X: Features) -> Array:
        return self.decide(X)

    def state(self) -> dict[str, NDArray[np.generic]]:
        arrays: dict[str, NDArray[np.generic]] = {
            "slices": np.asarray(self.slices, dtype=np.str_),
            "groups": self.groups,
            "thresholds": self.thresholds,
            "scorer.kind": np.asarray(self.scorer.kind),
        }
        return arrays | {f"scorer.{name}": array for name, array in self.scorer.state().items()}


def append_memberships(X: Features, members: Sequence[NDArray[np.bool_]]) -> Features:
    """(n, d + S) features and behind them who is in each of S slices, each (n,)."""
    if not len(members):
        return X
    columns = np.stack(members, axis=1).astype(float)
    if isinstance(X, np.ndarray):
        return np.hstack([X, columns])
    return sparse.csr_array(sparse.hstack([X, sparse.csr_array(columns)], format="csr"))


def extract_memberships(X: Features, width: int) -> Array:
    """(n, S) of X with S memberships behind `width` features."""
    shown = X[:, width:]
    return shown if isinstance(shown, np.ndarray) else shown.toarray()


def _matches_group(members: Array, group: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n,) whether a row is in just the slices (S,) of a group: nothing of (n, S) differs."""
    apart = members @ np.where(group, -1.0, 1.0) + float(group.sum())
    return np.asarray(apart < 0.5)
