"""`adult` and `bank` with a deployed model: a public counterpart of Goh et al. (2016), section 4.2.

The rows are shuffled, by a generator seeded with `SEED`, and dealt: 20 % are older data, and of the
others 20 % become the set d2 (labelled), 30 % d3 (labels hidden), and 50 % candidates for d1, of which
each is kept with probability exp(-|log-odds of the deployed model|), as active learning would choose.
Each set is the same sample of people wherever a later split cuts it, so that all have test rows.

The deployed model is a logistic regression trained on the older rows, which do not appear in the
table, with half of the columns, as zeros and ones. The features are shares: a row has one for the bin of
every column and one for each pair of chosen columns, each the same number, so that they add up to 1.
A number's bins end at quantiles of the older rows; a category is a bin of its own unless it is rare
among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.datasets import adult, bank
from ratecli.datasets.buckets import CrossedBins, bin_values, quantile_cuts
from ratecli.datasets.columns import MISSING_CATEGORY, as_float_array, is_text, with_text
from ratecli.datasets.deployed import sample_near_boundary, train_logistic_regression
from ratecli.datasets.source import Raw
from ratecli.datasets.split import apportion
from ratecli.datasets.table import Table

SEED = 2016
SET_SHARES = {
    "older": Fraction(20, 100),
    "d1": Fraction(40, 100),
    "d2": Fraction(16, 100),
    "d3": Fraction(24, 100),
}
"""Shares of all rows; that of d1 before the choice."""

BINS = 16
RARE_SHARE = 0.01
"""Share of the older rows below which categories are put together."""


@dataclass(frozen=True)
class ChurnColumns:
    """What is done with the columns of one source."""

    label: str
    known: tuple[str, ...]
    """What the deployed model sees: about half of the features."""
    crossed: tuple[str, ...]


ADULT_COLUMNS = ChurnColumns(
    label="income",
    known=(
        "age",
        "education",
        "marital_status",
        "relationship",
        "race",
        "sex",
        "native_country",
    ),  # who the person is; not the work and the capital
    crossed=(
        "age",
        "workclass",
        "education_num",
        "marital_status",
        "occupation",
        "sex",
        "capital_gain",
        "hours_per_week",
    ),
)
BANK_COLUMNS = ChurnColumns(
    label="y",
    known=(
        "age",
        "marital",
        "education",
        "default",
        "balance",
        "housing",
        "loan",
        "duration",
    ),  # the client and the call's length; not its way and time, and no earlier calls
    crossed=(
        "age",
        "balance",
        "housing",
        "contact",
        "month",
        "duration",
        "pdays",
        "poutcome",
    ),
)


def prepare_adult(raw: Raw) -> Table:
    """Both official files as one sample: their split plays no part."""
    return add_deployed_model(adult.prepare(raw), ADULT_COLUMNS)


def prepare_bank(raw: Raw) -> Table:
    return add_deployed_model(bank.prepare(raw), BANK_COLUMNS)


def add_deployed_model(table: Table, design: ChurnColumns) -> Table:
    rng = np.random.default_rng(SEED)
    dealt = _assign_sets(len(table), rng)
    bins, levels = _bin_features(table, dealt["older"])
    known = [table.features.index(name) for name in design.known]
    columns = CrossedBins(tuple(levels[k] for k in known), pairs=()).features(bins[:, known])
    model = train_logistic_regression(columns[dealt["older"]], table.label[dealt["older"]])
    score = model.decision_function(columns)
    dealt["d1"] = dealt["d1"][sample_near_boundary(score[dealt["d1"]], 1.0, rng)]
    sets = {name: np.sort(rows) for name, rows in dealt.items() if name != "older"}
    rows = np.concatenate(list(sets.values()))
    name = np.repeat(np.array(list(sets), dtype=object), [len(each) for each in sets.values()])
    return replace(
        table,
        frame=_frame(table.frame.iloc[rows], design.label, name, score[rows]),
        features=(),
        label=np.where(name == "d3", np.nan, table.label[rows]),
        part=None,
        matrix=_feature_matrix(table.features, levels, design).shares(bins[rows]),
    )


def _assign_sets(total: int, rng: np.random.Generator) -> dict[str, NDArray[np.int64]]:
    """Which rows go where, each to one place."""
    counts = apportion(total, list(SET_SHARES.values()))
    ends = np.cumsum(counts)[:-1]
    return dict(zip(SET_SHARES, np.split(rng.permutation(total), ends), strict=True))


def _feature_matrix(
    features: Sequence[str], levels: tuple[int, ...], design: ChurnColumns
) -> CrossedBins:
    chosen = sorted(features.index(name) for name in design.crossed)
    return CrossedBins(levels, tuple(combinations(chosen, 2)))


def _bin_features(
    table: Table, older: NDArray[np.int64]
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """(n, k) bins of the features, and how many each has, as the older rows say."""
    columns = [table.frame[name] for name in table.features]
    binned = [_bin_text(c, older) if is_text(c) else _bin_numbers(c, older) for c in columns]
    return np.column_stack([bins for bins, _ in binned]), tuple(levels for _, levels in binned)


def _bin_numbers(column: pd.Series, older: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    values = as_float_array(column)
    cuts = quantile_cuts(values[older], BINS)
    return bin_values(values, cuts), len(cuts) + 1


def _bin_text(column: pd.Series, older: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Where something is rare, bin 0 is for it."""
    levels = column.fillna(MISSING_CATEGORY)
    shares = levels.iloc[older].value_counts(normalize=True)
    common = pd.Index(sorted(shares.index[shares >= RARE_SHARE]))
    codes = common.get_indexer(levels)
    others = int(codes.min() < 0)
    return codes + others, len(common) + others


def _frame(
    people: pd.DataFrame, label: str, name: NDArray[np.object_], score: NDArray[np.float64]
) -> pd.DataFrame:
    """The people with what they are for; a label that is hidden is so here, too."""
    hidden = pd.Series(name == "d3", index=people.index)
    return with_text(
        people.assign(
            **{label: people[label].mask(hidden)},
            set=name,
            deployed=(score > 0).astype(np.int64),
            deployed_score=score,
        )
    )
