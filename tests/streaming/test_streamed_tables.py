"""Streamed tables against the same tables in memory: columns, splits, features, broken files."""

from __future__ import annotations

import os
from datetime import date
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from entries import (
    assign_split_parts,
    load_entry_table,
    read_streamed_table,
    split_streamed_table,
    table_digest,
    write,
)
from scipy import sparse

from ratecli.datasets import tables
from ratecli.datasets.columns import as_array
from ratecli.datasets.encode import Encoder
from ratecli.datasets.split import SPLIT_NAMES
from ratecli.datasets.table import SliceColumns
from ratecli.errors import FaultError
from ratecli.rates.parser import parse_conditions
from ratecli.streaming import cells as cells_module
from ratecli.streaming import table as table_module
from ratecli.streaming.stream import RUN_LENGTH


def frame(rows, seed=0):
    rng = np.random.default_rng(seed)
    job = rng.choice(["cook", "nurse", "smith", "zoo"], rows).astype(object)
    job[rng.random(rows) < 0.1] = None
    return pd.DataFrame({
        "x": rng.normal(size=rows) * 3 + 1e6, "job": job, "age": rng.integers(18, 90, rows),
        "flag": rng.random(rows) < 0.3, "z": rng.normal(size=rows).astype(np.float32),
        "w": rng.random(rows) + 0.5, "sex": rng.choice(["F", "M"], rows),
        "part": rng.choice(SPLIT_NAMES, rows), "y": rng.choice(["no", "yes"], rows),
    })  # fmt: skip


OPTIONS = {"path": "t.parquet", "label": "y", "positive": "yes", "drop": ["part"], "weight": "w",
           "stream": True}  # fmt: skip


def dealt(options, folder, slices=(("sex", []),)):
    return split_streamed_table(options, folder, slices=slices)


def all_rows(rows):
    """Every row of a stream, in order."""
    return rows.read_runs(range(rows.runs()))


def same_features(rows, encoder, table, train, atol):
    """Check that streamed features are those in memory, and return them."""
    known = Encoder.fit([table], [np.flatnonzero(train)])
    assert encoder.names == known.names
    X, Y = (
        each.toarray() if sparse.issparse(each) else each
        for each in (all_rows(rows).X, known.transform(table))
    )
    np.testing.assert_allclose(X, Y, atol=atol)
    shown = ((X == 0) | (X == 1)).all(axis=0)
    np.testing.assert_allclose(rows.coding.shares[shown], X[train][:, shown].mean(axis=0))
    return X


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
@pytest.mark.parametrize(
    "spec", [{}, {"validation": 0.2}, {"test": 0.5, "stratify": ["sex", "label"]}, {"by": "part"}]
)
def test_features_and_splits_equal_those_in_memory(tmp_path, name, spec):
    more = {"said": lambda each: each.job.replace("zoo", "(missing)")}  # beside empty cells
    units = {"tiny": lambda each: 1e-100 * each.x, "huge": lambda each: 1e100 * each.x}
    write(frame(700).assign(**units, **more), tmp_path / name)
    options = OPTIONS | {"path": name, "split": spec}
    _, cells, rows, encoder = dealt(options, tmp_path)
    table = load_entry_table({k: v for k, v in options.items() if k != "stream"}, tmp_path)
    part = assign_split_parts(table, spec, np.random.default_rng(3))
    there = all_rows(rows)
    assert (cells.part[there.cell] == part).all()
    np.testing.assert_array_equal(cells.label[there.cell], table.label)
    np.testing.assert_array_equal(cells.columns["sex"][there.cell], table.frame["sex"])
    np.testing.assert_allclose(there.weight, table.weight, rtol=1e-7)
    X = same_features(rows, encoder, table, part == "train", atol=1e-9)
    x, tiny, huge = (X[:, encoder.names.index(each)] for each in ("x", "tiny", "huge"))
    np.testing.assert_allclose([tiny, huge], [x, x], atol=1e-8)
    np.testing.assert_array_equal(cells.count, np.bincount(there.cell))
    np.testing.assert_allclose(cells.weight, np.bincount(there.cell, there.weight))
    # a sum over rows of weight w has the variance of n rows of weight W / n: the sum of w**2
    squares = np.bincount(there.cell, there.weight**2)
    np.testing.assert_allclose(cells.weight**2 / cells.effective, squares, rtol=1e-6)


