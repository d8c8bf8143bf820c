"""r = A p + c: the rates of an experiment as one sparse matrix over the stacked rows.

Also metrics that are not means over rows (ranking measures and disclosivity).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ratecli.rates import expression as ex
from ratecli.rates.expression import (
    AlgorithmMetric,
    Disclosure,
    Expression,
    Leaf,
    RankingMeasure,
)
from ratecli.rates.rate_function import evaluate
from ratecli.rates.sample import Floats, Sample, make_read_only, read_only
from ratecli.rates.table import DECISION_MEASUREMENTS, Measurement

MIN_PROXY_SHARE = 1e-12
"""Proxy values with a smaller share of the rows than this are ignored."""


def disclosivity(proxy: Floats, groups: Floats, weight: Floats) -> float:
    """Return the largest `|P(group k | proxy value j) - P(group k)|` over all j and k, from 0 to 1.

    Rows without a group and values that the proxy never takes are left out.

    Parameters
    ----------
    proxy
        (n, L) probabilities of each proxy value; rows add up to 1.
    groups
        (n, K) 1 in a row's group and 0 elsewhere; all 0 for a row without a group.
    weight
        (n,) weights of the rows.

    Returns
    -------
    float
        NaN if no row has a group.
    """
    inside = groups.sum(axis=1) > 0
    share = weight[inside]
    if not share.sum():
        return float("nan")
    share = share / share.sum()
    base = share @ groups[inside]
    both = (proxy[inside] * share[:, None]).T @ groups[inside]  # (L, K): P(value j and group k)
    share_of_value = both.sum(axis=1)
    kept = share_of_value > MIN_PROXY_SHARE
    return float(np.abs(both[kept] / share_of_value[kept, None] - base).max())


def _ranking_measure(name: str, label: Floats, score: Floats, weight: Floats) -> float:
    """Return a ranking measure of labels, scores and weights (n,); NaN if a class is absent."""
    if len(np.unique(label)) < 2:
        return float("nan")
    from sklearn import metrics  # noqa: PLC0415  slow, not needed to check a file

    measures = {"roc_auc": metrics.roc_auc_score, "pr_auc": metrics.average_precision_score}
    return float(measures[name](label, score, sample_weight=weight))


@dataclass(frozen=True)
class Predictions:
    """A classifier's outputs on n rows: P(positive decision) in [0, 1], score, estimated label.

    `memberships` (n, L) are the probabilities of each value of a proxy for a column, if the
    classifier is based on a proxy. If None, its values are the positive and the negative decision.
    `returns` are measurements of the rows as episodes, if it is a policy of episodes. `means` (n,)
    are all measurements that are known if each row stands for several streamed ones: their means.
    """

    decisions: Floats
    scores: Floats
    estimates: Floats
    memberships: Floats | None = None
    returns: Mapping[Measurement, Floats] = field(default_factory=dict)
    means: Mapping[Measurement, Floats] | None = None

    @property
    def proxy(self) -> Floats:
        """(n, L) probabilities of each proxy value; rows add up to 1."""
        if self.memberships is not None:
            return self.memberships
        return np.stack([self.decisions, 1 - self.decisions], axis=1)

    def measure(self, of: Measurement, label: Floats) -> Floats:
        """Return the per-row measurement to use in place of p; 0 on rows without a label.

        Raises KeyError if the means of streamed rows do not include it.
        """
        if self.means is not None:
            return self.means[of]
        if of == "decision":
            return self.decisions
        if of not in DECISION_MEASUREMENTS:
            return self.returns[of]
        if of == "log_loss":
            return log_loss(self.estimates, label)
        error = np.nan_to_num(self.estimates - label)
        return error if of == "error" else error**2

    def measurements(self, leaves: Iterable[Leaf], label: Floats) -> dict[Measurement, Floats]:
        """Return (n,) arrays of every measurement that some rate is a mean of."""
        return {of: self.measure(of, label) for of in {leaf.rate.of: None for leaf in leaves}}


def log_loss(estimates: Floats, label: Floats) -> Floats:
    """Return (n,) -y log e - (1 - y) log(1 - e) for estimates e and labels y, with 0 log 0 = 0.

    Infinite where e is 0 or 1 and wrong, or outside [0, 1]; 0 on rows without a label.
    """
    chance = np.clip(estimates, 0.0, 1.0)
    with np.errstate(divide="ignore"):
        loss = 0.0 - np.log(np.where(label == 1, chance, 1 - chance))
    loss = np.where(chance == estimates, loss, np.inf)
    return np.where(np.isnan(label), 0.0, loss)


class Measurements(Protocol):
    """A classifier's outputs (n,) on n rows, by what they measure."""

    def __getitem__(self, of: Measurement, /) -> Floats: ...


