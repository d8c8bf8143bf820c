from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from ratecli.datasets.encode import Encoder, ReadyMadeError
from ratecli.datasets.table import Table
from ratecli.errors import FaultError


def table(**columns: Any) -> Table:
    frame = pd.DataFrame(
        {
            name: pd.Series(values, dtype=object if isinstance(values[0], str) else None)
            for name, values in columns.items()
        }
    )
    return Table(frame, tuple(columns), np.zeros(len(frame)), "")


def dense(X: Any) -> np.ndarray:
    return X.toarray() if sparse.issparse(X) else X


def fit(given_table: Table, train: list[bool] | None = None) -> Encoder:
    mask = np.array(train if train is not None else [True] * len(given_table))
    return Encoder.fit([given_table], [np.flatnonzero(mask)])


def test_names_and_values():
    given_table = table(sex=["Male", "Female", "Male", "Other"], age=[20, 30, 40, 90])
    encoder = fit(given_table, [True, True, True, False])
    assert encoder.names == ("sex=Female", "sex=Male", "age")
    scale = np.std([20, 30, 40])
    expected = [[0, 1, -10 / scale], [1, 0, 0], [0, 1, 10 / scale], [0, 0, 60 / scale]]
    np.testing.assert_allclose(dense(encoder.transform(given_table)), expected)


def test_missing_category_is_one_of_its_own():
    given_table = table(job=["a", None, "b", None])
    encoder = fit(given_table)
    assert encoder.names == ("job=(missing)", "job=a", "job=b")
    assert dense(encoder.transform(given_table))[:, 0].tolist() == [0, 1, 0, 1]


def test_constant_column_becomes_zero():
    given_table = table(x=[0.1] * 7 + [5.0], y=[1.0] * 4 + [2.0] * 4)
    X = dense(fit(given_table, [True] * 7 + [False]).transform(given_table))
    assert X[:7, 0].tolist() == [0] * 7
    assert X[7, 0] == pytest.approx(4.9)


NUMBERS = [1.5, -2.25, 0.0, 7.0, 3.0]


@pytest.mark.parametrize("unit", [2.0**660, 2.0**-660, 1e200, 1e-200, 1e307, 1e-306])
def test_features_have_no_unit(unit: float):
    plain, other = table(x=NUMBERS), table(x=[unit * value for value in NUMBERS])
    X = dense(fit(plain).transform(plain))
    scaled = dense(fit(other).transform(other))
    np.testing.assert_allclose(scaled, X, rtol=1e-14)
    if np.frexp(unit)[0] == 0.5:  # a power of two changes no digit
        np.testing.assert_array_equal(scaled, X)


@pytest.mark.parametrize(
    ("values", "size"),
    [([0.0, 5e-324], "small"), ([1e-310, 2e-310], "small"), ([-1.7e308, 1.7e308], "large")],
)
def test_a_column_that_cannot_be_scaled_is_named(values: list[float], size: str):
    with pytest.raises(FaultError, match=f"E407: the numbers of column 'x' are too {size}"):
        fit(table(x=values))


def test_a_number_too_far_from_the_training_rows_is_named():
    given_table = table(y=[1.0, 2.0, 3.0], x=[1e-3, 2e-3, -1e307])
    with pytest.raises(
        FaultError, match=r"E407: column 'x' has -1e\+307 in row 3, which is too far"
    ):
        fit(given_table, [True, True, False]).transform(given_table)


def test_a_missing_number_is_the_mean_of_the_training_rows():
    gap = float("nan")
    given_table = table(x=[1.0, gap, 3.0, 8.0], y=[gap, gap, gap, 2.0], z=[5.0, gap, 5.0, 5.0])
    encoder = fit(given_table, [True, True, True, False])
    expected = [[-1, 0, 0], [0, 0, 0], [1, 0, 0], [6, 2, 0]]
    np.testing.assert_allclose(dense(encoder.transform(given_table)), expected)


def test_sparse_where_most_entries_are_zero():
    wide = table(a=[f"v{i % 9}" for i in range(40)], b=[1.0 * i for i in range(40)])
    X = fit(wide).transform(wide)
    assert isinstance(X, sparse.csr_array)
    assert X.has_canonical_format
    assert X.shape == (40, 10)
    narrow = table(a=[f"v{i % 2}" for i in range(40)], b=[1.0 * i for i in range(40)])
    assert isinstance(fit(narrow).transform(narrow), np.ndarray)


def test_ready_made_matrix_passes_untouched():
    matrix = sparse.csr_array(np.eye(3))
    given_table = Table(pd.DataFrame(index=range(3)), (), np.zeros(3), "", matrix=matrix)
    encoder = fit(given_table)
    assert encoder.transform(given_table) is matrix
    assert encoder.names == ("x1", "x2", "x3")


