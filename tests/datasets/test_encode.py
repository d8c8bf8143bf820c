from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from ratecli.datasets import encode
from ratecli.datasets.columns import bin_indicators, category_indicators, step_indicators
from ratecli.datasets.encode import Encoder, ReadyMadeError, columns_as_known
from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError


def frame(**columns: Any) -> pd.DataFrame:
    """Text columns as `datasets.tables` returns them."""
    kinds = {
        name: object if any(isinstance(v, str) for v in c) else None for name, c in columns.items()
    }
    return pd.DataFrame({name: pd.Series(c, dtype=kinds[name]) for name, c in columns.items()})


def table(**columns: Any) -> Table:
    found = frame(**columns)
    return Table(found, tuple(columns), np.zeros(len(found)), "")


def ready_made(matrix: Any, **more: Any) -> Table:
    rows = matrix.shape[0]
    return Table(pd.DataFrame(index=range(rows)), (), np.zeros(rows), "", matrix=matrix, **more)


def dense(X: Any) -> np.ndarray:
    return X.toarray() if sparse.issparse(X) else X


def fit(given_table: Table, train: list[bool] | None = None) -> Encoder:
    mask = np.array(train if train is not None else [True] * len(given_table))
    return Encoder.fit([given_table], [np.flatnonzero(mask)])


GAP = float("nan")


@pytest.mark.parametrize(
    ("columns", "train", "names", "expected"),
    [
        (
            {"sex": ["Male", "Female", "Male", "Other"], "age": [2, 3, 4, 9]},
            3,
            ("sex=Female", "sex=Male", "age"),
            [[0, 1, -(1.5**0.5)], [1, 0, 0], [0, 1, 1.5**0.5], [0, 0, 6 * 1.5**0.5]],
        ),
        ({"job": ["a", None]}, 2, ("job=(missing)", "job=a"), [[0, 1], [1, 0]]),
        # constant in training
        ({"x": [0.1] * 7 + [5.0]}, 7, ("x",), [[0]] * 7 + [[4.9]]),
        # a missing number is the mean of the training rows
        (
            {"x": [1.0, GAP, 3.0, 8.0], "y": [GAP] * 3 + [2.0], "z": [5.0, GAP, 5.0, 5.0]},
            3,
            ("x", "y", "z"),
            [[-1, 0, 0], [0, 0, 0], [1, 0, 0], [6, 2, 0]],
        ),
    ],
)
def test_names_and_values_of_features(columns, train, names, expected):
    given_table = table(**columns)
    encoder = fit(given_table, np.arange(len(given_table)) < train)
    assert encoder.names == names
    np.testing.assert_allclose(dense(encoder.transform(given_table)), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("values", "size"),
    [([0.0, 5e-324], "small"), ([1e-200, 2e-200], "small"), ([-1.7e308, 1.7e308], "large")],
)
def test_column_that_cannot_be_scaled(values: list[float], size: str):
    with pytest.raises(FaultError, match=f"E407: the numbers of column 'x' are too {size}"):
        fit(table(x=values))


def test_number_too_far_from_the_training_rows():
    given_table = table(y=[1.0, 2.0, 3.0], x=[1e-3, 2e-3, -1e307])
    told = r"E407: column 'x' has -1e\+307 in row 3, which is too far"
    with pytest.raises(FaultError, match=told):
        fit(given_table, [True, True, False]).transform(given_table)


def test_matrix_is_sparse_if_most_entries_are_zero():
    wide = table(a=[f"v{i % 9}" for i in range(40)], b=[1.0 * i for i in range(40)])
    X = fit(wide).transform(wide)
    assert isinstance(X, sparse.csr_array)
    assert X.has_canonical_format
    assert X.shape == (40, 10)
    narrow = table(a=[f"v{i % 2}" for i in range(40)], b=[1.0 * i for i in range(40)])
    assert isinstance(fit(narrow).transform(narrow), np.ndarray)


def test_several_tables_share_an_encoder():
    first, second = table(a=["x", "y"], n=[0.0, 2.0]), table(n=[4.0, 9.0], a=["z", "w"])
    encoder = Encoder.fit([first, second], [np.array([0, 1]), np.array([0])])
    assert encoder.names == ("a=x", "a=y", "a=z", "n")
    X = dense(encoder.transform(second))
    assert X[:, :3].tolist() == [[0, 0, 1], [0, 0, 0]]
    assert X[0, 3] == pytest.approx((4 - 2) / np.std([0, 2, 4]))