def test_numbers_do_not_depend_on_batch_sizes(tmp_path, monkeypatch):
    write(frame(300), tmp_path / "t.parquet")
    write(frame(300), tmp_path / "t.csv")
    found = []
    for k, (batch, piece) in enumerate([(2**15, 2**22), (9, 700), (77, 1500)]):
        monkeypatch.setenv("RATECLI_DATA", str(tmp_path / f"data{k}"))
        monkeypatch.setattr(tables, "BATCH", batch)
        monkeypatch.setattr(tables, "PIECE", piece)
        for name in ("t.parquet", "t.csv"):
            _, cells, rows, encoder = dealt(OPTIONS | {"path": name}, tmp_path)
            X = all_rows(rows).X
            found.append((X.tobytes(), cells.path.read_bytes(), encoder))
    assert found[0] == found[2] == found[4]
    assert found[1] == found[3] == found[5]


def test_long_tables_have_exact_shares_on_average(tmp_path, monkeypatch):
    monkeypatch.setattr(cells_module, "STRETCH", 2**8)
    monkeypatch.setattr(table_module, "MOST_ROWS", 2**8)
    table = frame(6000)
    table.loc[5, "job"] = "rare"
    write(table, tmp_path / "t.parquet")
    spec = {"validation": 0.1, "test": 0.3, "stratify": ["job"]}
    options = OPTIONS | {"split": spec}
    _, cells, rows, _ = dealt(options, tmp_path, slices={"job": []})
    there = all_rows(rows)
    part, job = cells.part[there.cell], cells.columns["job"][there.cell]
    for start in range(0, 6000, 2**8):
        for name in ("cook", "nurse"):
            own = part[start : start + 2**8][job[start : start + 2**8] == name]
            for each, share in zip(SPLIT_NAMES, (0.6, 0.1, 0.3), strict=True):
                assert abs((own == each).sum() - share * len(own)) < 1 + 1e-9
    for each, share in zip(SPLIT_NAMES, (0.6, 0.1, 0.3), strict=True):
        assert (part == each).mean() == pytest.approx(share, abs=0.01)


def test_cells_distinguish_numbers_by_their_cuts(tmp_path):
    table = frame(500)
    table["x"] -= 1e6
    write(table, tmp_path / "t.parquet")
    cut = float(table["x"].iloc[7])
    _, cells, rows, _ = dealt(OPTIONS, tmp_path, slices={"x": [cut, 0.5], "age": []})
    there = all_rows(rows)
    x, age = (cells.columns[name][there.cell] for name in ("x", "age"))
    for value in (cut, 0.5):
        for compare in (np.less, np.less_equal, np.equal, np.greater):
            assert (compare(x, value) == compare(table["x"], value)).all()
    assert len(np.unique(age)) <= 5  # more than 64 ages, compared with none


def test_files_of_a_folder_are_one_table(tmp_path):
    table = frame(300)
    (tmp_path / "parts").mkdir()
    for k, (a, b) in enumerate(pairwise((0, 110, 111, 300))):
        write(table[a:b], tmp_path / "parts" / f"{k}.parquet")
    write(table, tmp_path / "t.parquet")
    found = [dealt(OPTIONS | {"path": name}, tmp_path) for name in ("t.parquet", "parts")]
    assert len(found[1][0]) == 300
    whole, parts = (all_rows(rows).X for _, _, rows, _ in found)
    np.testing.assert_array_equal(whole, parts)
    table.drop(columns="z").to_parquet(tmp_path / "parts" / "9.parquet")
    assert fault(OPTIONS | {"path": "parts"}, tmp_path).startswith("E404")


def fault(options, folder, read=read_streamed_table):
    with pytest.raises(FaultError) as caught:
        read({"stream": read is not load_entry_table, **options}, folder)
    return str(caught.value)


@pytest.mark.parametrize("weight", [1e300, 1e-300, -1.0, np.nan, np.inf])
def test_extreme_weights_are_refused(tmp_path, weight):
    table = frame(300)
    table.loc[7, "w"] = weight
    write(table, tmp_path / "t.csv")
    found = fault(OPTIONS | {"path": "t.csv"}, tmp_path)
    assert found.startswith("E411: weight column 'w' is not between 1e-09 and 1e+09 in row 8")


def slips(word):
    """A CSV of 40 different numbers and a word."""
    return "".join(["x,y\n", *(f"{k},{k % 2}\n" for k in range(40)), f"{word},1\n"]).encode()


def parquet(kind, value):
    """A Parquet file whose column `x` has 0 and a value, given as its integer or bytes."""
    if isinstance(value, bytes):
        offsets = pa.py_buffer(np.array([0, 1, 1 + len(value)], np.int32))
        column = pa.Array.from_buffers(kind, 2, [None, offsets, pa.py_buffer(b"0" + value)])
    else:
        width = pa.int32() if kind == pa.date32() else pa.int64()
        column = pa.array([0, value], width).view(kind)
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": column, "y": [0, 1]}), buffer)
    return buffer.getvalue().to_pybytes()


