"""Classifiers whose threshold is moved."""

from __future__ import annotations

from dataclasses import replace

from ratecli.models.base import Classifier
from ratecli.models.cost_sensitive import CostSensitiveClassifier
from ratecli.models.linear import Threshold


def with_threshold(member: Classifier, cut: float) -> Classifier:
    """Return a classifier that is positive where the score of `OracleRows.ranks` exceeds `cut`."""
    if isinstance(member, Threshold):
        return Threshold(member.weights, -cut)
    assert isinstance(member, CostSensitiveClassifier)
    return replace(member, cut=cut)