@pytest.mark.parametrize(
    ("other", "rows", "code"),
    [
        (table(a=["x", "y"], b=["u", "v"]), 2, "E411"),
        (table(a=[1.0, 2.0]), 2, "E411"),
        (ready_made(sparse.csr_array((2, 3))), 2, "E411"),
        (table(a=["x", "y"]), 0, "E410"),
    ],
)
def test_different_features_or_no_training_rows_are_refused(other: Table, rows: int, code: str):
    with pytest.raises(FaultError) as caught:
        Encoder.fit([table(a=["x", "y"]), other], [np.arange(rows)] * 2)
    assert [fault.code for fault in caught.value.faults] == [code]


def again(content: object) -> object:
    """As a file gives it back."""
    return json.loads(json.dumps(content))


words = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=12, max_size=12)
numbers = st.lists(st.floats(-1e6, 1e6), min_size=12, max_size=12)


@given(words, numbers, words, numbers)
def test_test_rows_do_not_affect_the_encoder(
    seen: list[str], x: list[float], unseen: list[str], y: list[float]
):
    train = [True] * 12 + [False] * 12
    seen[0], seen[1], x[:2], y[:1] = (
        "a",
        "b",
        [0.0, 1.0],
        [2.0],
    )  # columns of one value are left out
    first = table(w=seen + unseen, x=x + y)
    second = table(w=seen + ["zz"] * 12, x=x + [1e9] * 12)
    assert fit(first, train) == fit(second, train)
    X, Z = (dense(fit(t, train).transform(t)) for t in (first, second))
    np.testing.assert_array_equal(X[:12], Z[:12])
    assert (Z[12:, :-1] == 0).all()


@given(words, numbers)
def test_training_rows_are_standardized_by_an_encoder_that_json_restores(
    w: list[str], x: list[float]
):
    given_table = table(w=[*w, "a", "b"], x=[*x, 0.0, 1.0])
    encoder = fit(given_table)
    assert Encoder.from_json(again(encoder.as_json())) == encoder
    X = dense(encoder.transform(given_table))
    assert (X[:, :-1].sum(axis=1) == 1).all()
    assert np.isfinite(X).all()
    assert abs(X[:, -1].mean()) < 1e-6


def test_features_do_not_depend_on_the_unit():
    units = (1.0, 2.0**400, 2.0**-400, 1e150, 1e-150)
    tables = [table(x=[unit * x for x in (1.5, -2.25, 0.0, 7.0, 3.0)]) for unit in units]
    X, *scaled = (dense(fit(each).transform(each)) for each in tables)
    for other in scaled:
        np.testing.assert_allclose(other, X, rtol=1e-14)


def test_json_of_an_encoder():
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
def test_ready_made_features_are_unchanged_and_cannot_be_restored(counts: bool):
    given_table = ready_made(sparse.csr_array(np.eye(3)), counts=counts)
    encoder = fit(given_table)
    assert counts or encoder.transform(given_table) is given_table.matrix
    assert encoder.names == ("x1", "x2", "x3")
    content = encoder.as_json()
    assert content == {"ready_made": "counts" if counts else "matrix"}
    with pytest.raises(ReadyMadeError, match="counts" if counts else "matrix"):
        Encoder.from_json(again(content))


AGE = {"column": "age", "mean": 1.0, "scale": 2.0}
BROKEN = [
    *([], None, "blocks", {}),
    {"ready_made": "anything"},
    {"blocks": []},
    {"blocks": {"0": AGE}},
    {"blocks": [AGE, AGE]},
    {"blocks": [None]},
    {"blocks": [{"column": "age"}]},
    {"blocks": [AGE | {"column": 3}]},
    {"blocks": [AGE | {"missing": 1}]},
    *({"blocks": [AGE | {"mean": mean}]} for mean in (None, "1", True, [], 10**400, float("nan"))),
    *({"blocks": [AGE | {"scale": scale}]} for scale in (0, -1.0, float("inf"), False, {})),
    *(
        {"blocks": [{"column": "a", "levels": levels}]}
        for levels in ([], "ab", ["a", "a"], ["a", 1], ["a", None], {"a": 1}, [["a"]])
    ),
]


@pytest.mark.parametrize("content", BROKEN, ids=repr)
def test_invalid_json_is_a_value_error(content: object):
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
def test_random_json_is_an_encoder_or_a_value_error(content: object):
    try:
        encoder = Encoder.from_json(content)
    except ValueError:
        return
    assert len(set(encoder.kinds)) == len(encoder.blocks) > 0


TRAIN = {"sex": ["F", "M", "F", "M"], "age": [20.0, 30.0, 40.0, 50.0], "job": ["a", None, "b", "b"]}


@pytest.fixture
def encoder() -> Encoder:
    return fit(table(**TRAIN))


def encode_new_rows(encoder: Encoder, given: pd.DataFrame) -> tuple[Any, list[Diagnostic]]:
    return encode.encode_new_rows(encoder, columns_as_known(given, encoder.kinds))