@dataclass(frozen=True)
class RateMatrix:
    """Rates of a sample on one split: `r = A p + c`.

    Rates are stored as sums of row weights and divided by the total last. With weights of 1 and
    decisions of 0 and 1, all sums are integers and rates are exact to the last bit.

    Attributes
    ----------
    leaves
        The K rates.
    sums
        (K, n) sparse; a row's weight if it counts when decided positively, minus its weight if it
        counts when decided negatively.
    against, members
        (K, n) sparse; a row's weight if it counts when decided negatively; a row's weight if the
        rate averages over it.
    """

    leaves: tuple[Leaf, ...]
    sums: sparse.csr_array
    against: sparse.csr_array
    members: sparse.csr_array

    def __post_init__(self) -> None:
        make_read_only(self)

    @cached_property
    def constants(self) -> Floats:
        """(K,) total weight of the rows that count when decided negatively."""
        return read_only(np.asarray(self.against.sum(axis=1), dtype=float))

    @cached_property
    def totals(self) -> Floats:
        """(K,) total weight of the rows that each rate averages over."""
        return read_only(np.asarray(self.members.sum(axis=1), dtype=float))

    @cached_property
    def A(self) -> sparse.csr_array:
        """(K, n) matrix; all zeros for a rate over no rows."""
        inverse = _divide(np.ones_like(self.totals), self.totals)
        return read_only(sparse.csr_array(sparse.diags_array(inverse) @ self.sums))

    @cached_property
    def c(self) -> Floats:
        """(K,) constants; NaN for a rate over no rows."""
        return read_only(self._means(self.constants))

    def rates(self, decisions: NDArray[np.float64]) -> Floats:
        """Return (K,) rates of decisions p (n,); rates of other measurements are meaningless."""
        return self._clipped(self._means(self.sums @ decisions + self.constants))

    def measured(self, measurements: Measurements) -> Floats:
        """Return (K,) rates, each computed from its own measurement: (n,) arrays by name.

        Raises
        ------
        KeyError
            If a measurement that some rate needs is missing.
        """
        kinds = [leaf.rate.of for leaf in self.leaves]
        sums = self.constants.copy()
        for of in dict.fromkeys(kinds):
            rows = np.flatnonzero([kind == of for kind in kinds])
            sums[rows] += self.sums[rows] @ measurements[of]
        return self._clipped(self._means(sums))

    def _clipped(self, rates: Floats) -> Floats:
        low, high = np.transpose([leaf.rate.range for leaf in self.leaves] or np.zeros((0, 2)))
        return np.asarray(np.clip(rates, low, high))

    def _means(self, sums: Floats) -> Floats:
        return _divide(sums, self.totals, np.nan)

    def zero(self, leaf: Leaf) -> RateMatrix:
        """Return the rates with one over no rows as 0 for every decision."""
        k, everything = self.index()[leaf], np.ones((1, self.members.shape[1]))
        row = sparse.csr_array(np.eye(len(self.leaves))[:, [k]]) @ sparse.csr_array(everything)
        return replace(self, members=sparse.csr_array(self.members + row))

    def of_leaves(self, leaves: Iterable[Leaf]) -> RateMatrix:
        """Return some of the rates, in the order given."""
        own, index = tuple(leaves), self.index()
        at = [index[leaf] for leaf in own]
        parts = (self.sums, self.against, self.members)
        return RateMatrix(own, *(sparse.csr_array(part[at]) for part in parts))

    def on(self, rows: NDArray[np.intp]) -> RateMatrix:
        """Restrict the rates to some rows, which must include every row that any rate counts."""
        parts = (self.sums, self.against, self.members)
        return RateMatrix(self.leaves, *(sparse.csr_array(part[:, rows]) for part in parts))

    def standard_error(
        self,
        slopes: Floats,
        measured: Mapping[Measurement, Floats],
        counts: Floats | None = None,
    ) -> Floats:
        """Return the standard errors of functions of the rates, by the delta method.

        `slopes` (..., K) are their gradients at the rates; the result has the leading axes. NaN if
        a rate is over no rows. For the other arguments see `covariance`.
        """
        squares = ((slopes @ self.covariance(measured, counts)) * slopes).sum(axis=-1)
        undefined = (np.asarray(slopes) != 0) & (self.totals == 0)
        return np.where(undefined.any(axis=-1), np.nan, np.sqrt(np.maximum(squares, 0.0)))

    def covariance(
        self,
        measured: Mapping[Measurement, Floats],
        counts: Floats | None = None,
        prior: float = 0.0,
    ) -> Floats:
        """Return the covariance (K, K) of the rates' sampling errors, 0 for a rate over no rows.

        Rows are treated as a random sample and their measurements, (n,) arrays by name, as fixed.
        With `counts` (n,), each column stands for that many rows that count alike, of which a share
        `measured["decision"]` is decided positively. With `prior`, the variances of
        `unseen_variance` are added.
        """
        rates = self.measured(measured)
        no = self.against - self.members * rates[:, None]
        if counts is not None:
            chance, each = measured["decision"], _divide(np.ones(len(counts)), counts)
            yes = no + self.sums
            products = yes * (each * chance) @ yes.T + no * (each * (1 - chance)) @ no.T
            return self._scaled(products, rates, prior)
        for of, values in measured.items():
            own = np.array([leaf.rate.of == of for leaf in self.leaves], dtype=float)
            no = no + self.sums * own[:, None] * values
        return self._scaled(no @ no.T, rates, prior)

    def _scaled(self, products: sparse.csr_array, rates: Floats, prior: float) -> Floats:
        """Return the covariance, given the sums of products of deviations over rows (K, K)."""
        inverse = _divide(np.ones_like(self.totals), self.totals)
        known = np.asarray(inverse[:, None] * products.toarray() * inverse)
        return known + np.diag(unseen_variance(rates, self.totals, prior)) if prior else known

    def index(self) -> dict[Leaf, int]:
        return {leaf: k for k, leaf in enumerate(self.leaves)}


