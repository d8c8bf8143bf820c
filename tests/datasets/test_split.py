from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from entries import assign_split_parts
from hypothesis import assume, given
from hypothesis import strategies as st

from ratecli.datasets.split import SPLIT_NAMES, apportion
from ratecli.datasets.table import Table
from ratecli.errors import FaultError


def table(n: int = 90, part: Any = None, **columns: Any) -> Table:
    frame = pd.DataFrame({"x": np.arange(n), **columns})
    label = np.where(np.arange(n) % 5 == 0, np.nan, np.arange(n) % 2)
    return Table(frame, ("x",), label, "", part=part)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def sizes(part) -> tuple[int, ...]:
    return tuple(int((part == name).sum()) for name in SPLIT_NAMES)


shares = st.integers(1, 20).flatmap(
    lambda d: st.tuples(st.integers(1, d), st.integers(0, d), st.just(d))
)


@given(st.integers(30, 300), st.integers(0, 2**32), shares)
def test_fractions_hold_within_one_row(n: int, seed: int, drawn: tuple[int, int, int]):
    a, b, d = drawn
    total = a + b + d
    spec = {"train": f"{d}/{total}", "validation": f"{b}/{total}", "test": f"{a}/{total}"}
    assume(n * a >= 2 * total)
    part = assign_split_parts(table(n), spec, rng(seed))
    assert set(part) <= set(SPLIT_NAMES)
    for size, share in zip(sizes(part), (d, b, a), strict=True):
        assert abs(size - n * share / total) < 1
    assert (part == assign_split_parts(table(n), spec, rng(seed))).all()


@given(st.integers(0, 2**32), st.lists(st.sampled_from("abc"), min_size=60, max_size=120))
def test_fractions_hold_within_one_row_in_each_stratum(seed: int, letters: list[str]):
    given_table = table(len(letters), g=letters)
    labels = given_table.label
    for key, strata in (
        ("g", [np.array(letters) == letter for letter in set(letters)]),
        ("label", [np.isnan(labels), labels == 1, labels == 0]),
    ):
        part = assign_split_parts(given_table, {"test": "1/3", "stratify": [key]}, rng(seed))
        for rows in strata:
            assert abs((part[rows] == "test").sum() - rows.sum() / 3) < 1


@given(st.integers(0, 1000), st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any))
def test_apportioned_counts_are_within_one_of_their_shares(total: int, parts: list[int]):
    share = [Fraction(part, sum(parts)) for part in parts]
    counts = apportion(total, share)
    assert sum(counts) == total
    assert all(abs(c - s * total) < 1 for c, s in zip(counts, share, strict=True))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, (60, 0, 30)),
        ({"test": 0.2}, (72, 0, 18)),
        ({"train": "1/2"}, (45, 0, 45)),
        ({"validation": "2/9"}, (40, 20, 30)),
        ({"validation": 0.1, "test": 0.2}, (63, 9, 18)),
        ({"train": 0.7, "test": 0.3}, (63, 0, 27)),
        ({"train": 0.1, "validation": 0.2, "test": 0.7}, (9, 18, 63)),
        ({"train": 1}, (90, 0, 0)),
        ({"test": 0}, (90, 0, 0)),
        ({"train": 0.8, "validation": "1/5"}, (72, 18, 0)),
    ],
)
def test_unstated_fractions_are_the_rest(spec: dict[str, Any], expected: tuple[int, ...]):
    assert sizes(assign_split_parts(table(90), spec, rng())) == expected


def official() -> Table:
    return table(90, part=np.repeat(["train", "test"], [60, 30]))


@given(
    st.integers(2, 7),
    st.integers(0, 2**32),
    st.lists(st.sampled_from("abc"), min_size=60, max_size=120),
    st.booleans(),
)
def test_each_row_is_in_the_test_set_of_one_fold(folds, seed, letters, stratified):
    given_table, spec = table(len(letters), g=letters), {"folds": folds, "validation": "1/10"}
    spec |= {"stratify": ["g"]} if stratified else {}
    parts = [assign_split_parts(given_table, spec, rng(seed), fold) for fold in range(folds)]
    assert (sum((part == "test").astype(int) for part in parts) == 1).all()
    strata = (
        [np.array(letters) == letter for letter in set(letters)] if stratified else [slice(None)]
    )
    for part in parts:
        for rows in strata:
            assert abs((part[rows] == "test").sum() - len(part[rows]) / folds) <= 1
            assert abs((part[rows] == "validation").sum() - len(part[rows]) / 10) <= 2


