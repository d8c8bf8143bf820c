"""Registered data sets as DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ratecli.api.errors import convert_errors
from ratecli.datasets.entry import DatasetEntry
from ratecli.datasets.load import load_entry_table
from ratecli.datasets.registry import find_source
from ratecli.datasets.table import Table


class Dataset(NamedTuple):
    """Rows X (n, d) and labels y (n,): 1, 0 or NaN (unlabelled), or numbers."""

    X: pd.DataFrame
    y: pd.Series


def load_dataset(name: str, *, split: str | None = None, **options: Any) -> Dataset:
    """Load a registered data set (`ratecli ls datasets`), downloading and verifying it if
    necessary.

    Parameters
    ----------
    name : str
        Name of the data set, such as `adult`, or `loans`, which is generated.
    split : str, default=None
        `train`, `validation` or `test`, if the data set has an official split; None for all rows.
    **options
        Options of the data set, as in an experiment file: `rows=2000`,
        `preparation="narasimhan2019"`.

    Returns
    -------
    Dataset
        A pair `X, y`. X has the features, followed by the sensitive columns that are not features;
        pass these to an estimator as `drop`.

    Raises
    ------
    ValueError
        If the data set does not exist or cannot be downloaded, or its features are not columns
        (texts).

    Examples
    --------
    >>> import ratecli
    >>> X, y = ratecli.load_dataset("loans", rows=500)
    >>> X.shape
    (500, 8)
    """
    with convert_errors():
        source = find_source(name)
        table = load_entry_table(DatasetEntry.of({"source": name, **options}), Path())
    if table.matrix is not None:
        raise ValueError(f"the features of '{name}' are ready-made, not columns of a table")
    extra = [
        each for each in source.sensitive if each in table.frame and each not in table.features
    ]
    rows = _rows(table, name, split)
    X = table.frame.loc[rows, [*table.features, *extra]].reset_index(drop=True)
    label = table.label[rows]
    whole = table.label_range is None and not np.isnan(label).any()
    return Dataset(X, pd.Series(label.astype(np.int64) if whole else label, name=source.label))


def _rows(table: Table, name: str, split: str | None) -> Any:
    if split is None:
        return np.ones(len(table), dtype=bool)
    known = () if table.part is None else np.unique(table.part).tolist()
    if split not in known:
        raise ValueError(
            f"'{name}' has no rows called '{split}', only: {', '.join(known) or 'all'}"
        )
    return table.part == split