PRIOR_ROWS = 2.0
"""Number of imaginary rows that `unseen_variance` adds to those of a rate."""


def unseen_variance(rates: Floats, totals: Floats, prior: float = PRIOR_ROWS) -> Floats:
    """Return the variance (K,) that rates of few rows lack: all of it if they are 0 or 1.

    It is the excess of the variance with `prior` more rows, half of them positive, as in Agresti
    and Coull (1998).
    """
    near = (rates * totals + prior / 2) / (totals + prior)
    more = np.maximum(near * (1 - near) - rates * (1 - rates), 0.0)
    return np.nan_to_num(_divide(more, totals))


def _divide(numerator: Floats, totals: Floats, empty: float = 0.0) -> Floats:
    """Divide by total weights; `empty` where the total is 0."""
    return np.divide(numerator, totals, out=np.full_like(numerator, empty), where=totals > 0)


def build_rate_matrix(leaves: Iterable[Leaf], sample: Sample, split: str | None) -> RateMatrix:
    """Build the rate matrix of a split. A leaf with a split of its own (`@test`) keeps it."""
    kept = tuple(dict.fromkeys(leaves))
    rows = [_matrix_rows(leaf, sample, split) for leaf in kept]
    parts = zip(*rows, strict=True) if rows else ((), (), ())
    return RateMatrix(kept, *(_stack_rows(part, len(sample)) for part in parts))