def test_official_parts():
    assert (assign_split_parts(official(), {}, rng()) == official().part).all()
    part = assign_split_parts(official(), {"official": True, "validation": "1/3"}, rng())
    assert sizes(part) == (40, 20, 30)
    assert (part[60:] == "test").all()
    for spec, expected in (({"official": False}, (60, 0, 30)), ({"test": 0.5}, (45, 0, 45))):
        pooled, other = (assign_split_parts(official(), spec, rng(k)) for k in (0, 1))
        assert sizes(pooled) == expected
        assert (pooled[:60] == "test").any()
        assert (pooled != other).any()


def test_column_gives_the_split():
    words = ["train"] * 50 + ["validation"] * 10 + ["test"] * 30
    assert list(assign_split_parts(table(90, fold=words), {"by": "fold"}, rng())) == words


@pytest.mark.parametrize(
    ("when", "spec", "expected"),
    [
        ([3, 1, 2, 9, 8, 7], {}, "train train train test test train"),
        ([3, 1, 2, 9, 8, 7], {"validation": "1/3"}, "val train train test test val"),
        (["2024-10", "2024-09-30", "2024-10-02"], {"test": "1/3"}, "train train test"),
        (["2024-01-01T09:00", "2024-01-01 08:00:00.5"], {"test": 0.5}, "test train"),
        (["2024-01-01T09:00+02:00", "2024-01-01T08:00Z"], {"test": 0.5}, "train test"),
        ([1, 1, 1, 1, 2, 2], {"test": 0.5}, "train train train train test test"),
        ([1, 1, 2, 2, 2, 2], {"test": 0.5}, "train train test test test test"),
    ],
)
def test_the_last_rows_in_order_are_the_test_set(when: list, spec: dict[str, Any], expected: str):
    """Rows with equal values are in one part, that of their middle."""
    part = assign_split_parts(table(len(when), when=when), {"order": "when", **spec}, rng())
    assert " ".join(part).replace("validation", "val") == expected


def test_an_order_is_preferred_to_an_official_split():
    newest_first = table(90, ["train"] * 60 + ["test"] * 30, when=-np.arange(90))
    part = assign_split_parts(newest_first, {"order": "when"}, rng())
    assert list(part) == ["test"] * 30 + ["train"] * 60


FOLDS = table(90, fold=["train", "test"] * 45)


@pytest.mark.parametrize(
    ("given_table", "spec", "code"),
    [
        (FOLDS, {"train": 0.5, "test": 0.3}, "E410"),
        (FOLDS, {"validation": 0.9}, "E410"),
        (FOLDS, {"validation": 0.001}, "E410"),
        (FOLDS, {"official": True}, "E410"),
        (FOLDS, {"by": "x"}, "E410"),
        (FOLDS, {"by": "flod"}, "E205"),
        (FOLDS, {"stratify": ["z"]}, "E205"),
        (table(90, fold=["train"] * 90), {"by": "fold"}, "E410"),
        (table(90, fold=["train", None] * 45), {"by": "fold"}, "E410"),
        (table(1), {}, "E410"),
        (FOLDS, {"order": "fold"}, "E410"),
        (FOLDS, {"order": "flod"}, "E205"),
        (table(90, day=[1] * 90), {"order": "day"}, "E410"),
        (table(90, day=[*range(89), None]), {"order": "day"}, "E410"),
        (table(90, day=["2024-02-01"] * 89 + ["2024-02-31"]), {"order": "day"}, "E410"),
        (table(90, day=["2024-02-01"] * 89 + ["2024-02-01 9:30 PM"]), {"order": "day"}, "E410"),
    ],
)
def test_impossible_splits_are_refused(given_table: Table, spec: dict[str, Any], code: str):
    with pytest.raises(FaultError) as caught:
        assign_split_parts(given_table, spec, rng())
    (fault,) = caught.value.faults
    assert fault.help
    assert fault.code == code
