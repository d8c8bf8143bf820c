"""Columns made of encoded features, against the columns that were encoded."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from ratecli.datasets.encode import Encoder
from ratecli.datasets.table import Table
from ratecli.models.layout import ColumnLayout


@pytest.mark.parametrize("dense", [True, False])
def test_columns_are_those_that_were_encoded(dense: bool) -> None:
    random = np.random.default_rng(0)
    known = pd.DataFrame(
        {
            "age": random.normal(40, 10, 50),
            "income": np.where(random.random(50) < 0.3, np.nan, random.normal(size=50)),
            "city": pd.Categorical(random.choice(list("abcd"), 50)),
            "zero": np.where(random.random(50) < 0.5, 3.0, 5.0),
        }
    )
    train = np.flatnonzero(known["city"] != "d").astype(np.intp)  # d is not seen in training
    table = Table(known, tuple(known), np.full(50, np.nan), digest="", missing=True)
    encoder = Encoder.fit([table], [train])
    X = encoder.transform(table)
    assert isinstance(X, np.ndarray) or sparse.issparse(X)
    X = np.asarray(X.toarray() if sparse.issparse(X) else X)
    memberships = np.ones((50, 2))  # columns after the features are ignored
    X = np.hstack([X, memberships])
    found = encoder.layout.columns(X if dense else sparse.csr_array(X))
    codes = known["city"].map({"a": 0, "b": 1, "c": 2}).astype(float)
    numbers = known[["age", "income", "zero"]]
    scaled = (numbers - numbers.loc[train].mean()) / numbers.loc[train].std(ddof=0)
    expected = np.column_stack([scaled["age"], scaled["income"], codes, scaled["zero"]])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert encoder.layout.width == X.shape[1] - 2
    assert encoder.layout.categories == [2]


def test_features_without_columns_are_numbers() -> None:
    X = np.random.default_rng(0).normal(size=(5, 3))
    assert (ColumnLayout.numbers(3).columns(X) == X).all()
    assert (ColumnLayout.numbers(3).columns(sparse.csr_array(X)) == X).all()
