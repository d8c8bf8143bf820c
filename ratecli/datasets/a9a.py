"""Adult in LIBSVM's binary features."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from ratecli.datasets.columns import with_text
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

WIDTH = 123

GROUPS: dict[str, dict[int, str]] = {
    "sex": {72: "Female", 73: "Male"},
    "race": {
        67: "White",
        68: "Asian-Pac-Islander",
        69: "Amer-Indian-Eskimo",
        70: "Other",
        71: "Black",
    },
    "age_bucket": {1: "17-25", 2: "26-32", 3: "33-40", 4: "41-49", 5: "50-90"},
    "education_top": {39: "yes"},
}
"""Readable columns: the value of a row is that of the feature (counted from 1) it has."""


def prepare(raw: Raw) -> Table:
    loaded = [
        load_svmlight_file(raw.paths[name], n_features=WIDTH, zero_based=False)
        for name in ("a9a", "a9a.t")
    ]
    matrix = sparse.csr_array(sparse.vstack([rows for rows, _ in loaded], format="csr"))
    frame = with_text(
        pd.DataFrame({name: _readable(matrix, codes) for name, codes in GROUPS.items()})
    )
    return Table(
        frame=frame,
        features=(),
        matrix=matrix,
        label=np.concatenate([labels > 0 for _, labels in loaded]).astype(np.float64),
        part=np.repeat(["train", "test"], [len(labels) for _, labels in loaded]),
        digest=raw.digest,
        files=raw.files,
    )


def _readable(matrix: sparse.csr_array, codes: dict[int, str]) -> NDArray[np.object_]:
    values = np.full(matrix.shape[0], "no", dtype=object)
    for feature, value in codes.items():
        values[matrix[:, [feature - 1]].toarray().ravel() > 0] = value
    return values