def test_several_tables_are_encoded_alike():
    first, second = table(a=["x", "y"], n=[0.0, 2.0]), table(n=[4.0, 9.0], a=["z", "w"])
    encoder = Encoder.fit([first, second], [np.array([0, 1]), np.array([0])])
    assert encoder.names == ("a=x", "a=y", "a=z", "n")
    X = dense(encoder.transform(second))
    assert X[:, :3].tolist() == [[0, 0, 1], [0, 0, 0]]
    assert X[0, 3] == pytest.approx((4 - 2) / np.std([0, 2, 4]))


@pytest.mark.parametrize(
    "other",
    [
        table(a=["x", "y"], b=["u", "v"]),
        table(a=[1.0, 2.0]),
        Table(pd.DataFrame(index=range(2)), (), np.zeros(2), "", matrix=sparse.csr_array((2, 3))),
    ],
)
def test_tables_whose_features_differ(other: Table):
    first = table(a=["x", "y"])
    with pytest.raises(FaultError) as caught:
        Encoder.fit([first, other], [np.arange(2), np.arange(2)])
    assert [fault.code for fault in caught.value.faults] == ["E411"]


def test_no_training_rows():
    with pytest.raises(FaultError) as caught:
        fit(table(a=["x"]), [False])
    assert caught.value.faults[0].code == "E410"


words = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=12, max_size=12)
numbers = st.lists(st.floats(-1e6, 1e6), min_size=12, max_size=12)


@given(words, numbers, words, numbers)
def test_test_rows_never_change_the_encoding(
    seen: list[str], x: list[float], unseen: list[str], y: list[float]
):
    train = [True] * 12 + [False] * 12
    first = table(w=seen + unseen, x=x + y)
    second = table(w=seen + ["zz"] * 12, x=x + [1e9] * 12)
    assert fit(first, train) == fit(second, train)
    X, Z = (dense(fit(t, train).transform(t)) for t in (first, second))
    np.testing.assert_array_equal(X[:12], Z[:12])
    assert (Z[12:, :-1] == 0).all()


@given(words, numbers)
def test_training_rows_are_standardized(w: list[str], x: list[float]):
    given_table = table(w=w, x=x)
    encoder = fit(given_table)
    X = dense(encoder.transform(given_table))
    assert (X[:, :-1].sum(axis=1) == 1).all()
    assert np.isfinite(X).all()
    assert abs(X[:, -1].mean()) < 1e-6


def again(content: object) -> object:
    """As a file gives it back."""
    return json.loads(json.dumps(content))


@given(words, numbers)
def test_an_encoder_as_json_is_the_same_again(w: list[str], x: list[float]):
    encoder = fit(table(w=w, x=x))
    assert Encoder.from_json(again(encoder.as_json())) == encoder


def test_json_of_an_encoder_has_each_column_once():
    encoder = fit(table(sex=["Male", None, "Male"], age=[20.0, 30.0, 40.0]))
    scale = float(np.std([20, 30, 40]))
    assert again(encoder.as_json()) == {
        "blocks": [
            {"column": "sex", "levels": ["(missing)", "Male"]},
            {"column": "age", "mean": 30.0, "scale": scale},
        ]
    }
    assert encoder.kinds == {"sex": "text", "age": "number"}


@pytest.mark.parametrize("counts", [False, True])
def test_ready_made_features_are_of_no_columns(counts: bool):
    matrix = sparse.csr_array(np.eye(3))
    given_table = Table(
        pd.DataFrame(index=range(3)), (), np.zeros(3), "", matrix=matrix, counts=counts
    )
    content = fit(given_table).as_json()
    assert content == {"ready_made": "counts" if counts else "matrix"}
    with pytest.raises(ReadyMadeError, match="counts" if counts else "matrix"):
        Encoder.from_json(again(content))


AGE = {"column": "age", "mean": 1.0, "scale": 2.0}
BROKEN = [
    [],
    None,
    "blocks",
    {},
    {"ready_made": "anything"},
    {"blocks": []},
    {"blocks": {"0": AGE}},
    {"blocks": [AGE, AGE]},
    {"blocks": [None]},
    {"blocks": [{"column": "age"}]},
    {"blocks": [AGE | {"column": 3}]},
    *({"blocks": [AGE | {"mean": mean}]} for mean in (None, "1", True, [], 10**400, float("nan"))),
    *({"blocks": [AGE | {"scale": scale}]} for scale in (0, -1.0, float("inf"), False, {})),
    *(
        {"blocks": [{"column": "a", "levels": levels}]}
        for levels in ([], "ab", ["a", "a"], ["a", 1], ["a", None], {"a": 1}, [["a"]])
    ),
]


@pytest.mark.parametrize("content", BROKEN, ids=repr)
def test_what_is_no_encoder(content: object):
    with pytest.raises(ValueError) as caught:
        Encoder.from_json(content)
    assert type(caught.value) is ValueError


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["blocks", "column", "mean", "scale", "levels"]), inner)
    ),
)


@given(values | st.fixed_dictionaries({"blocks": st.lists(values, min_size=1, max_size=3)}))
def test_anything_is_an_encoder_or_a_value_error(content: object):
    try:
        encoder = Encoder.from_json(content)
    except ValueError:
        return
    assert len(set(encoder.kinds)) == len(encoder.blocks) > 0
