"""Adult from the files of UCI: plain, with a deployed model, and as in Narasimhan et al. (2019)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import sparse

from ratecli.datasets import columns, deployed_model
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

COLUMNS = tuple(
    "age workclass fnlwgt education education_num marital_status occupation relationship race sex "
    "capital_gain capital_loss hours_per_week native_country income".split()
)
FEATURES = tuple(name for name in COLUMNS if name not in ("fnlwgt", "income"))

DEPLOYED_FEATURES = tuple(
    "age education marital_status relationship race sex native_country".split()
)
"""Features of the deployed model of `prepare_churn`: the person's, without work and capital."""

CROSSED_FEATURES = tuple(
    "age workclass education_num marital_status occupation sex capital_gain hours_per_week".split()
)
"""Features whose pairs are features of `prepare_churn`."""

NARASIMHAN2019_BINS: dict[str, tuple[float, ...]] = {
    "age": (17, 28, 37, 48, 90),  # quartiles of adult.data
    "capital_gain": (-1, 1, 4000, 10000, 100000),
    "capital_loss": (-1, 1, 1800, 1950, 4500),
    "hours_per_week": (0, 39, 41, 50, 100),
    "education_num": (0, 8, 9, 11, 16),
}
NARASIMHAN2019_CATEGORIES = tuple(
    "workclass education marital_status occupation relationship race sex native_country".split()
)


def prepare(raw: Raw) -> Table:
    train, test = (
        pd.read_csv(
            raw.paths[name],
            names=list(COLUMNS),
            header=None,
            skiprows=header_lines,
            skipinitialspace=True,
            na_values=["?"],
            keep_default_na=False,
        )
        for name, header_lines in (("adult.data", 0), ("adult.test", 1))
    )
    read = pd.concat([train, test], ignore_index=True)
    frame = read.assign(income=read["income"].str.rstrip("."))
    return raw.table(
        frame,
        columns.as_float_array(frame["income"] == ">50K"),
        features=FEATURES,
        part=np.repeat(["train", "test"], [len(train), len(test)]),
    )


def prepare_churn(raw: Raw) -> Table:
    """Return both official files as one sample with a deployed model; their split is ignored."""
    return deployed_model.add_deployed_model(
        prepare(raw), label="income", known=DEPLOYED_FEATURES, crossed=CROSSED_FEATURES
    )


def prepare_narasimhan2019(raw: Raw) -> Table:
    """Return 122 features: the bins, then the categories, a missing value being one of them."""
    table = prepare(raw)
    blocks = [
        columns.bin_indicators(columns.as_float_array(table.frame[name]), edges)
        for name, edges in NARASIMHAN2019_BINS.items()
    ]
    blocks += [columns.category_indicators(table.frame[name]) for name in NARASIMHAN2019_CATEGORIES]
    return replace(table, features=(), matrix=sparse.csr_array(np.hstack(blocks)))


def prepare_narasimhan2019_as_published(raw: Raw) -> Table:
    """Return the rows of adult.test twice, as training and as test part, which leaks."""
    table = prepare_narasimhan2019(raw)
    assert table.part is not None
    assert table.matrix is not None
    test = np.flatnonzero(table.part == "test")
    rows = np.concatenate([test, test])
    return replace(
        table,
        frame=table.frame.iloc[rows].reset_index(drop=True),
        label=table.label[rows],
        part=np.repeat(["train", "test"], len(test)),
        matrix=table.matrix[rows],
    )
