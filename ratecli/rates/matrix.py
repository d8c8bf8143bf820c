"""r = A p + c: every rate an experiment speaks of, as one sparse matrix over the stacked rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression, Leaf, Of, Ranking, evaluate
from ratecli.rates.ranking import RANKING_MEASURES
from ratecli.rates.sample import Floats, Sample
from ratecli.rates.table import Measurement


@dataclass(frozen=True)
class Predictions:
    """What a classifier says of n rows: chance of a yes in [0, 1], score, estimate of the label."""

    decisions: Floats
    scores: Floats
    estimates: Floats

    def measure(self, of: Measurement, label: Floats) -> Floats:
        """The per-row measurement that takes the place of p; 0 on rows without a label."""
        if of == "decision":
            return self.decisions
        error = np.nan_to_num(self.estimates - label)
        return error if of == "error" else error**2


@dataclass(frozen=True)
class RateMatrix:
    """Rates of a sample on one split.

    Attributes
    ----------
    leaves
        The K rates.
    A
        (K, n) sparse; row k sums with `c[k]` to the rate of `leaves[k]`.
    c
        (K,); NaN where a rate's denominator has no rows.
    """

    leaves: tuple[Leaf, ...]
    A: sparse.csr_array
    c: Floats

    def rates(self, decisions: NDArray[np.float64]) -> Floats:
        """(K,) rates of decisions p, shape (n,); rows of another measurement are meaningless."""
        return np.asarray(self.A @ decisions + self.c)

    def index(self) -> dict[Leaf, int]:
        return {leaf: k for k, leaf in enumerate(self.leaves)}


def rate_matrix(leaves: Iterable[Leaf], sample: Sample, split: str | None) -> RateMatrix:
    """Build A and c. A leaf with a split of its own (`@test`) keeps it."""
    kept = tuple(dict.fromkeys(leaves))
    columns: list[NDArray[np.intp]] = []
    data: list[Floats] = []
    constants = np.zeros(len(kept))
    for k, leaf in enumerate(kept):
        among, values, constants[k] = _row(leaf, sample, split)
        columns.append(among)
        data.append(values)
    starts = np.concatenate([[0], np.cumsum([len(part) for part in columns])]).astype(np.intp)
    flat = (np.concatenate(data), np.concatenate(columns), starts) if kept else None
    A = sparse.csr_array(flat or (0, len(sample)), shape=(len(kept), len(sample)))
    return RateMatrix(kept, A, constants)


def _row(leaf: Leaf, sample: Sample, split: str | None) -> tuple[NDArray[np.intp], Floats, float]:
    rate = leaf.rate
    among = np.flatnonzero(sample.rows(leaf.where, leaf.split or split) & sample.mask(rate.among))
    share = sample.weight[among]
    total = share.sum()
    if not total:
        return among, share, float("nan")
    share = share / total
    yes, no = sample.mask(rate.yes)[among], sample.mask(rate.no)[among]
    values = share * (yes.astype(float) - no.astype(float))
    used = values != 0
    return among[used], values[used], float(share[no].sum())


def measure(
    expressions: Sequence[Expression],
    sample: Sample,
    split: str,
    predictions: Predictions,
    of: Callable[[Of], float] | None = None,
) -> list[float]:
    """The numbers of expressions on one split, NaN where undefined; `of` gives those of `of(...)`."""
    matrix = rate_matrix(ex.leaves(*expressions), sample, split)
    known = _values(matrix, sample, predictions)

    def value_of(node: Expression) -> float:
        if isinstance(node, Leaf):
            return known[node]
        if isinstance(node, Ranking):
            rows = sample.rows(node.where, node.split or split) & sample.mask("labelled")
            return RANKING_MEASURES[node.name](
                sample.label[rows], predictions.scores[rows], sample.weight[rows]
            )
        if isinstance(node, Of) and of:
            return of(node)
        raise TypeError(f"{node} has no value of its own")

    return [evaluate(expression, value_of) for expression in expressions]


def _values(matrix: RateMatrix, sample: Sample, predictions: Predictions) -> dict[Leaf, float]:
    rates = np.empty(len(matrix.leaves))
    for of in {leaf.rate.of for leaf in matrix.leaves}:
        rows = [k for k, leaf in enumerate(matrix.leaves) if leaf.rate.of == of]
        measured = predictions.measure(of, sample.label)
        rates[rows] = matrix.A[rows] @ measured + matrix.c[rows]
    return dict(zip(matrix.leaves, rates.tolist(), strict=True))
