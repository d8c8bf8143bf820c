"""Adult as LIBSVM's binary features."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

WIDTH = 123

RACES = ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black")
GROUPS: dict[str, dict[int, str]] = {
    "sex": {72: "Female", 73: "Male"},
    "race": dict(enumerate(RACES, start=67)),
    "age_bucket": {1: "17-25", 2: "26-32", 3: "33-40", 4: "41-49", 5: "50-90"},
    "education_top": {39: "yes"},
}
"""Readable columns: the value of a row that has the feature (numbered from 1), at most one."""


def prepare(raw: Raw) -> Table:
    from sklearn.datasets import load_svmlight_file

    loaded = [
        load_svmlight_file(raw.paths[name], n_features=WIDTH, zero_based=False)
        for name in ("a9a", "a9a.t")
    ]
    matrix = sparse.csr_array(sparse.vstack([rows for rows, _ in loaded], format="csr"))
    return raw.table(
        pd.DataFrame({name: _readable_column(matrix, codes) for name, codes in GROUPS.items()}),
        np.concatenate([labels > 0 for _, labels in loaded]).astype(np.float64),
        matrix=matrix,
        part=np.repeat(["train", "test"], [len(labels) for _, labels in loaded]),
    )


def _readable_column(matrix: sparse.csr_array, codes: dict[int, str]) -> NDArray[np.object_]:
    values = np.full(matrix.shape[0], "no", dtype=object)
    for feature, value in codes.items():
        values[matrix[:, [feature - 1]].toarray().ravel() > 0] = value
    return values
