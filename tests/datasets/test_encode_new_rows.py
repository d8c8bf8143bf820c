"""An encoder on rows that it was not fitted to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from ratecli.datasets import encode
from ratecli.datasets.encode import Encoder, columns_as_known
from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError

TRAIN = {"sex": ["F", "M", "F", "M"], "age": [20.0, 30.0, 40.0, 50.0], "job": ["a", None, "b", "b"]}


def frame(**columns: Any) -> pd.DataFrame:
    """Text columns as `datasets.tables` gives them."""
    return pd.DataFrame({
        name: pd.Series(values, dtype=object if any(isinstance(v, str) for v in values) else None)
        for name, values in columns.items()
    })  # fmt: skip


@pytest.fixture
def encoder() -> Encoder:
    given = frame(**TRAIN)
    return Encoder.fit([Table(given, tuple(TRAIN), np.zeros(4), "")], [np.arange(4)])


def encode_new_rows(encoder: Encoder, given: pd.DataFrame) -> tuple[Any, list[Diagnostic]]:
    return encode.encode_new_rows(encoder, columns_as_known(given, encoder.kinds))


def dense(X: Any) -> np.ndarray:
    return X.toarray() if sparse.issparse(X) else X


def faults(encoder: Encoder, given: pd.DataFrame) -> list[Diagnostic]:
    with pytest.raises(FaultError) as caught:
        encode_new_rows(encoder, given)
    return list(caught.value.faults)


def test_the_same_rows_have_the_same_features(encoder: Encoder):
    given = frame(**TRAIN)
    known = encoder.transform(Table(given, tuple(TRAIN), np.zeros(4), ""))
    again = Encoder.from_json(encoder.as_json())
    np.testing.assert_array_equal(dense(encode_new_rows(again, given)[0]), dense(known))
    moved = given.assign(other=[1, 2, 3, 4], more="x")[["more", "job", "age", "other", "sex"]]
    np.testing.assert_array_equal(dense(encode_new_rows(again, moved)[0]), dense(known))
    assert encode_new_rows(again, given)[1] == []


def test_new_values_and_missing_ones_are_told_of(encoder: Encoder):
    given = frame(sex=["X", "F", "F"], age=[np.nan, 35.0, np.nan], job=["a", "c", "d"])
    X = dense(encode_new_rows(encoder, given)[0])
    assert encoder.names == ("sex=F", "sex=M", "age", "job=(missing)", "job=a", "job=b")
    assert X.tolist() == [[0, 0, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    sex, age, job = encode_new_rows(encoder, given)[1]
    assert [fault.code for fault in (sex, age, job)] == ["W404", "W405", "W404"]
    assert "'sex': 1 row with a value that no training row had, such as 'X'" in sex.message
    assert "'age': 2 rows without a number" in age.message
    assert "training rows, 35" in age.message
    assert "'job': 2 rows" in job.message
    assert "'c'" in job.message


def test_no_value_where_training_rows_all_had_one(encoder: Encoder):
    given = frame(sex=[None, "F"], age=[1, 2], job=["a", "a"])
    (fault,) = encode_new_rows(encoder, given)[1]
    assert "such as '(missing)'" in fault.message
    assert dense(encode_new_rows(encoder, given)[0])[0, :2].tolist() == [0, 0]


@pytest.mark.parametrize("words", [[None, None], ["?", "NA"], [None, "nan"]])
def test_a_column_of_numbers_without_any(encoder: Encoder, words: list[str | None]):
    given = frame(sex=["F", "M"], age=pd.Series(words, dtype=object), job=["a", "a"])
    given["age"] = given["age"].astype(object)
    assert dense(encode_new_rows(encoder, given)[0])[:, 2].tolist() == [0, 0]


def test_all_that_does_not_fit_is_told_at_once(encoder: Encoder):
    first, second, third = faults(encoder, frame(Sex=["F", "F"], age=["20", "old"], job=[1, 2]))
    assert [each.code for each in (first, second, third)] == ["E205", "E411", "E411"]
    assert first.message == "there is no column 'sex', which the model needs"
    assert first.help.startswith("did you mean 'Sex'? columns: Sex, age, job")
    assert "'age' held numbers in training, and here 'old' in row 2" in second.message
    assert "'job' holds numbers, and it held text in training" in third.message


def test_infinite_values_and_how_many_words(encoder: Encoder):
    given = frame(sex=["F"] * 3, age=[1.0, np.inf, -np.inf], job=["a"] * 3)
    (fault,) = faults(encoder, given)
    assert fault.code == "E407"
    assert "an infinite value in row 2, and 2 such rows in all" in fault.message
    (fault,) = faults(encoder, given.assign(age=pd.Series(["x", "y", "1"], dtype=object)))
    assert "here 'x' in row 1, and 2 such rows in all" in fault.message


def test_columns_of_either_kind():
    given = frame(a=["x", "y"], b=[1, 2], c=["1", None])
    known = columns_as_known(given, {"c": "number", "a": None, "b": None})
    assert list(known.columns) == ["c", "a", "b"]
    np.testing.assert_array_equal(known["c"], [1.0, np.nan])
    assert known["a"].tolist() == ["x", "y"]
