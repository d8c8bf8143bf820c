"""Classifiers that rank rows, with another threshold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ratecli.models.base import Array, Classifier, Features
from ratecli.models.linear import Threshold
from ratecli.models.weighed import Weighed


def scores_of(member: Classifier, X: Features) -> Array | None:
    """(m,) what rows are ranked by, of a classifier that `cut_at` can decide from it."""
    match member:
        case Threshold():
            return np.asarray(X @ member.weights)
        case Weighed():
            return member.gains(X)
        case _:
            return None


def cut_at(member: Classifier, cut: float) -> Classifier:
    """Yes where what the member ranks by is above `cut`."""
    if isinstance(member, Threshold):
        return Threshold(member.weights, -cut)
    assert isinstance(member, Weighed)
    return replace(member, cut=cut)
