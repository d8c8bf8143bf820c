"""Deployed models, and features made of binned columns, of data sets for experiments on churn.

`add_deployed_model` turns `adult` and `bank` into a public counterpart of Goh et al. (2016),
section 4.2. The rows are shuffled by a generator seeded with `SEED` and divided: 20 % are older
data; of the rest 20 % become the set d2 (labelled), 30 % d3 (labels hidden), and 50 % candidates
for d1, of which each is kept with probability exp(-|log-odds of the deployed model|), as active
learning would. Each set is the same sample of rows however it is split later, so that all sets have
test rows.

The deployed model is a logistic regression trained on the older rows, which are not in the table,
with indicators of about half of the columns. The features are `CrossedBins.shares`: indicators of
the bins of every column and of each pair of the crossed columns, divided by their number in a row.
The bins of a number end at quantiles of the older rows; each category is a bin unless it is rare
among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ratecli.datasets.columns import MISSING_CATEGORY, as_float_array, is_text, with_text
from ratecli.datasets.split import apportion
from ratecli.datasets.table import Table

Floats = NDArray[np.float64]

SEED = 2016
SET_SHARES = {
    "older": Fraction(20, 100),
    "d1": Fraction(40, 100),
    "d2": Fraction(16, 100),
    "d3": Fraction(24, 100),
}
"""Shares of all rows; that of d1 before rows near the decision boundary are selected."""

BINS = 16
RARE_SHARE = 0.01
"""Categories with a smaller share of the older rows are merged."""


def add_deployed_model(
    table: Table, *, label: str, known: Sequence[str], crossed: Sequence[str]
) -> Table:
    """Return the sets d1, d2 and d3 of a table with a deployed model's decisions.

    `label` is the name of the label's column, which is emptied in d3. The deployed model uses the
    features `known`; the pairs of the features `crossed` become features.
    """
    rng = np.random.default_rng(SEED)
    ends = np.cumsum(apportion(len(table), list(SET_SHARES.values())))[:-1]
    dealt = dict(zip(SET_SHARES, np.split(rng.permutation(len(table)), ends), strict=True))
    binned = [_bin_column(table.frame[name], dealt["older"]) for name in table.features]
    bins, levels = np.column_stack([each for each, _ in binned]), tuple(n for _, n in binned)
    seen = [table.features.index(name) for name in known]
    columns = CrossedBins(tuple(levels[k] for k in seen), pairs=()).features(bins[:, seen])
    model = train_logistic_regression(columns[dealt["older"]], table.label[dealt["older"]])
    score = model.decision_function(columns)
    dealt["d1"] = dealt["d1"][sample_near_boundary(score[dealt["d1"]], 1.0, rng)]
    chosen = sorted(table.features.index(name) for name in crossed)
    features = CrossedBins(levels, tuple(combinations(chosen, 2)))
    sets = {name: np.sort(rows) for name, rows in dealt.items() if name != "older"}
    rows = np.concatenate(list(sets.values()))
    name = np.repeat(np.array(list(sets), dtype=object), [len(each) for each in sets.values()])
    frame = table.frame.iloc[rows]
    hidden = pd.Series(name == "d3", index=frame.index)
    frame = frame.assign(
        **{label: frame[label].mask(hidden)},
        set=name,
        deployed=(score[rows] > 0).astype(np.int64),
        deployed_score=score[rows],
    )
    return replace(
        table,
        frame=with_text(frame),
        features=(),
        label=np.where(name == "d3", np.nan, table.label[rows]),
        part=None,
        matrix=features.shares(bins[rows]),
    )


def _bin_column(column: pd.Series, older: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Return the (n,) bins of a column and how many it has, fitted on the older rows.

    If a text column has rare categories, bin 0 merges them.
    """
    if not is_text(column):
        values = as_float_array(column)
        cuts = quantile_cuts(values[older], BINS)
        return bin_values(values, cuts), len(cuts) + 1
    levels = column.fillna(MISSING_CATEGORY)
    shares = levels.iloc[older].value_counts(normalize=True)
    common = pd.Index(sorted(shares.index[shares >= RARE_SHARE]))
    codes = common.get_indexer(levels)
    others = int(codes.min() < 0)
    return codes + others, len(common) + others


def train_logistic_regression(features: sparse.csr_array, label: Floats) -> Any:
    """Return a logistic regression with scikit-learn's default penalty, fitted to high accuracy.

    With a loose tolerance, the decisions would differ between versions of scikit-learn.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  slow

    model = LogisticRegression(solver="newton-cholesky", tol=1e-10, max_iter=100)
    return model.fit(features.toarray(), label)


def sample_near_boundary(
    score: Floats, scale: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return a mask that keeps each row with probability exp(-|score| / scale)."""
    return rng.random(len(score)) < np.exp(-np.abs(score) / scale)


def quantile_cuts(values: Floats, bins: int) -> Floats:
    """Return the inner `bins`-quantiles of (n,) values, increasing; fewer than `bins` - 1 if tied.

    The cuts are among the values but below the maximum, so that no bin of `values` is empty.
    """
    inner = np.quantile(values, np.arange(1, bins) / bins, method="inverted_cdf")
    return np.unique(inner[inner < values.max()])


def bin_values(values: Floats, cuts: Floats) -> NDArray[np.int64]:
    """Return the bin of each value, 0 to len(cuts): bin b has cuts[b - 1] < value <= cuts[b]."""
    return np.searchsorted(cuts, values, side="left")


@dataclass(frozen=True)
class CrossedBins:
    """Indicator features of binned columns and of pairs of them.

    Column j has `levels[j]` bins; `pairs` lists the columns (i, j) that are crossed. The order of
    the features is: the bins of column 0, of column 1, ...; then for each pair (i, j) the bins of j
    with bin 0 of i, with bin 1 of i, ... Each row has exactly one feature of each column and of
    each pair, so linear rules are sums of step functions of one and of two columns.
    """

    levels: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of features of each column, then of each pair."""
        crossed = tuple(self.levels[i] * self.levels[j] for i, j in self.pairs)
        return self.levels + crossed

    @property
    def width(self) -> int:
        return sum(self.sizes)

    def features(self, bins: NDArray[np.integer]) -> sparse.csr_array:
        """Return the (n, width) indicators of (n, len(levels)) bins, with sorted 32-bit indices."""
        indices = self._indices(bins.astype(np.int32))
        starts = np.arange(0, indices.size + 1, len(self.sizes))
        if indices.size <= np.iinfo(np.int32).max:
            starts = starts.astype(np.int32)  # otherwise SciPy would widen the indices, too
        matrix = sparse.csr_array(
            (np.ones(indices.size), indices.ravel(), starts), shape=(len(bins), self.width)
        )
        matrix.has_canonical_format = True
        return matrix

    def shares(self, bins: NDArray[np.integer]) -> sparse.csr_array:
        """Return `features` divided by the number of ones per row, so that each row sums to 1."""
        matrix = self.features(bins)
        matrix.data /= len(self.sizes)
        return matrix

    def _indices(self, bins: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the increasing indices of each row's features, (n, ones per row)."""
        first, second = np.array(self.pairs, dtype=np.int64).reshape(-1, 2).T
        levels = np.array(self.levels, dtype=np.int32)
        crossed = bins[:, first] * levels[second] + bins[:, second]
        offsets = np.cumsum((0, *self.sizes[:-1]), dtype=np.int32)
        return np.hstack([bins, crossed]) + offsets
