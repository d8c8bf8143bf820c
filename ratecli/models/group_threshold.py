"""A classifier with a score threshold for each group."""

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
    columns = np.stack(members, axis=1).astype(float)
    if isinstance(X, np.ndarray):
        return np.hstack([X, columns])
    return sparse.csr_array(sparse.hstack([X, sparse.csr_array(columns)], format="csr"))


def extract_memberships(X: Features, width: int) -> Array:
    """Return the memberships (n, S) that follow the `width` features in X."""
    shown = X[:, width:]
    return shown if isinstance(shown, np.ndarray) else shown.toarray()


def _matches_group(members: Array, group: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return (n,) whether a row is in exactly the slices (S,) of a group."""
    apart = members @ np.where(group, -1.0, 1.0) + float(group.sum())
    return np.asarray(apart < 0.5)