MatrixEntries = tuple[NDArray[np.intp], Floats]
"""Column indices and values of a sparse row."""


def _stack_rows(rows: Sequence[MatrixEntries], width: int) -> sparse.csr_array:
    if not rows:
        return sparse.csr_array((0, width))
    starts = np.cumsum([0, *(len(columns) for columns, _ in rows)]).astype(np.intp)
    columns, values = (np.concatenate(part) for part in zip(*rows, strict=True))
    return sparse.csr_array((values, columns, starts), shape=(len(rows), width))


def _matrix_rows(
    leaf: Leaf, sample: Sample, split: str | None
) -> tuple[MatrixEntries, MatrixEntries, MatrixEntries]:
    """Return a rate's rows of `sums`, `against` and `members`."""
    rate = leaf.rate
    among = np.flatnonzero(sample.rows(leaf.over, leaf.split or split) & sample.mask(rate.among))
    weight = sample.weight[among]
    yes, no = sample.counts(rate, among)
    if rate.whole:
        inside = sample.rows(leaf.where)[among]
        yes, no = yes * inside, no * inside
    values, against = weight * (yes - no), weight * no
    used, counted = values != 0, against != 0
    return (among[used], values[used]), (among[counted], against[counted]), (among, weight)


def measure(
    expressions: Sequence[Expression],
    sample: Sample,
    split: str,
    predictions: Predictions,
    of: Callable[[AlgorithmMetric], float] | None = None,
) -> list[float]:
    """Return the values of expressions on one split, NaN where undefined.

    `of` returns the values of `of(...)` nodes.
    """
    matrix = build_rate_matrix(ex.leaves(*expressions), sample, split)
    rates = matrix.measured(predictions.measurements(matrix.leaves, sample.label))
    known: dict[Leaf, float] = dict(zip(matrix.leaves, rates.tolist(), strict=True))

    def value_of(node: Expression) -> float:
        match node:
            case Leaf():
                return known[node]
            case RankingMeasure():
                rows = sample.rows(node.where, node.split or split) & sample.mask("labelled")
                columns = (sample.label, predictions.scores, sample.weight)
                return _ranking_measure(node.name, *(column[rows] for column in columns))
            case Disclosure():
                return _measure_disclosivity(node, sample, node.split or split, predictions)
            case AlgorithmMetric() if of:
                return of(node)
        raise TypeError(f"{node} has no value of its own")

    nodes = dict.fromkeys(itertools.chain(*map(ex.atoms, expressions)))
    values = {node: value_of(node) for node in nodes}
    return evaluate(expressions, values)


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


