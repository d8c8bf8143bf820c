"""Programs over a hull without their fractions: lines in the rates, and levels times such lines.

`top / bottom` is at most v if `top - v * bottom` is at most 0. So a constraint on fractions
consists of rows of lines, and of levels times lines. As few levels as possible represent fractions:

- one fraction of a constraint that has no other terms needs none: the constraint is multiplied by
  its denominator;
- all differences within a group of fractions are at most d if all of them lie in [v, v + d], which
  is one level for the group;
- an objective that is a single fraction needs none: weights are scaled until its denominator is 1,
  and its numerator is minimized (Charnes and Cooper 1962).

A level is a lower or an upper bound of its fraction, depending on the sign with which it is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ratecli.solvers.hull.forms import Fraction, LinearTerm, ProgramForm, RatePoints, RateProgram

MIN_DENOMINATOR_SHARE = 1e-3
"""Minimum allowed value of a denominator, relative to its maximum."""
MAX_FRACTION = 1e6
"""Larger fractions are clipped to this value: their denominator is practically 0."""
ELASTIC_FLOOR_ROOM = 1.0
"""How far the slack's lower end is below the least possible maximum constraint. Rows have no prices
while the slack is at its end, and a wider box costs nothing if only constants are multiplied by it.
"""
EQUAL_TOLERANCE = 1e-12
"""Numbers of a program that differ by no more than this are equal."""


@dataclass(frozen=True)
class BilinearRow:
    """`line + levels @ times + sum of curves`: an objective, or a row that must be at most 0.

    Attributes
    ----------
    times
        The factor of each level, by index of the level.
    curves
        Indices of curves.
    owner
        Index of the constraint that the row represents, multiplied by `by`.
    """

    line: LinearTerm
    times: Mapping[int, LinearTerm] = field(default_factory=dict)
    curves: tuple[int, ...] = ()
    owner: int | None = None
    by: LinearTerm | None = None


@dataclass(frozen=True)
class FractionSpread:
    """Fractions, each multiplied by its share, that differ by at most `most`."""

    members: tuple[int, ...]
    shares: tuple[float, ...]
    most: float
    owners: tuple[int, ...]


class BilinearProgram:
    """Minimize a row subject to others being at most 0, over a hull and a box of P levels.

    With `elastic`, the objective is the largest constraint. `floor` is the minimum allowed value
    of a denominator, relative to its maximum.

    Attributes
    ----------
    objective, rows
        The objective, and the rows that must be at most 0.
    boxes
        (P, 2) ranges of the levels that have to be searched.
    scaled
        The line that equals 1 after scaling the weights; None if the scale is 1.
    """

    def __init__(
        self,
        program: RateProgram,
        columns: RatePoints,
        *,
        elastic: bool,
        floor: float = MIN_DENOMINATOR_SHARE,
    ) -> None:
        self.program, self.columns, self.elastic = program, columns, elastic
        self.aims = [] if elastic else [program.objective]
        self.none = program.objective.line * 0.0
        self.ranges = [fraction_range(fraction, columns) for fraction in program.fractions]
        # the only fraction of an objective that has no other terms but a constant
        own = [aim.fractions for aim in self.aims if aim.is_fractions and len(aim.fractions) == 1]
        self.single = own[0][0] if own else None
        # the other fractions of an objective need levels
        self.aimed = {m for aim in self.aims for m in aim.fractions if m != self.single}
        # -1 for a fraction that is never positive, such as a subtracted one
        signs = [-1.0 if fraction.range[1] <= 0 else 1.0 for fraction in program.fractions]
        self.spreads = [
            spread
            for spread in find_fraction_spreads(program.constraints, signs)
            if len(self.aimed.intersection(spread.members)) < len(spread.members) - 1
        ]
        taken = {i for spread in self.spreads for i in spread.owners}
        self.others = [i for i in range(len(program.constraints)) if i not in taken]
        self.leveled = self._leveled()
        self.slack = len(self.leveled) + len(self.spreads)
        # rows that keep denominators away from 0, where a fraction is undefined
        bottoms = [fraction.bottom for fraction in program.fractions]
        self.floors = [bottom * -1.0 + floor * columns.range(bottom)[1] for bottom in bottoms]
        self.scaled = None if self.single is None else bottoms[self.single]
        self.objective, self.rows = self._objective(), tuple(self._rows())
        boxes = [self.ranges[m] for m in self.leveled]
        boxes += [self._smallest_range(spread) for spread in self.spreads]
        boxes += [self._slack_range()] if elastic else []
        self.boxes = np.array(boxes).reshape(len(boxes), 2)

    def _rows(self) -> Iterator[BilinearRow]:
        yield from map(self._constraint, self.others)
        yield from self._level_bounds()
        for number, spread in enumerate(self.spreads, len(self.leveled)):
            yield from self._spread(number, spread)
        yield from map(BilinearRow, self.floors)

    def _leveled(self) -> list[int]:
        """Return the fractions that need a level, in the order of the levels."""
        kept = set(self.aimed)
        forms = [self.program.constraints[i] for i in self.others]
        often = Counter(m for form in forms for m in form.fractions)
        for form in forms:
            left = sorted((m for m in form.fractions if m not in kept), key=lambda m: -often[m])
            kept.update(left[:-1] if form.is_fractions else left)
        return sorted(kept)

    def _objective(self) -> BilinearRow:
        aim = self.program.objective
        if self.elastic:
            return BilinearRow(self.none, {self.slack: self.none + 1.0})
        if self.single is not None:
            top = self.program.fractions[self.single].top
            return BilinearRow(top * float(aim.shares[self.single]))
        times = self._times(aim, self.none + 1.0)
        return BilinearRow(aim.line, times, tuple(range(len(aim.curves))))

    def _times(self, form: ProgramForm, by: LinearTerm) -> dict[int, LinearTerm]:
        """Return the factors of the levels for the fractions of a form."""
        return {p: by * float(form.shares[m]) for p, m in enumerate(self.leveled) if form.shares[m]}

    def _constraint(self, number: int) -> BilinearRow:
        form = self.program.constraints[number]
        start = sum(len(c.curves) for c in (*self.aims, *self.program.constraints[:number]))
        line, by = form.line, self.none + 1.0
        for m in form.fractions:  # at most one has no level
            if m not in self.leveled:
                by = self.program.fractions[m].bottom
                top = self.program.fractions[m].top * float(form.shares[m])
                line = top + by * form.line.constant
        times = self._times(form, by)
        if self.elastic:
            times[self.slack] = by * -1.0
        return BilinearRow(line, times, tuple(range(start, start + len(form.curves))), number, by)

    def _level_bounds(self) -> Iterator[BilinearRow]:
        """Yield rows that make levels lower or upper bounds of fractions, as far as needed."""
        forms = [*self.aims, *(self.program.constraints[i] for i in self.others)]
        for p, m in enumerate(self.leveled):
            fraction = self.program.fractions[m]
            shares = [form.shares[m] for form in forms]
            if max(shares) > 0:
                yield BilinearRow(fraction.top, {p: fraction.bottom * -1.0})
            if min(shares) < 0:
                yield BilinearRow(fraction.top * -1.0, {p: fraction.bottom})

    def _spread(self, p: int, spread: FractionSpread) -> Iterator[BilinearRow]:
        for m, share in zip(spread.members, spread.shares, strict=True):
            top, bottom = self.program.fractions[m].top * share, self.program.fractions[m].bottom
            yield BilinearRow(top * -1.0, {p: bottom})
            levels = (p, self.slack) if self.elastic else (p,)
            yield BilinearRow(top + bottom * -spread.most, dict.fromkeys(levels, bottom * -1.0))

    def _smallest_range(self, spread: FractionSpread) -> tuple[float, float]:
        """Return the range of the smallest fraction of a spread."""
        pairs = zip(spread.members, spread.shares, strict=True)
        low, high = np.array([np.sort(share * np.array(self.ranges[m])) for m, share in pairs]).T
        least = low.min() if self.elastic else max(low.min(), low.max() - spread.most)
        return float(least), float(max(high.min(), least))

    def _slack_range(self) -> tuple[float, float]:
        """Return a lower bound of the largest constraint, and a value that it has at some point."""
        low = max((self._least(form) for form in self.program.constraints), default=0.0)
        known = self.columns.middle[:, None]
        if self.columns.blocks == 1:
            known = np.hstack([known, self.columns.points + self.columns.origin[:, None]])
        allowed = np.all([line.at(known) <= 0 for line in self.floors], axis=0)
        found = np.where(allowed, self.program.excess(known), np.inf)
        high = max(low, float(np.fmin.reduce(found)))  # ignores points with undefined constraints
        if not any(form.fractions for form in self.program.constraints):
            low -= ELASTIC_FLOOR_ROOM
        return low, high if np.isfinite(high) else MAX_FRACTION

    def _least(self, form: ProgramForm) -> float:
        """Return a lower bound of a constraint."""
        ends = (min(form.shares[m] * end for end in self.ranges[m]) for m in form.fractions)
        tangents = (curve.tangent(self.columns.middle) for curve in form.curves)
        curves = (self.columns.range(line)[0] for line in tangents)
        return float(sum([*ends, *curves], self.columns.range(form.line)[0]))


def find_fraction_spreads(
    constraints: Sequence[ProgramForm], signs: Sequence[float]
) -> list[FractionSpread]:
    """Return sets of constraints that bound the differences of all pairs of some fractions equally.

    The fractions are multiplied by signs and a common share.
    """
    pairs: dict[tuple[float, float], dict[tuple[int, int], int]] = {}
    for number, form in enumerate(constraints):
        shares, own = form.shares * signs, form.fractions
        if form.is_fractions and len(own) == 2 and abs(shares.sum()) <= EQUAL_TOLERANCE:
            more, less = sorted(own, key=lambda m: -shares[m])
            key = (round(float(shares[more]), 12), round(-form.line.constant, 12))
            pairs.setdefault(key, {})[more, less] = number
    found = []
    for (share, most), each in pairs.items():
        while each:
            first, _ = next(iter(each))
            members = {first, *(b for a, b in each if a == first)}
            inside = {pair: each.pop(pair) for pair in list(each) if members.issuperset(pair)}
            if len(inside) == len(members) * (len(members) - 1):
                order = tuple(sorted(members))
                signed = tuple(share * signs[m] for m in order)
                found.append(FractionSpread(order, signed, most, tuple(inside.values())))
    return found


def fraction_range(fraction: Fraction, columns: RatePoints) -> tuple[float, float]:
    """Return the smallest and largest value of a fraction over the hull.

    With a single block, the fraction of a mixture lies between those of its points; with several
    blocks, numerator and denominator are bounded separately.
    """
    low, high = max(fraction.range[0], -MAX_FRACTION), min(fraction.range[1], MAX_FRACTION)
    if columns.blocks == 1:
        each = fraction.at(columns.points + columns.origin[:, None])
    else:
        top, bottom = columns.range(fraction.top), columns.range(fraction.bottom)
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.divide.outer(top, bottom).ravel()
    each = each[~np.isnan(each)]
    return max(low, float(each.min(initial=high))), min(high, float(each.max(initial=low)))