BROKEN = {
    "ragged.csv": (b"x,y\n1,0\n1,0,3\n", "E404"),
    "heads.csv": (b"x,y\n", "E404"),
    "latin.csv": (b"x,y\n\xe9,0\n", "E404"),
    "twice.csv": (b"x,x\n1,0\n", "E404"),
    "none.parquet": (b"PAR1 this is none PAR1", "E404"),
    "gap.csv": (b"x,y\n1,0\n,1\n", "E407"),
    "inf.csv": (b"x,y\n1,0\ninf,1\n", "E407"),
    "one.csv": (b"x,y\n1,0\n2,0\n", "E406"),
    "three.csv": (b"x,y\n1,0\n2,1\n3,2\n", "E406"),
    "slip.csv": (slips("oops"), "E411"),
    "digit.csv": (slips("1\u0663"), "E411"),
    "timestamp.parquet": (parquet(pa.timestamp("ms"), 2**50), "E404"),
    "zone.parquet": (parquet(pa.timestamp("ms", "Nowhere/Land"), 3), "E404"),
    "duration.parquet": (parquet(pa.duration("s"), 2**50), "E404"),
    "date.parquet": (parquet(pa.date32(), 2**31 - 1), "E404"),
    "text.parquet": (parquet(pa.string(), b"a\xffb"), "E404"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_have_the_errors_of_tables_in_memory(tmp_path, name):
    content, code = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    options = {"path": name, "label": "y"}
    found = [fault(options, tmp_path), fault(options, tmp_path, load_entry_table)]
    assert found[0].startswith(code)
    assert len({each.split(",")[0].replace("Row #3: ", "") for each in found}) == 1
    assert name[-4:] == ".csv" or name == "none.parquet" or "column 'x' holds" in found[0]
    assert code != "E404" or not list(tmp_path.glob("data/streamed/*/records"))


@pytest.mark.parametrize(
    ("test", "unit", "said"),
    [
        (1e-200, 1e-200, "the numbers of column 'x' are too small to be scaled"),
        (1.0, 1.7e308, "the numbers of column 'x' are too large to be scaled"),
        (-1e307, 1e-3, "column 'x' has -1e+307, which is too far from its numbers in the training"),
    ],
)
def test_streamed_columns_that_cannot_be_scaled(tmp_path, test, unit, said):
    part = np.where(np.arange(400) % 4, "train", "test")
    x = np.where(part == "train", np.where(np.arange(400) % 4 == 1, unit, -unit), test)
    write(pd.DataFrame({"x": x, "y": np.arange(400) % 3 == 0, "part": part}), tmp_path / "t.csv")
    with pytest.raises(FaultError) as caught:
        dealt({"path": "t.csv", "label": "y", "stream": True, "split": {"by": "part"}}, tmp_path)
    assert said in str(caught.value)


def test_streamed_rows_are_not_split_in_order(tmp_path):
    write(frame(200).assign(when=range(200)), tmp_path / "t.parquet")
    with pytest.raises(FaultError) as caught:
        dealt(OPTIONS | {"split": {"order": "when"}}, tmp_path)
    assert caught.value.faults[0].code == "E410"
    assert "split: {by: COLUMN}" in caught.value.faults[0].help


def test_truncated_file_leaves_no_records(tmp_path):
    write(frame(50_000), tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(whole[: len(whole) // 2])
    assert fault({"path": "t.parquet", "label": "y"}, tmp_path).startswith("E404")
    (tmp_path / "t.parquet").write_bytes(whole[:9000] + bytes(500) + whole[9500:])
    assert fault({"path": "t.parquet", "label": "y"}, tmp_path).startswith("E404")
    assert not list(tmp_path.glob("data/streamed/*/records"))


def test_records_are_written_once_and_repaired(tmp_path, monkeypatch):
    write(frame(200), tmp_path / "t.parquet")
    table, cells, *_ = dealt(OPTIONS, tmp_path)
    records, kinds = table.store.path.read_bytes(), cells.path.read_bytes()

    def never(*_):
        raise AssertionError("read again")

    with monkeypatch.context() as patched:
        patched.setattr(table_module, "ColumnScan", never)
        dealt(OPTIONS | {"drop": ["part", "z"]}, tmp_path)  # other roles, the same records
    table.store.path.write_bytes(records[:-1])
    cells.path.write_bytes(kinds[:-1])
    again, others, *_ = dealt(OPTIONS, tmp_path)
    assert (again.store.path.read_bytes(), others.path.read_bytes()) == (records, kinds)
    assert again.store.path == table.store.path


LATE = {  # what only the last of 400 rows says, and whether files are read again for it
    "nothing": ({}, False),
    "a word": ({"job": "a"}, False),
    "no word": ({"sex": None}, False),
    "a wide number": ({"z": 1e300}, True),
    "a word among numbers": ({"code": "b"}, True),
    "a number among none": ({"empty": "3"}, False),
    "a word among none": ({"empty": "b"}, True),
    "a code among numbers": ({"code": "06"}, True),
}


@pytest.mark.parametrize("what", LATE)
def test_late_rows_change_the_format_of_records(tmp_path, monkeypatch, what):
    last, again = LATE[what]
    table = frame(400).drop(columns=["x", "w", "flag"]).astype({"z": float})
    table["z"] = np.arange(400.0)
    table["code"] = [str(k % 7) for k in range(400)]
    table["empty"] = None
    for name, value in last.items():
        table.loc[399, name] = value
    table.astype({"empty": "string"}).to_parquet(tmp_path / "t.parquet", row_group_size=300)
    options = {"path": "t.parquet", "drop": ["code", "empty"], "stream": True}
    options |= {"label": "y", "positive": "yes"}
    readings, batches = [], tables.TableFile.batches

    def counted(self):
        readings.append(tables.BATCH)
        return batches(self)

    monkeypatch.setattr(tables.TableFile, "batches", counted)
    monkeypatch.setattr(tables, "BATCH", 300)
    pieces = read_streamed_table(options, tmp_path).store
    assert len(readings) == 1 + again
    ((_, records),) = pieces.pieces()
    assert records["numbers"].dtype == (float if what == "a wide number" else np.float32)
    columns = {column.name: column for column in pieces.columns}
    for place, name in enumerate(pieces.format.words):
        known = np.array(columns[name].words, dtype=object)[records["codes"][:, place]]
        told = ["-" if word is None else word for word in known]
        assert told == table[name].fillna("-").tolist()
    for place, name in enumerate(pieces.format.numbers):
        told = pd.to_numeric(table[name])
        np.testing.assert_array_equal(records["numbers"][:, place], told)


def test_digest_depends_on_the_content_of_files(tmp_path):
    write(frame(100), tmp_path / "t.parquet")
    first = read_streamed_table(OPTIONS, tmp_path).digest
    assert table_digest(OPTIONS | {"split": {"test": 0.5}}, tmp_path) == first
    assert table_digest(OPTIONS | {"stream": False}, tmp_path) != first
    assert fault(OPTIONS | {"sha256": "0" * 64}, tmp_path).startswith("E403")
    write(frame(100, 1), tmp_path / "t.parquet")
    assert table_digest(OPTIONS, tmp_path) != first


def test_column_with_too_many_words_may_be_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr("ratecli.streaming.table.MAX_TEXT_LEVELS", 50)
    table = frame(200).assign(name=[f"n{k}" for k in range(200)])
    write(table, tmp_path / "t.parquet")
    options = {"path": "t.parquet", "label": "y", "positive": "yes"}
    assert fault(options, tmp_path).startswith("E411: column 'name' has more than")
    found = read_streamed_table(options | {"drop": ["name"]}, tmp_path)
    assert "name" not in found.values()
    for split, slices in (({}, ["name"]), ({"stratify": ["name"]}, ())):
        more = {"drop": ["name"], "split": split}
        with pytest.raises(FaultError, match="E411: column 'name' has too many values"):
            read_streamed_table(options | more, tmp_path, None, slices)


def test_data_folder_that_cannot_be_written(tmp_path, monkeypatch):
    write(frame(50), tmp_path / "t.parquet")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RATECLI_DATA", str(tmp_path / "file"))
    assert fault(OPTIONS, tmp_path).startswith("E413")


def test_runs_and_samples_of_rows(tmp_path):
    write(frame(1000), tmp_path / "t.parquet")
    _, cells, rows, _ = dealt(OPTIONS, tmp_path)
    there, last = all_rows(rows), rows.runs() - 1
    some = rows.read_runs([3, 0, last])
    starts = (3 * RUN_LENGTH, 0, last * RUN_LENGTH)
    places = [k for start in starts for k in range(start, min(start + RUN_LENGTH, 1000))]
    np.testing.assert_array_equal(some.numbers[some.rows], there.numbers[places])
    np.testing.assert_array_equal(some.cell, there.cell[places])
    train = np.flatnonzero(cells.part == "train")
    kept = all_rows(rows[train])
    np.testing.assert_array_equal(train[kept.cell], there.cell[np.isin(there.cell, train)])
    chances = (cells.columns["sex"] == "F").astype(float)
    rng = np.random.default_rng(5)
    drawn = rows.sample_rows(chances, rng)
    assert len(drawn) == cells.count[chances > 0].sum()
    assert abs(len(rows.sample_rows(chances / 2, rng)) - len(drawn) / 2) < 80


def test_files_of_killed_processes_are_removed(tmp_path):
    write(frame(80), tmp_path / "t.parquet")
    folder = dealt(OPTIONS, tmp_path)[0].store.folder
    (folder / "records").unlink()
    old, new = folder / ".new-abc.tmp", folder / ".new-abd.tmp"
    old.mkdir()
    new.mkdir()
    os.utime(old, (0, 0))
    assert dealt(OPTIONS, tmp_path)[0].store.rows == 80
    assert (old.exists(), new.exists()) == (False, True)


def test_columns_of_all_types_equal_those_in_memory(tmp_path):
    n, rng = 120, np.random.default_rng(0)
    codes = pa.array(rng.integers(0, 3, n).astype(np.int8))
    table = pa.table({
        "decimal": [Decimal(f"{k % 7}.25") for k in range(n)],
        "day": [date(2020, 1, 1 + k % 5) for k in range(n)],
        "nothing": pa.nulls(n),
        "coded": pa.DictionaryArray.from_arrays(codes, pa.array([10, 20, 30])),
        "words": pa.DictionaryArray.from_arrays(codes, pa.array(["1", "2.5", "7"])),
        "large": pa.array(rng.choice(["a", " b ", ""], n).tolist(), pa.large_string()),
        "long": rng.integers(2**40, 2**41, n),
        "cat": rng.integers(0, 3, n).astype(float),
        "flag": [None if k % 9 == 0 else bool(k % 2) for k in range(n)],
        "y": [bool(k % 3) for k in range(n)],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=37)
    options = {"path": "t.parquet", "label": "y", "categorical": ["cat"]}
    _, cells, rows, encoder = dealt(options, tmp_path, slices={"day": [], "long": [2.0**40]})
    here = load_entry_table(options, tmp_path)
    train, there = assign_split_parts(here, {}, np.random.default_rng(3)) == "train", all_rows(rows)
    same_features(rows, encoder, here, train, atol=1e-12)
    assert (cells.columns["day"][there.cell] == here.frame["day"]).all()
    pq.write_table(pa.table({"x": [[1], [2]], "y": [0, 1]}), tmp_path / "list.parquet")
    assert "column 'x' holds list" in fault({"path": "list.parquet", "label": "y"}, tmp_path)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_group_values_are_what_the_file_says(tmp_path, name):
    large = [2**53, 2**53 + 1, None]
    found = pd.DataFrame(
        {"code": ["01", "1", "1.0", "007", "7", "x"] * 10, "number": [1.0, 2] * 30}
    )
    found["spelled"] = ["1", "1.0", "+1"] * 20
    found["zip"], found["id"] = ["0123", "123", "0123"] * 20, pd.array(large * 20, "Int64")
    write(found.assign(y=["a", "b"] * 30), tmp_path / name)
    options = {"path": name, "label": "y", "positive": "a"}
    table = load_entry_table(options, tmp_path)
    arrays = {each: as_array(table.frame[each]) for each in found}
    streamed = read_streamed_table(options | {"stream": True}, tmp_path).values()
    spelled = {"t.csv": 60, "t.parquet": 20}[name]  # fields of a CSV file have no type
    for conditions, rows in {
        "spelled = 1": spelled, "spelled = 1.0": spelled, "spelled >= 1": 60,
        "code = 1": 10, "code = 01": 10, "code in (01, 1.0)": 20, "code != 007": 50,
        "number = 1": 30, "number = 1.0": 30, "number = 01": 30,
        "zip = 0123": 40, "zip = 123": 20, "zip >= 123": 60, "zip > 123": 0,
        "id = 9007199254740992": 20, "id = 9007199254740993": 20, "id != 9007199254740993": 20,
        "id > 0": 40,
    }.items():  # fmt: skip
        assert SliceColumns(arrays).count(parse_conditions(conditions)) == rows, conditions
    for each in found:
        assert SliceColumns(streamed).values[each] == SliceColumns(arrays).values[each]
