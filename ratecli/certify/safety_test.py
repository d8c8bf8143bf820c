"""What a safety test is asked to show, and with how many rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SafetyMethod = Literal["leaves", "forms", "pieces"]
"""Of what confidence bounds are made.

`leaves`
    Of every rate that a goal speaks of, as in the tutorial of the Seldonian Toolkit: their intervals are
    passed up the tree, and the delta is divided over all sides that the tree needs.
`forms`
    As `leaves`, but an affine combination of rates is bounded as one where that is sound: rates of
    disjoint groups (a difference of two means), or means over the same rows.
`pieces`
    As `forms`, and each part of a maximum that must be at most 0 is tested at the whole delta: all of
    them must pass, so a goal that is broken is broken in one that passes by mistake with a probability of
    at most delta (intersection-union test, Berger 1982).
"""
DeltaDivision = Literal["equal", "optimized"]


@dataclass(frozen=True)
class SafetyTestSpec:
    """The test that a candidate has to pass.

    Attributes
    ----------
    delta
        Probability of a mistake for each constraint, by its name, in (0, 1).
    bound
        The name of a confidence bound (`safety.bounds.BOUNDS`), or `auto`.
    method
        Of what bounds are made.
    division
        How the delta of a constraint is divided over the bounds that it needs: equally, or as suits the
        candidate best on the rows it was trained on.
    rows
        How many rows the test has, of all data sets.
    at_random
        Whether they are drawn at random, all alike. Where groups, or data sets that a rate is pooled of,
        have the same shares as among candidate rows, the rows tell a little of the same chance as
        those: a mean over several groups is as far from the truth on both as their shares are. And the
        last rows of a file are like the others only if its order is that of chance. No bound is exact then.
    """

    delta: Mapping[str, float]
    rows: int
    bound: str = "auto"
    method: SafetyMethod = "pieces"
    division: DeltaDivision = "equal"
    at_random: bool = True
