"""Programs over a hull without their fractions: lines in the rates, and levels times such lines.

That `top / bottom` is at most v is that `top - v * bottom` is at most 0. So a constraint on fractions
is rows of lines and of levels times lines, and as few levels as will do stand for fractions:

- of the fractions of a constraint with nothing else one needs none: the constraint is multiplied by
  its bottom;
- all differences within a group of fractions are at most d where all of them lie in [v, v + d], which
  is one level for the group;
- an objective that is one fraction needs none: weights are scaled until its bottom is 1, and its top
  is minimized (Charnes and Cooper 1962).

A level is no less than its fraction where more of it would only be worse, no more where less would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.hull.columns import RatePoints
from ratecli.solvers.hull.forms import Fraction, LinearTerm, ProgramForm, RateProgram

MIN_DENOMINATOR_SHARE = 1e-3
"""Of the largest value that a bottom has, the least that is allowed."""
MAX_FRACTION = 1e6
"""Fractions beyond this are taken for it: their bottom is as good as 0."""
ELASTIC_FLOOR_ROOM = 1.0
"""Below what the largest constraint can be: rows have no prices where the slack is at its end. Where
nothing but numbers is multiplied with it, a wider box costs nothing.
"""
EQUAL_TOLERANCE = 1e-12
"""Up to which numbers of a program are the same."""


@dataclass(frozen=True)
class BilinearRow:
    """`line + levels @ times + sum of curves`, an objective, or what is to be at most 0.

    Attributes
    ----------
    times
        What each level is multiplied by, by its number.
    curves
        Numbers of curves.
    owner
        The number of the constraint that this is; it is multiplied by `by`.
    """

    line: LinearTerm
    times: Mapping[int, LinearTerm] = field(default_factory=dict)
    curves: tuple[int, ...] = ()
    owner: int | None = None
    by: LinearTerm | None = None


@dataclass(frozen=True)
class FractionSpread:
    """Fractions, times a share of each, that differ by at most `most`."""

    members: tuple[int, ...]
    shares: tuple[float, ...]
    most: float
    owners: tuple[int, ...]


@dataclass(frozen=True)
class BilinearProgram:
    """Minimize a row so that others are at most 0, over a hull and a box of P levels.

    Attributes
    ----------
    boxes
        (P, 2) of levels: all that need be looked at.
    scaled
        The line that is 1, by the scale of the weights; None where that is 1.
    """

    objective: BilinearRow
    rows: tuple[BilinearRow, ...]
    boxes: Array
    scaled: LinearTerm | None

    @classmethod
    def of(
        cls,
        program: RateProgram,
        columns: RatePoints,
        *,
        elastic: bool,
        floor: float = MIN_DENOMINATOR_SHARE,
    ) -> BilinearProgram:
        """With `elastic` the objective is the least amount that no constraint is above. Of the largest
        value that a bottom has, `floor` is the least that is allowed.
        """
        return _BilinearBuilder(program, columns, elastic, floor).made()


def single_fraction(objective: ProgramForm) -> int | None:
    """The fraction that an objective consists of, with a constant, if it does of one."""
    (own,) = np.nonzero(objective.shares)
    return int(own[0]) if objective.is_fractions and len(own) == 1 else None


class _BilinearBuilder:
    def __init__(
        self, program: RateProgram, columns: RatePoints, elastic: bool, floor: float
    ) -> None:
        self.program, self.columns, self.elastic, self.floor = program, columns, elastic, floor
        self.none = LinearTerm(0.0 * columns.origin, 0.0)
        self.unit = LinearTerm(0.0 * columns.origin, 1.0)
        self.ranges = [fraction_range(fraction, columns) for fraction in program.fractions]
        self.single = None if elastic else single_fraction(program.objective)
        self.aimed = self._aimed()
        signs = [_fraction_sign(fraction) for fraction in program.fractions]
        self.spreads = [
            spread
            for spread in find_fraction_spreads(program.constraints, signs)
            if len(self.aimed.intersection(spread.members)) < len(spread.members) - 1
        ]
        taken = {i for spread in self.spreads for i in spread.owners}
        self.others = [i for i in range(len(program.constraints)) if i not in taken]
        self.leveled = self._leveled()
        self.slack = len(self.leveled) + len(self.spreads)

    def made(self) -> BilinearProgram:
        rows = [*map(self._constraint, self.others), *self._levels()]
        rows += [
            row
            for number, spread in enumerate(self.spreads)
            for row in self._spread(number, spread)
        ]
        boxes = [self.ranges[m] for m in self.leveled] + [self._start(s) for s in self.spreads]
        if self.elastic:
            boxes.append(self._slack())
        return BilinearProgram(
            self._objective(),
            (*rows, *self._floors()),
            np.array(boxes).reshape(len(boxes), 2),
            None if self.single is None else self.program.fractions[self.single].bottom,
        )

    def _aimed(self) -> set[int]:
        """Fractions of the objective, which need a level each but where there is one alone."""
        if self.elastic or self.single is not None:
            return set()
        return set(np.flatnonzero(self.program.objective.shares).tolist())

    def _leveled(self) -> list[int]:
        """Fractions that need a level, each that of its place."""
        kept = set(self.aimed)
        forms = [self.program.constraints[i] for i in self.others]
        often = np.sum([form.shares != 0 for form in forms], axis=0) if forms else np.zeros(0)
        for form in forms:
            left = [m for m in np.flatnonzero(form.shares).tolist() if m not in kept]
            left.sort(key=lambda m: -often[m])
            kept |= set(left[:-1] if form.is_fractions else left)
        return sorted(kept)

    def _objective(self) -> BilinearRow:
        aim = self.program.objective
        if self.elastic:
            return BilinearRow(self.none, {self.slack: self.unit})
        if self.single is not None:
            share, top = float(aim.shares.sum()), self.program.fractions[self.single].top
            return BilinearRow(top * share)
        return BilinearRow(aim.line, self._times(aim, self.unit), tuple(range(len(aim.curves))))

    def _times(self, form: ProgramForm, by: LinearTerm) -> dict[int, LinearTerm]:
        """Of the fractions of a form that have levels."""
        return {p: by * float(form.shares[m]) for p, m in enumerate(self.leveled) if form.shares[m]}

    def _constraint(self, number: int) -> BilinearRow:
        form = self.program.constraints[number]
        left = [m for m in np.flatnonzero(form.shares) if m not in self.leveled]
        before = () if self.elastic else self.program.objective.curves
        start = len(before) + sum(len(c.curves) for c in self.program.constraints[:number])
        if left:
            fraction = self.program.fractions[left[0]]
            by = fraction.bottom
            line = fraction.top * float(form.shares[left[0]]) + by * form.line.constant
        else:
            line, by = form.line, self.unit
        times = self._times(form, by)
        if self.elastic:
            times[self.slack] = by * -1.0
        return BilinearRow(line, times, tuple(range(start, start + len(form.curves))), number, by)

    def _levels(self) -> Iterator[BilinearRow]:
        """That levels are no less, and no more, than fractions, as far as it matters."""
        aims = [] if self.elastic else [self.program.objective]
        forms = [*aims, *(self.program.constraints[i] for i in self.others)]
        for p, m in enumerate(self.leveled):
            fraction = self.program.fractions[m]
            shares = [form.shares[m] for form in forms]
            if max(shares) > 0:
                yield BilinearRow(fraction.top, {p: fraction.bottom * -1.0})
            if min(shares) < 0:
                yield BilinearRow(fraction.top * -1.0, {p: fraction.bottom})

    def _spread(self, number: int, spread: FractionSpread) -> Iterator[BilinearRow]:
        p = len(self.leveled) + number
        for m, share in zip(spread.members, spread.shares, strict=True):
            fraction = self.program.fractions[m]
            top, bottom = fraction.top * share, fraction.bottom
            yield BilinearRow(top * -1.0, {p: bottom})
            times = {p: bottom * -1.0} | ({self.slack: bottom * -1.0} if self.elastic else {})
            yield BilinearRow(top + bottom * -spread.most, times)

    def _start(self, spread: FractionSpread) -> tuple[float, float]:
        """Where the least of the fractions of a spread can lie."""
        pairs = zip(spread.members, spread.shares, strict=True)
        ends = [np.sort(share * np.array(self.ranges[m])) for m, share in pairs]
        low, high = np.array(ends).T
        least = low.min() if self.elastic else max(low.min(), low.max() - spread.most)
        return float(least), float(max(high.min(), least))

    def _slack(self) -> tuple[float, float]:
        """What the largest constraint cannot be below, and what it is somewhere."""
        low = max((self._least(form) for form in self.program.constraints), default=0.0)
        known = self.columns.middle[:, None]
        if self.columns.blocks == 1:
            known = np.hstack([known, self.columns.points + self.columns.origin[:, None]])
        allowed = np.ones(known.shape[1], dtype=bool)
        for row in self._floors():
            allowed &= row.line.at(known) <= 0
        found = np.where(allowed, self.program.excess(known), np.inf)
        high = max(low, float(np.fmin.reduce(found)))  # undefined is not known to be any good
        if not any(form.shares.any() for form in self.program.constraints):
            low -= ELASTIC_FLOOR_ROOM
        return low, high if np.isfinite(high) else MAX_FRACTION

    def _least(self, form: ProgramForm) -> float:
        """A bound on a constraint from below."""
        total, _ = self.columns.range(form.line.slopes, form.line.constant)
        for share, ends in zip(form.shares, self.ranges, strict=True):
            total += min(share * end for end in ends)
        for curve in form.curves:
            line = curve.touching(self.columns.middle)
            total += self.columns.range(line.slopes, line.constant)[0]
        return float(total)

    def _floors(self) -> Iterator[BilinearRow]:
        """No bottom is nearly 0: there a fraction is not defined, and near it anything."""
        for fraction in self.program.fractions:
            _, most = self.columns.range(fraction.bottom.slopes, fraction.bottom.constant)
            yield BilinearRow(fraction.bottom * -1.0 + self.unit * (self.floor * most))


def _fraction_sign(fraction: Fraction) -> float:
    """-1 of what is never positive, as where a fraction was taken off another."""
    return -1.0 if fraction.range[1] <= 0 else 1.0


def find_fraction_spreads(
    constraints: Sequence[ProgramForm], signs: Sequence[float]
) -> list[FractionSpread]:
    """Sets of constraints that say of all pairs of some fractions that they differ by no more than this,
    times signs and a common share.
    """
    pairs: dict[tuple[float, float], dict[tuple[int, int], int]] = {}
    for number, form in enumerate(constraints):
        shares = form.shares * signs
        own = np.flatnonzero(shares)
        if form.is_fractions and len(own) == 2 and abs(shares.sum()) <= EQUAL_TOLERANCE:
            more, less = own if shares[own[0]] > 0 else own[::-1]
            key = (round(float(shares[more]), 12), round(-form.line.constant, 12))
            pairs.setdefault(key, {})[int(more), int(less)] = number
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
    """Least and largest value of a fraction over the hull.

    Of one block's points the fraction of a mixture lies between theirs; of several its top and bottom
    are bounded each.
    """
    low, high = max(fraction.range[0], -MAX_FRACTION), min(fraction.range[1], MAX_FRACTION)
    if columns.blocks == 1:
        each = fraction.at(columns.points + columns.origin[:, None])
    else:
        lines = (fraction.top, fraction.bottom)
        top, bottom = (np.array(columns.range(line.slopes, line.constant)) for line in lines)
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.divide.outer(top, bottom).ravel()
    each = each[~np.isnan(each)]
    return max(low, float(each.min(initial=high))), min(high, float(each.max(initial=low)))
