"""Adult as LIBSVM has it, where `RATECLI_DATA_MIRROR` names a folder that holds it."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from oracles.goals import Rows
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from ratecli.models.base import Array, Classifier

MIRROR = os.environ.get("RATECLI_DATA_MIRROR", "")
NEEDS_A9A = pytest.mark.skipif(
    not (Path(MIRROR) / "a9a" / "a9a.t").is_file() or not MIRROR,
    reason="RATECLI_DATA_MIRROR names no folder that holds a9a",
)
MEN = 73
"""The column (from 1) of sex = Male."""


@cache
def rows(name: str, column: int = MEN) -> Rows:
    """The file `a9a` or `a9a.t`; group "Male" where the column, counted from 1, is 1, else "Female"."""
    X, y = load_svmlight_file(str(Path(MIRROR) / "a9a" / name), n_features=123)
    male = X[:, [column - 1]].toarray().ravel() == 1
    group = np.where(male, "Male", "Female").astype(object)
    return Rows(sparse.csr_array(X), (y > 0).astype(float), group)


def error_and_ratio(rows: Rows, classifier: Classifier) -> tuple[float, float]:
    """Error, and how many times as often men are selected as women."""
    decisions: Array = classifier.decide(rows.X)
    men, women = (decisions[rows.group == name].mean() for name in ("Male", "Female"))
    return float(np.abs(decisions - rows.label).mean()), float(men / women)
