"""Classifiers that rank rows, with another threshold."""

from __future__ import annotations

from dataclasses import replace

from ratecli.models.base import Classifier
from ratecli.models.linear import Threshold
from ratecli.models.weighed import CostSensitiveClassifier


def with_threshold(member: Classifier, cut: float) -> Classifier:
    """Yes where what the member ranks by (`Ground.ranks`) is above `cut`."""
    if isinstance(member, Threshold):
        return Threshold(member.weights, -cut)
    assert isinstance(member, CostSensitiveClassifier)
    return replace(member, cut=cut)
