"""Classifiers that ratecli's own models do not express; stored as dataclasses like them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ratecli.models.base import Array, Classifier, Features, width_of
from ratecli.models.composed import extract_memberships
from ratecli.models.output_cache import leading_features
from ratecli.models.probabilities import ProbabilityModel
from ratecli.rates.sample import make_read_only


@dataclass(frozen=True)
class DecorrelatedClassifier:
    """A classifier of features from which what slices predict linearly is removed.

    Attributes
    ----------
    classifier
        Decides by the remaining features (n, d).
    slices
        S conditions as text.
    slopes
        (S, d) what is subtracted from the features for each membership.
    mean
        (S,) mean membership of the training rows.
    """

    classifier: Classifier
    slices: tuple[str, ...]
    slopes: Array
    mean: Array

    def __post_init__(self) -> None:
        make_read_only(self)
        if self.slopes.shape != (len(self.slices), self.width) or self.mean.shape != (
            len(self.slices),
        ):
            raise ValueError(f"slopes of shape {self.slopes.shape}")

    width = width_of("classifier")

    def _remaining(self, X: Features) -> Array:
        apart = extract_memberships(X, self.width) - self.mean
        features = leading_features(X, self.width)
        dense = features if isinstance(features, np.ndarray) else features.toarray()
        return np.asarray(dense - apart @ self.slopes)

    def score(self, X: Features) -> Array:
        return self.classifier.score(self._remaining(X))

    def decide(self, X: Features) -> Array:
        return self.classifier.decide(self._remaining(X))

    def estimate(self, X: Features) -> Array:
        return self.classifier.estimate(self._remaining(X))


@dataclass(frozen=True)
class InferredGroupThreshold(Classifier):
    """Deterministic: positive if the score is above the threshold of the likeliest group.

    Attributes
    ----------
    scorer
        Returns scores.
    group_model
        Returns the probabilities (n, G) of the groups.
    thresholds
        (G + 1,) the threshold of rows without a likely group, and of each group.
    least
        A group is likely if its probability is at least this; 0 if the likeliest always counts.
    """

    scorer: Classifier
    group_model: ProbabilityModel
    thresholds: Array
    least: float

    def __post_init__(self) -> None:
        make_read_only(self)
        if self.thresholds.shape != (self.group_model.classes + 1,):
            raise ValueError(
                f"{self.thresholds.size} thresholds of {self.group_model.classes} groups"
            )

    width = width_of("scorer")

    def score(self, X: Features) -> Array:
        chances = self.group_model.probabilities(X)
        group = np.where(chances.max(axis=1) < self.least, 0, chances.argmax(axis=1) + 1)
        return np.asarray(self.scorer.score(X) - self.thresholds[group])