def faults(encoder: Encoder, given: pd.DataFrame) -> list[Diagnostic]:
    with pytest.raises(FaultError) as caught:
        encode_new_rows(encoder, given)
    return list(caught.value.faults)


def test_training_rows_as_new_rows_have_the_same_features(encoder: Encoder):
    given = frame(**TRAIN)
    known = encoder.transform(table(**TRAIN))
    again = Encoder.from_json(encoder.as_json())
    np.testing.assert_array_equal(dense(encode_new_rows(again, given)[0]), dense(known))
    moved = given.assign(other=[1, 2, 3, 4], more="x")[["more", "job", "age", "other", "sex"]]
    np.testing.assert_array_equal(dense(encode_new_rows(again, moved)[0]), dense(known))
    assert encode_new_rows(again, given)[1] == []


def test_new_categories_and_missing_numbers_are_warnings(encoder: Encoder):
    given = frame(sex=[None, "F", "F"], age=[np.nan, 35.0, np.nan], job=["a", "c", "d"])
    X = dense(encode_new_rows(encoder, given)[0])
    assert encoder.names == ("sex=F", "sex=M", "age", "job=(missing)", "job=a", "job=b")
    assert X.tolist() == [[0, 0, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    sex, age, job = encode_new_rows(encoder, given)[1]
    assert [fault.code for fault in (sex, age, job)] == ["W404", "W405", "W404"]
    assert (
        "'sex': 1 row with a value that did not occur in training, such as '(missing)'"
        in sex.message
    )
    assert "'age' has no number in 2 rows" in age.message
    assert "training rows is used there, 35" in age.message
    assert "'job': 2 rows" in job.message
    assert "'c'" in job.message


def test_all_errors_of_new_rows_are_reported_together(encoder: Encoder):
    first, second, third = faults(encoder, frame(Sex=["F", "F"], age=["20", "old"], job=[1, 2]))
    assert [each.code for each in (first, second, third)] == ["E205", "E411", "E411"]
    assert first.message == "there is no column 'sex', which the model needs"
    assert first.help.startswith("did you mean 'Sex'?")
    assert "'age' held numbers in training, but has 'old' in row 2" in second.message
    assert "'job' holds numbers, but it held text in training" in third.message
    (fault,) = faults(encoder, frame(x=[1]))
    assert fault.message == "there are no columns 'sex', 'age', 'job', which the model needs"


def test_infinite_values_and_words_among_numbers(encoder: Encoder):
    given = frame(sex=["F"] * 3, age=[1.0, np.inf, -np.inf], job=["a"] * 3)
    (fault,) = faults(encoder, given)
    assert fault.code == "E407"
    assert "an infinite value in row 2 (2 such rows in total)" in fault.message
    (fault,) = faults(encoder, given.assign(age=pd.Series(["x", "y", "1"], dtype=object)))
    assert "has 'x' in row 1 (2 such rows in total)" in fault.message


def test_a_column_may_be_empty_in_one_of_several_tables():
    pair = [table(a=["x", "y", "x"]), table(a=[np.nan] * 2)]
    encoder = Encoder.fit(pair, [np.arange(3), np.arange(2)])
    assert encoder.names == ("a=(missing)", "a=x", "a=y")
    assert dense(encoder.transform(pair[1])).tolist() == [[1, 0, 0], [1, 0, 0]]


def test_an_empty_column_of_new_rows_is_of_either_kind():
    known = columns_as_known(frame(a=[np.nan], b=[None]), {"a": "text", "b": "number"})
    assert known["a"].tolist() == [None]
    assert np.isnan(known["b"]).all()


def test_codes_in_new_rows_are_no_numbers():
    with pytest.raises(FaultError, match="held numbers in training, but has '01234' in row 2"):
        columns_as_known(frame(zip=["1234", "01234"]), {"zip": "number"})


def test_columns_of_unknown_kind_are_kept():
    given = frame(a=["x", "y", "z", "x"], b=[1, 2, 3, 4], c=["1", None, None, None])
    known = columns_as_known(given, {"c": "number", "a": None, "b": None})
    assert list(known.columns) == ["c", "a", "b"]
    np.testing.assert_array_equal(known["c"], [1.0, np.nan, np.nan, np.nan])
    assert known["a"].tolist() == ["x", "y", "z", "x"]


VALUES = np.array([0.0, 0.5, 1.0, 1.5, 3.0, 3.5])
EDGES = (0, 1, 3)


def test_indicators_of_bins_steps_and_categories():
    bins = [[0, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 0]]
    steps = [[0, 0], [1, 0], [1, 0], [1, 1], [1, 1], [0, 0]]
    assert bin_indicators(VALUES, EDGES).tolist() == bins
    assert step_indicators(VALUES, EDGES).tolist() == steps
    column = pd.Series(["b", None, "a", "b"], dtype=object)
    assert category_indicators(column).tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
