"""Specification of a safety test: deltas, bounds, and the rows it uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SafetyMethod = Literal["leaves", "forms", "pieces"]
"""How confidence bounds are combined.

`leaves`
    Bound every rate of a goal, as in the tutorial of the Seldonian Toolkit: the intervals are
    propagated up the tree, and delta is divided among all sides that the tree needs.
`forms`
    Like `leaves`, but an affine combination of rates is bounded as a whole where that is sound:
    rates of disjoint groups (a difference of two means), or means over the same rows.
`pieces`
    Like `forms`, and each part of a maximum that must be at most 0 is tested at the whole delta.
    All of them must pass. If the goal is violated, so is one of its parts, which passes by mistake
    with a probability of at most delta (intersection-union test, Berger 1982).
"""
DeltaDivision = Literal["equal", "optimized"]


@dataclass(frozen=True)
class SafetyTestSpec:
    """The safety test that a candidate has to pass.

    Attributes
    ----------
    delta
        Error probability for each constraint, by its name, in (0, 1).
    bound
        The name of a confidence bound (`certify.bounds.BOUNDS`), or `auto`.
    method
        How bounds are combined: `leaves`, `forms` or `pieces`.
    division
        How the delta of a constraint is divided among its bounds: equally, or optimized on the rows
        that the candidate was trained on.
    rows
        The number of rows of the test, over all data sets.
    at_random
        Whether the rows are a simple random sample; no bound is exact otherwise. After
        stratification, groups (or pooled data sets) have the same shares among the test rows as
        among the candidate rows, so that means over several groups have the same error on both. The
        last rows of a file are representative only if the file is in random order.
    """

    delta: Mapping[str, float]
    rows: int
    bound: str = "auto"
    method: SafetyMethod = "pieces"
    division: DeltaDivision = "equal"
    at_random: bool = True
