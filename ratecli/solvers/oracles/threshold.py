"""Enumeration of all thresholds on given scores, and the cheapest one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array, Classifier
from ratecli.models.linear import Threshold
from ratecli.models.weighed import CostSensitiveClassifier


def with_threshold(member: Classifier, cut: float) -> Classifier:
    """Return a classifier that is positive where the score of `OracleRows.ranks` exceeds `cut`."""
    if isinstance(member, Threshold):
        return Threshold(member.weights, -cut)
    assert isinstance(member, CostSensitiveClassifier)
    return replace(member, cut=cut)


SCORE_TIE = 1e-12
"""Scores closer than this, relative to the largest, count as equal: another matrix product may
round the same row differently, and it must get the same decision.
"""
OUTER_DISTANCE = 1.0
"""Distance of the outermost thresholds (all positive, none positive) from the scores."""


def all_thresholds(scores: Array) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Enumerate all thresholds, from no positive decision to only positive ones.

    Returns the order (m,) of the scores (m,) from the largest down, m at least 1; the number of
    leading rows that are positive at each of T thresholds, ascending from 0 to m; and the
    thresholds (T,), midway between neighbouring scores.
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
    """Return the threshold with the smallest total cost of positive decisions, costs (m,)."""
    order, counts, thresholds = all_thresholds(scores)
    reached = np.concatenate([[0.0], np.cumsum(costs[order])])
    return float(thresholds[np.argmin(reached[counts])])
