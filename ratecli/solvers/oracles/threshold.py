"""All that a threshold on given scores can do, exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array, Classifier
from ratecli.models.linear import Threshold
from ratecli.models.weighed import CostSensitiveClassifier


def with_threshold(member: Classifier, cut: float) -> Classifier:
    """Yes where what the member ranks by (`Ground.ranks`) is above `cut`."""
    if isinstance(member, Threshold):
        return Threshold(member.weights, -cut)
    assert isinstance(member, CostSensitiveClassifier)
    return replace(member, cut=cut)


SCORE_TIE = 1e-12
"""Scores nearer than this, relative to the largest, are one: in another matrix product the same row
may get another last bit, and is to be decided alike."""
OUTER_DISTANCE = 1.0
"""How far the thresholds of all yes and of none lie beyond the scores."""


def all_thresholds(scores: Array) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Every way to say yes above a threshold, from no yes to all.

    Returns the order (m,) of the scores (m,), m at least 1, from the greatest down; how many of the
    first say yes at each of T thresholds, ascending from 0 to m; and the thresholds (T,), midway between
    neighbouring scores.
    """
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    tie = SCORE_TIE * max(float(np.abs(ranked).max()), 1.0)
    counts = np.flatnonzero(np.concatenate([[True], -np.diff(ranked) > tie, [True]]))
    ends = np.concatenate(
        [[ranked[0] + 2 * OUTER_DISTANCE], ranked, [ranked[-1] - 2 * OUTER_DISTANCE]]
    )
    return order, counts, 0.5 * (ends[counts] + ends[counts + 1])


def best_threshold(scores: Array, costs: Array) -> float:
    """The threshold above which a yes is cheapest in sum; (m,) `costs` of a yes."""
    order, counts, thresholds = all_thresholds(scores)
    reached = np.concatenate([[0.0], np.cumsum(costs[order])])
    return float(thresholds[np.argmin(reached[counts])])
