"""`adult` and `compas` as the code released with Narasimhan, Cotter and Gupta (2019) prepares them.

Numbers are cut at fixed edges e_0 < ... < e_k into bins (e_(b-1), e_b]: what is not above e_0 is in
none, whence people of 17 have no age bin. Bins and categories become zeros and ones, for the two
scores of COMPAS cumulative ones, and nothing is scaled.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ratecli.datasets import adult, compas
from ratecli.datasets.columns import MISSING_CATEGORY, as_float_array
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

Floats = NDArray[np.float64]
BinEdges = tuple[float, ...]

ADULT_BINS: dict[str, BinEdges] = {
    "age": (17, 28, 37, 48, 90),  # quartiles of adult.data
    "capital_gain": (-1, 1, 4000, 10000, 100000),
    "capital_loss": (-1, 1, 1800, 1950, 4500),
    "hours_per_week": (0, 39, 41, 50, 100),
    "education_num": (0, 8, 9, 11, 16),
}
ADULT_CATEGORIES = (
    "workclass",
    "education",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native_country",
)

COMPAS_CATEGORIES = ("c_charge_degree", "race", "score_text", "sex")
COMPAS_AGE: BinEdges = (0, 24, 29, 35, 45, 52.9, 96)
COMPAS_STEPS: dict[str, BinEdges] = {
    "decile_score": (0, 1, 3, 5, 7, 9, 10),
    "priors_count": (0, 1, 3, 5, 9, 38),
}


def prepare_adult(raw: Raw) -> Table:
    """122 features: the bins, then the categories, of which a missing value is one."""
    table = adult.prepare(raw)
    blocks = [
        bin_indicators(as_float_array(table.frame[name]), edges)
        for name, edges in ADULT_BINS.items()
    ]
    blocks += [category_indicators(table.frame[name]) for name in ADULT_CATEGORIES]
    return replace(table, features=(), matrix=sparse.csr_array(np.hstack(blocks)))


def prepare_adult_as_published(raw: Raw) -> Table:
    """The rows of adult.test twice: as the train part, and as the test part that leaks."""
    table = prepare_adult(raw)
    assert table.part is not None
    assert isinstance(table.matrix, sparse.csr_array)
    test = np.flatnonzero(table.part == "test")
    rows = np.concatenate([test, test])
    return replace(
        table,
        frame=table.frame.iloc[rows].reset_index(drop=True),
        label=table.label[rows],
        part=np.repeat(["train", "test"], len(test)),
        matrix=table.matrix[rows],
    )


def prepare_compas(raw: Raw) -> Table:
    """31 features: the days as they are, the categories, age bins, steps of the two scores."""
    table = compas.prepare(raw)
    frame = table.frame
    blocks = [as_float_array(frame["days_b_screening_arrest"])[:, None]]
    blocks += [category_indicators(frame[name]) for name in COMPAS_CATEGORIES]
    blocks += [bin_indicators(as_float_array(frame["age"]), COMPAS_AGE)]
    blocks += [
        step_indicators(as_float_array(frame[name]), edges) for name, edges in COMPAS_STEPS.items()
    ]
    return replace(table, features=(), matrix=np.hstack(blocks))


def bin_indicators(values: Floats, edges: BinEdges) -> Floats:
    """(n, k) ones where edges[b] < value <= edges[b + 1], for each of the k bins."""
    columns = [(values > low) & (values <= high) for low, high in pairwise(edges)]
    return np.column_stack(columns).astype(np.float64)


def step_indicators(values: Floats, edges: BinEdges) -> Floats:
    """(n, k) ones for the bin that a value is in and for all below it; none where it is in none."""
    inside = bin_indicators(values, edges)
    return np.cumsum(inside[:, ::-1], axis=1)[:, ::-1]


def category_indicators(column: pd.Series) -> Floats:
    """(n, k) ones for the k values that occur, in alphabetical order."""
    levels, found = np.unique(column.fillna(MISSING_CATEGORY).to_numpy(str), return_inverse=True)
    return np.eye(len(levels))[found]
