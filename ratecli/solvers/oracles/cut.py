"""Classifiers that rank rows, with another threshold."""

from __future__ import annotations

from dataclasses import replace

from ratecli.models.base import Classifier
from ratecli.models.linear import Threshold
from ratecli.models.weighed import Weighed


def cut_at(member: Classifier, cut: float) -> Classifier:
    """Yes where what the member ranks by (`Ground.ranks`) is above `cut`."""
    if isinstance(member, Threshold):
        return Threshold(member.weights, -cut)
    assert isinstance(member, Weighed)
    return replace(member, cut=cut)