def number_keys(keys: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the number (n,) of each key among the sorted distinct ones, and where each is first.

    This equals `np.unique`, which sorts all keys, and is faster if few of them are distinct.
    """
    of, distinct = pd.factorize(keys, sort=True)
    first = np.empty(len(distinct), dtype=np.intp)
    first[of[::-1]] = np.arange(len(of))[::-1]
    return of, first


def sign_patterns(table: sparse.csr_array) -> tuple[NDArray[np.intp], Floats]:
    """Return which columns of a (K, n) matrix have equal signs.

    The results are the number (n,) of each column's pattern, 0 to Q - 1, and the patterns (K, Q).
    """
    signs = sparse.csr_array(
        (np.sign(table.data).astype(np.int64), table.indices, table.indptr), table.shape
    )
    words = np.random.default_rng(0).integers(-_WORD, _WORD, size=signs.shape[0])
    # sums modulo 2^64: equal patterns give exactly equal keys
    of, first = number_keys(signs.T @ words)
    # the layout decides how products are rounded, and so where a search at its limit stops
    return of, signs[:, first].toarray(order="F").astype(float)


@dataclass(frozen=True)
class RowKinds:
    """The rows of a rate matrix by kind: for which rates a positive decision counts +, - or 0.

    Usually there is one kind for each combination of group, label and deployed decision, regardless
    of the number of rows. Rates with different factors (`Rate.factor`), such as `error` and
    `value(profit)`, give a row different weights. The row then has an entry for each factor, as if
    it were several rows with one decision.

    Attributes
    ----------
    matrix
        The K rates of n rows.
    of
        (N,) the kind of each entry, 0 to Q - 1.
    weight
        (N,) the weight of the entry in every rate that counts it; 0 if none does.
    patterns
        (K, Q) +1, -1 or 0.
    row
        (N,) the row of each entry: 0 to n - 1 in order, once for each factor.
    """

    matrix: RateMatrix
    of: NDArray[np.intp]
    weight: Floats
    patterns: Floats
    row: NDArray[np.intp]

    @classmethod
    def by(cls, matrix: RateMatrix) -> RowKinds:
        n, factors = matrix.sums.shape[1], [leaf.rate.factor for leaf in matrix.leaves]
        parts = []
        for factor in dict.fromkeys(factors) or [None]:
            same = np.array([each == factor for each in factors], dtype=float)
            sums = matrix.sums
            if not same.all():
                sums = sparse.csr_array(sparse.diags_array(same) @ sums)
            of, signs = sign_patterns(sums)
            weight, counted = np.zeros(n), np.flatnonzero(sums.data)
            weight[sums.indices[counted]] = abs(sums.data[counted])
            parts.append((of, weight, signs))
        kinds, weights, patterns = zip(*parts, strict=True)
        starts = np.cumsum([0, *(each.shape[1] for each in patterns)])
        return cls(
            matrix,
            np.concatenate([start + own for start, own in zip(starts, kinds, strict=False)]),
            np.concatenate(weights),
            np.hstack(patterns),
            np.tile(np.arange(n), len(parts)),
        )

    @cached_property
    def shares(self) -> sparse.csr_array:
        """(Q, n) weight of each kind in each row."""
        shape = self.count, self.matrix.sums.shape[1]
        return sparse.csr_array((self.weight, (self.of, self.row)), shape)

    def on(self, rows: NDArray[np.intp]) -> RowKinds:
        """Restrict to some rows, in ascending order; kinds keep their numbers."""
        place = np.full(self.matrix.sums.shape[1], -1)
        place[rows] = np.arange(len(rows))
        kept = np.flatnonzero(place[self.row] >= 0)
        return RowKinds(
            self.matrix.on(rows),
            self.of[kept],
            self.weight[kept],
            self.patterns,
            place[self.row[kept]],
        )

    def sum_by_row(self, values: Floats) -> Floats:
        """Return (n,) sums of values (N,) over the entries of each row."""
        return np.asarray(np.bincount(self.row, values, self.matrix.sums.shape[1]), dtype=float)

    @property
    def count(self) -> int:
        """Q, the number of kinds."""
        return int(self.patterns.shape[1])

    @cached_property
    def totals(self) -> Floats:
        """(Q,) total weight of each kind."""
        return np.asarray(np.bincount(self.of, self.weight, self.count), dtype=float)

    @cached_property
    def slopes(self) -> Floats:
        """(K, Q) change of each rate per unit of weight decided positively; 0 for empty rates."""
        return _divide(self.patterns, self.matrix.totals[:, None])

    def rates(self, yes: Floats) -> Floats:
        """Return (K, ...) rates of (Q, ...) weights decided positively; sums are divided last."""
        across = (-1,) + (1,) * (yes.ndim - 1)
        sums = self.patterns @ yes + self.matrix.constants.reshape(across)
        return _divide(sums, self.matrix.totals.reshape(across), np.nan)

    def rates_of(self, decisions: Floats) -> Floats:
        """Return (K, ...) rates of decisions (n, ...)."""
        return self.rates(np.asarray(self.shares @ decisions))
