"""Tiny tables, and rates on them computed independently from labels and groups."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Features
from ratecli.rates.sample import Sample
from ratecli.sampling.rows import TrialData

TextArray = NDArray[np.str_]
FEATURE_POINTS = np.array([[x, y] for x in (-2.0, -1.0, 0.0, 1.0, 2.0) for y in (0.0, 1.0)])
"""Values of the features in the plain table; they are informative about the label."""
POSITIVE_SHARES = (0.08, 0.25, 0.5, 0.7, 0.92)
"""Share of positive labels for each value of the first feature."""


@dataclass(frozen=True)
class TinyTable:
    """A table of n rows.

    Attributes
    ----------
    X
        (n, d) features, without the group.
    label
        (n,) 0, 1 or NaN.
    group
        (n,) `a` or `b`, the column `g`.
    weight
        (n,) positive.
    part
        (n,) "train" or "validation".
    """

    X: Features
    label: Array
    group: TextArray
    weight: Array
    part: TextArray

    def __len__(self) -> int:
        return len(self.label)

    def at(self, rows: NDArray[np.intp]) -> TinyTable:
        """Return the given rows, in that order."""
        label, group = self.label[rows], self.group[rows]
        return TinyTable(self.X[rows], label, group, self.weight[rows], self.part[rows])

    @property
    def training(self) -> TinyTable:
        return self.at(np.flatnonzero(self.part == "train"))

    def world(self) -> TrialData:
        """Return the rows as the runner represents them."""
        columns = {"g": self.group.astype(object)}
        names = np.full(len(self), "tiny")
        return TrialData(Sample(columns, self.label, names, self.part, self.weight), self.X)


def plain_table(n: int = 60, held_out: int = 20) -> TinyTable:
    """Return rows whose features and group are informative; group `a` is selected less often."""
    rng = np.random.default_rng(5)
    places = rng.integers(len(FEATURE_POINTS), size=n + held_out)
    group = np.where(rng.random(n + held_out) < 0.4 + 0.1 * (places < 4), "a", "b")
    chance = np.array(POSITIVE_SHARES)[places // 2] + np.where(group == "a", -0.06, 0.06)
    label = (rng.random(n + held_out) < chance).astype(float)
    part = np.where(np.arange(n + held_out) < n, "train", "validation")
    return TinyTable(FEATURE_POINTS[places], label, group, np.ones(n + held_out), part)


def weighted_table() -> TinyTable:
    """Return a table whose weights change the best decisions: positive rows have a weight of 8."""
    rows = plain_table(held_out=0)
    return replace(rows, weight=np.where(rows.label == 1, 8.0, 1.0))


def repeat_rows(rows: TinyTable) -> TinyTable:
    """Repeat each row as often as its integer weight says, with a weight of 1."""
    often = np.repeat(np.arange(len(rows)), rows.weight.astype(int))
    return replace(rows.at(often), weight=np.ones(len(often)))


def odd_tables() -> dict[str, TinyTable]:
    """Return unusual tables by a description of what is unusual."""
    rows = plain_table()
    n = len(rows)
    rng = np.random.default_rng(6)
    constant = np.array(rows.X)
    constant[:, 1] = 1.0
    one = np.where((rows.group == "a") & (np.cumsum(rows.group == "a") > 1), "b", rows.group)
    gaps = np.where((np.arange(n) % 5 == 0) & (rows.part == "train"), np.nan, rows.label)
    twice = np.concatenate([np.arange(n), np.arange(n)])
    few = rows.at(np.arange(16))
    wide = replace(few, X=np.hstack([few.X, rng.normal(size=(len(few), 30))]))
    return {
        "a constant feature": replace(rows, X=constant),
        "a group of one row, none to validate": replace(rows, group=one),
        "all labels positive": replace(rows, label=np.ones(n)),
        "all labels negative": replace(rows, label=np.zeros(n)),
        "rows without a label": replace(rows, label=gaps),
        "every row twice": rows.at(twice),
        "more features than rows": wide,
        "a sparse matrix": replace(rows, X=sparse.csr_array(rows.X)),
        "no validation rows": rows.training,
        "all rows alike": replace(rows, X=np.ones((n, 2))),
    }


@dataclass(frozen=True)
class DecisionLinear:
    """`coefficients @ p + constant` for the decisions p of the training rows, shape (n,)."""

    coefficients: Array
    constant: float = 0.0

    def at(self, decisions: Array) -> float:
        return float(self.coefficients @ decisions) + self.constant

    def __add__(self, other: DecisionLinear) -> DecisionLinear:
        return DecisionLinear(
            self.coefficients + other.coefficients, self.constant + other.constant
        )

    def __sub__(self, other: DecisionLinear) -> DecisionLinear:
        return self + -1.0 * other

    def __rmul__(self, factor: float) -> DecisionLinear:
        return DecisionLinear(factor * self.coefficients, factor * self.constant)

    def less(self, number: float) -> DecisionLinear:
        return replace(self, constant=self.constant - number)


def share_form(
    rows: TinyTable, among: NDArray[np.bool_], yes: NDArray[np.bool_], no: NDArray[np.bool_]
) -> DecisionLinear:
    """Return a weighted mean over the rows of `among`.

    It averages 1 for a positive decision in a row of `yes` and for a negative one in a row of `no`.
    """
    part = np.where(among, rows.weight, 0.0)
    part = part / part.sum()
    return DecisionLinear(part * yes - part * no, float((part * no).sum()))


def error_form(rows: TinyTable) -> DecisionLinear:
    return share_form(rows, ~np.isnan(rows.label), rows.label == 0, rows.label == 1)


def selection_rate_form(rows: TinyTable, group: str | None = None) -> DecisionLinear:
    every = np.ones(len(rows), dtype=bool)
    return share_form(rows, every if group is None else rows.group == group, every, ~every)


def positive_rate_form(rows: TinyTable, label: int, group: str | None = None) -> DecisionLinear:
    """Return the rate of positive decisions among rows with a given label: tpr or fpr."""
    every = np.ones(len(rows), dtype=bool)
    among = rows.label == label
    return share_form(
        rows, among if group is None else among & (rows.group == group), every, ~every
    )


def false_negative_form(rows: TinyTable) -> DecisionLinear:
    """Return the rate of negative decisions among positive rows: fnr."""
    own = rows.label == 1
    return share_form(rows, own, np.zeros_like(own), own)


def label_share_form(rows: TinyTable, label: int, *, yes: bool) -> DecisionLinear:
    """Return the share of rows with the given label and decision among all labelled rows."""
    own, none = rows.label == label, np.zeros(len(rows), dtype=bool)
    known = ~np.isnan(rows.label)
    return share_form(rows, known, own, none) if yes else share_form(rows, known, none, own)
