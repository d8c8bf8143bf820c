"""r = A p + c: every rate an experiment speaks of, as one sparse matrix over the stacked rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.rates import expression as ex
from ratecli.rates.expression import (
    AlgorithmMetric,
    Disclosure,
    Expression,
    Leaf,
    RankingMeasure,
    evaluate,
)
from ratecli.rates.sample import Floats, Sample
from ratecli.rates.table import Measurement

MIN_PROXY_SHARE = 1e-12
"""What a proxy says of less than this share of the rows, it does not say."""


def disclosivity(proxy: Floats, groups: Floats, weight: Floats) -> float:
    """Largest `|P(group k | proxy says j) - P(group k)|` over all j and k, from 0 to 1.

    Of rows with a group: rows without one are left out, and so is what the proxy never says.

    Parameters
    ----------
    proxy
        (n, L) chances that it says j of a row, adding up to 1.
    groups
        (n, K) 1 in a row's group and 0 elsewhere; all 0 where it has none.
    weight
        (n,) of rows.

    Returns
    -------
    float
        NaN where no row has a group.
    """
    inside = groups.sum(axis=1) > 0
    share = weight[inside]
    if not share.sum():
        return float("nan")
    share = share / share.sum()
    base = share @ groups[inside]
    both = (proxy[inside] * share[:, None]).T @ groups[inside]  # (L, K): says j, and is of k
    said = both.sum(axis=1)
    kept = said > MIN_PROXY_SHARE
    return float(np.abs(both[kept] / said[kept, None] - base).max())


def _two_class_measure(name: str) -> Callable[[Floats, Floats, Floats], float]:
    """A measure of scikit-learn, of labels, scores and weights (n,); NaN where one class is absent."""

    def value(label: Floats, score: Floats, weight: Floats) -> float:
        if len(np.unique(label)) < 2:
            return float("nan")
        from sklearn import metrics  # noqa: PLC0415  slow, and to look at a file takes none

        return float(getattr(metrics, name)(label, score, sample_weight=weight))

    return value


RANKING_MEASURES = {
    "roc_auc": _two_class_measure("roc_auc_score"),
    "pr_auc": _two_class_measure("average_precision_score"),
}


@dataclass(frozen=True)
class Predictions:
    """What a classifier says of n rows: chance of a yes in [0, 1], score, estimate of the label.

    `memberships` (n, L) are the chances of each value of a proxy for a column, where the classifier is
    made of one; None means that yes and no are all that it says.
    """

    decisions: Floats
    scores: Floats
    estimates: Floats
    memberships: Floats | None = None

    @property
    def proxy(self) -> Floats:
        """(n, L) chances of all that can be said of each row, adding up to 1."""
        if self.memberships is not None:
            return self.memberships
        return np.stack([self.decisions, 1 - self.decisions], axis=1)

    def measure(self, of: Measurement, label: Floats) -> Floats:
        """The per-row measurement that takes the place of p; 0 on rows without a label."""
        if of == "decision":
            return self.decisions
        if of == "log_loss":
            return log_loss(self.estimates, label)
        error = np.nan_to_num(self.estimates - label)
        return error if of == "error" else error**2

    def measurements(self, leaves: Iterable[Leaf], label: Floats) -> dict[Measurement, Floats]:
        """(n,) arrays of all that rates are means of."""
        return {of: self.measure(of, label) for of in {leaf.rate.of: None for leaf in leaves}}


def log_loss(estimates: Floats, label: Floats) -> Floats:
    """(n,) -y log e - (1 - y) log(1 - e) of chances e and labels y of 0 and 1, with 0 log 0 = 0.

    Infinite where e is 0 or 1 and wrong, or no chance; 0 on rows without a label.
    """
    chance = np.clip(estimates, 0.0, 1.0)
    with np.errstate(divide="ignore"):
        loss = 0.0 - np.log(np.where(label == 1, chance, 1 - chance))
    loss = np.where(chance == estimates, loss, np.inf)
    return np.where(np.isnan(label), 0.0, loss)


@dataclass(frozen=True)
class RateMatrix:
    """Rates of a sample on one split: `r = A p + c`.

    Kept as sums of row weights over a total, and divided last: with weights of 1 and decisions of 0
    and 1 all sums are of whole numbers, and a rate is exact to the last bit.

    Attributes
    ----------
    leaves
        The K rates.
    sums
        (K, n) sparse; a row's weight where it counts with a yes, less that where it does with a no.
    against, members
        (K, n) sparse; a row's weight where it counts with a no, and where the rate is a mean over it.
    """

    leaves: tuple[Leaf, ...]
    sums: sparse.csr_array
    against: sparse.csr_array
    members: sparse.csr_array

    @cached_property
    def constants(self) -> Floats:
        """(K,) weight of the rows that count with a no."""
        return np.asarray(self.against.sum(axis=1), dtype=float)

    @cached_property
    def totals(self) -> Floats:
        """(K,) weight of all that the rate is a mean over."""
        return np.asarray(self.members.sum(axis=1), dtype=float)

    @cached_property
    def A(self) -> sparse.csr_array:
        """(K, n); an empty row where a rate is a mean over no rows."""
        inverse = np.divide(1.0, self.totals, out=np.zeros_like(self.totals), where=self.totals > 0)
        return sparse.csr_array(sparse.diags_array(inverse) @ self.sums)

    @cached_property
    def c(self) -> Floats:
        """(K,); NaN where a rate is a mean over no rows."""
        return self._means(self.constants)

    def rates(self, decisions: NDArray[np.float64]) -> Floats:
        """(K,) rates of decisions p, shape (n,); rows of another measurement are meaningless."""
        return self._clipped(self._means(self.sums @ decisions + self.constants))

    def measured(self, measurements: Mapping[Measurement, Floats]) -> Floats:
        """(K,) rates of what each is a mean of; (n,) arrays by name, of those that are asked for.

        Raises
        ------
        KeyError
            If one that a rate is a mean of is not there.
        """
        sums = self.constants.copy()
        for of, rows in self._by_measurement.items():
            sums[rows] += self.sums[rows] @ measurements[of]
        return self._clipped(self._means(sums))

    @cached_property
    def _by_measurement(self) -> dict[Measurement, NDArray[np.intp]]:
        """Which of the K rates are means of what."""
        of = [leaf.rate.of for leaf in self.leaves]
        return {name: np.flatnonzero([each == name for each in of]) for name in dict.fromkeys(of)}

    def _clipped(self, rates: Floats) -> Floats:
        low, high = np.transpose([leaf.rate.range for leaf in self.leaves] or np.zeros((0, 2)))
        return np.asarray(np.clip(rates, low, high))

    def _means(self, sums: Floats) -> Floats:
        empty = np.full_like(self.totals, np.nan)
        return np.divide(sums, self.totals, out=empty, where=self.totals > 0)

    def on(self, rows: NDArray[np.intp]) -> RateMatrix:
        """The same rates over some rows, which must be all that any of them counts."""
        parts = (self.sums, self.against, self.members)
        return RateMatrix(self.leaves, *(sparse.csr_array(part[:, rows]) for part in parts))

    def standard_error(self, slopes: Floats, decisions: Floats) -> float:
        """That of a function of the rates with slopes (K,) there, by the delta method.

        Rows are thought of as drawn at random and `decisions` (n,) as given. NaN where a rate is a
        mean over no rows.
        """
        counted = (
            self.sums * decisions[None]
            + self.against
            - self.members * self.rates(decisions)[:, None]
        )
        shares = np.divide(
            slopes, self.totals, out=np.full_like(self.totals, np.nan), where=self.totals > 0
        )
        influence = counted.T @ np.where(slopes == 0, 0.0, shares)
        return float(np.sqrt((influence**2).sum()))

    def index(self) -> dict[Leaf, int]:
        return {leaf: k for k, leaf in enumerate(self.leaves)}


def build_rate_matrix(leaves: Iterable[Leaf], sample: Sample, split: str | None) -> RateMatrix:
    """Build the matrix. A leaf with a split of its own (`@test`) keeps it."""
    kept = tuple(dict.fromkeys(leaves))
    rows = [_row(leaf, sample, split) for leaf in kept]
    parts = (
        [row.sums for row in rows],
        [row.against for row in rows],
        [row.members for row in rows],
    )
    return RateMatrix(kept, *(_stack_rows(part, len(sample)) for part in parts))


MatrixEntries = tuple[NDArray[np.intp], Floats]
"""Columns and values of a sparse row."""


def _stack_rows(rows: list[MatrixEntries], width: int) -> sparse.csr_array:
    if not rows:
        return sparse.csr_array((0, width))
    starts = np.cumsum([0, *(len(columns) for columns, _ in rows)]).astype(np.intp)
    columns, values = (np.concatenate(part) for part in zip(*rows, strict=True))
    return sparse.csr_array((values, columns, starts), shape=(len(rows), width))


@dataclass(frozen=True)
class _Row:
    sums: MatrixEntries
    against: MatrixEntries
    members: MatrixEntries


def _row(leaf: Leaf, sample: Sample, split: str | None) -> _Row:
    rate = leaf.rate
    among = np.flatnonzero(sample.rows(leaf.over, leaf.split or split) & sample.mask(rate.among))
    weight = sample.weight[among]
    yes, no = sample.mask(rate.yes)[among], sample.mask(rate.no)[among]
    if rate.whole:
        inside = sample.rows(leaf.where)[among]
        yes, no = yes & inside, no & inside
    values = weight * (yes.astype(float) - no.astype(float))
    used = values != 0
    return _Row((among[used], values[used]), (among[no], weight[no]), (among, weight))


def measure(
    expressions: Sequence[Expression],
    sample: Sample,
    split: str,
    predictions: Predictions,
    of: Callable[[AlgorithmMetric], float] | None = None,
) -> list[float]:
    """The numbers of expressions on one split, NaN where undefined; `of` gives those of `of(...)`."""
    matrix = build_rate_matrix(ex.leaves(*expressions), sample, split)
    rates = matrix.measured(predictions.measurements(matrix.leaves, sample.label))
    known: dict[Leaf, float] = dict(zip(matrix.leaves, rates.tolist(), strict=True))

    def value_of(node: Expression) -> float:
        if isinstance(node, Leaf):
            return known[node]
        if isinstance(node, RankingMeasure):
            rows = sample.rows(node.where, node.split or split) & sample.mask("labelled")
            return RANKING_MEASURES[node.name](
                sample.label[rows], predictions.scores[rows], sample.weight[rows]
            )
        if isinstance(node, Disclosure):
            return _measure_disclosivity(node, sample, node.split or split, predictions)
        if isinstance(node, AlgorithmMetric) and of:
            return of(node)
        raise TypeError(f"{node} has no value of its own")

    return [evaluate(expression, value_of) for expression in expressions]


def _measure_disclosivity(
    node: Disclosure, sample: Sample, split: str, predictions: Predictions
) -> float:
    rows = np.flatnonzero(sample.rows(node.where, split))
    proxy, weight = predictions.proxy[rows], sample.weight[rows]
    found = []
    for groups in node.columns:
        members = np.stack([sample.rows(leaf.where)[rows] for leaf in groups], axis=1)
        found.append(disclosivity(proxy, members.astype(float), weight))
    return float(np.max(found))


_WORD = 2**62


@dataclass(frozen=True)
class RowKinds:
    """The rows of a rate matrix by what a yes adds to each rate: +, - or nothing, times a weight.

    Mostly there is one kind for each group, label and deployed decision, however many rows there are.

    Attributes
    ----------
    matrix
        The K rates of n rows.
    of
        (n,) the kind of each row, 0 to Q - 1.
    weight
        (n,) the row's weight in every rate that counts it; 0 if none does.
    patterns
        (K, Q) +1, -1 or 0.
    """

    matrix: RateMatrix
    of: NDArray[np.intp]
    weight: Floats
    patterns: Floats

    @classmethod
    def by(cls, matrix: RateMatrix) -> RowKinds:
        columns = sparse.csc_array(matrix.sums)
        signs = sparse.csc_array(
            (np.sign(columns.data).astype(np.int64), columns.indices, columns.indptr), columns.shape
        )
        words = np.random.default_rng(0).integers(-_WORD, _WORD, size=signs.shape[0])
        keys = signs.T @ words  # sums modulo 2^64: equal for equal patterns, exactly
        _, first, of = np.unique(keys, return_index=True, return_inverse=True)
        weight = np.asarray(abs(columns).max(axis=0).todense(), dtype=float).ravel()
        return cls(matrix, of, weight, signs[:, first].toarray().astype(float))

    @property
    def count(self) -> int:
        """Q."""
        return int(self.patterns.shape[1])

    @cached_property
    def totals(self) -> Floats:
        """(Q,) weight of each kind."""
        return np.asarray(np.bincount(self.of, self.weight, self.count), dtype=float)

    @cached_property
    def _divisors(self) -> Floats:
        """(K,) weight of the rows of each rate, NaN where there are none."""
        totals = self.matrix.totals
        return np.asarray(np.where(totals > 0, totals, np.nan), dtype=float)

    @cached_property
    def slopes(self) -> Floats:
        """(K, Q) what a weight of 1 decided yes adds to each rate; 0 for a rate of no rows."""
        totals = self.matrix.totals[:, None]
        return np.divide(self.patterns, totals, out=np.zeros_like(self.patterns), where=totals > 0)

    def yes(self, decisions: Floats) -> Floats:
        """(Q,) weight decided yes, of (n,) probabilities of a yes."""
        return np.asarray(np.bincount(self.of, self.weight * decisions, self.count), dtype=float)

    def rates(self, yes: Floats) -> Floats:
        """(K, ...) rates of (Q, ...) weights decided yes; sums are divided last."""
        across = (slice(None),) + (None,) * (yes.ndim - 1)
        sums = self.patterns @ yes + self.matrix.constants[across]
        return np.asarray(sums / self._divisors[across])

    def prices(self, prices: Floats) -> Floats:
        """(n,) what a yes of each row costs, where rates have the prices (K,)."""
        return self.weight * (prices @ self.slopes)[self.of]
