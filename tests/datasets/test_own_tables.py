from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from entries import load_entry_table, missing_entry_files, table_digest

from ratecli.errors import Diagnostic, FaultError

GOOD = "sex,age,zip,paid\nF,20,01,yes\nM,30,02,no\nF,40.5,03,\nM,50,04,yes\n"


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "deep" / "experiment"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def write(base: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = base / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def faults(base: Path, **options: Any) -> tuple[Diagnostic, ...]:
    with pytest.raises(FaultError) as caught:
        load_entry_table({"path": "t.csv", **options}, base)
    assert all(fault.help for fault in caught.value.faults)
    return caught.value.faults


def fault(base: Path, text: str | bytes, **options: Any) -> Diagnostic:
    write(base, text)
    (found,) = faults(base, **options)
    return found


def test_own_table(base: Path):
    path = write(base, GOOD)
    options = {"path": "t.csv", "label": "paid", "positive": "yes", "drop": ["zip"]}
    table = load_entry_table(options, base)
    assert table.features == ("sex", "age")
    np.testing.assert_array_equal(table.label, [1, 0, np.nan, 1])
    assert list(table.frame.columns) == ["sex", "age", "zip", "paid"]
    assert table.frame["sex"].tolist() == ["F", "M", "F", "M"]
    assert table.frame["age"].tolist() == [20, 30, 40.5, 50]
    assert table.frame["paid"].tolist() == ["yes", "no", None, "yes"]
    assert table.frame.dtypes.astype(str).tolist() == ["object", "float64", "int64", "object"]
    assert table.files == (("t.csv", hashlib.sha256(path.read_bytes()).hexdigest()),)
    assert table.digest == table_digest(options, base)
    assert missing_entry_files(options, base) == []


def test_file_is_read_once_until_it_changes(base: Path):
    write(base, GOOD)
    first = load_entry_table({"path": "t.csv", "label": "paid", "positive": "yes"}, base)
    assert load_entry_table({"path": "t.csv", "drop": ["zip"]}, base).frame is first.frame
    write(base, GOOD.replace("20", "25"))
    again = load_entry_table({"path": "t.csv"}, base)
    assert again.frame["age"].tolist() == [25, 30, 40.5, 50]
    assert np.isnan(again.label).all()


def test_no_feature_is_left(base: Path):
    names = [f"f{k}" for k in range(300)]
    write(base, ",".join(names) + "\n" + ",".join(["1"] * 300) + "\n")
    (found,) = faults(base, drop=names)
    assert (found.code, found.message) == ("E411", "no column is left as a feature")
    assert found.help is not None
    assert found.help.endswith("'f18', 'f19', ...")


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["1", "2.5", "-3"], [1, 2.5, -3]),
        (["", "+4", "NA"], [None, 4, None]),
        (["+.5", "1e400", "inf"], [0.5, np.inf, np.inf]),
        (["-nan", "1", "-nan"], [None, 1, None]),
        (["nan", "1_0", "2"], ["nan", "1_0", "2"]),
        (["12 kg", "3", "4"], ["12 kg", "3", "4"]),
        (["infant", "1", "2"], ["infant", "1", "2"]),
        (["?", "no", "yes"], ["?", "no", "yes"]),
        (["NA", "", "none"], ["NA", None, "none"]),
        (["1e3", ".5", "5."], [1000, 0.5, 5]),
        (["0.1", "0.30000000000000004", "1e-310"], [0.1, 0.30000000000000004, 1e-310]),
        (["007", "1", "12345678901234567890"], [7, 1, 12345678901234567890.0]),
        (["0x10", "2", "3"], ["0x10", "2", "3"]),
    ],
)
def test_columns_are_numbers_or_text(base: Path, words: list[str], read: list[Any]):
    write(base, "x,y\n" + "".join(f"{word},1\n" for word in words))
    column = load_entry_table({"path": "t.csv", "features": ["y"]}, base).frame["x"]
    assert column.astype(object).where(column.notna(), None).tolist() == read


def test_features_categorical_and_weight(base: Path):
    write(base, GOOD)
    options = {"path": "t.csv", "features": ["zip", "sex"], "categorical": ["zip"], "weight": "age"}
    table = load_entry_table(options, base)
    assert table.features == ("zip", "sex")
    assert table.frame["zip"].tolist() == ["01", "02", "03", "04"]
    assert table.weight.tolist() == [20, 30, 40.5, 50]


def test_text_keeps_words_for_missing_values(base: Path):
    write(base, 'country,x,y\nNA,1,0\nNone, 2 ,1\n" null ",3,1\n,4,0\n')
    table = load_entry_table({"path": "t.csv", "label": "y"}, base)
    assert table.frame["country"].tolist() == ["NA", "None", "null", None]
    assert table.frame["x"].tolist() == [1, 2, 3, 4]


def test_bom_crlf_quotes_and_other_separators(base: Path):
    write(base, b'\xef\xbb\xbf"a";b\r\n"x;\r\ny";1\r\n\r\nz;0\r\n')
    table = load_entry_table({"path": "t.csv", "label": "b", "separator": ";"}, base)
    assert table.frame["a"].tolist() == ["x;\r\ny", "z"]
    write(base, "a\tb\nu\t1\nv\t0\n", "t.tsv")
    assert load_entry_table({"path": "t.tsv", "label": "b"}, base).frame["a"].tolist() == ["u", "v"]


@pytest.mark.parametrize("separator", ['"', "\n", "\r", "\0", "→"])
def test_invalid_separators(base: Path, separator: str):
    assert fault(base, GOOD, separator=separator).code == "E104"


@pytest.mark.parametrize("separator", ["|", ":", "\\", "'", "x", "\x1f"])
def test_unusual_separators(base: Path, separator: str):
    write(base, f"a{separator}b\n1{separator}0\n2{separator}1\n")
    table = load_entry_table({"path": "t.csv", "separator": separator, "label": "b"}, base)
    assert table.label.tolist() == [0, 1]


def test_parquet(base: Path):
    frame = pd.DataFrame(
        {"s": ["a", None, "b"], "n": [1, 2, 3], "f": [0.5, 1.5, 2.5], "y": [True, False, True]}
    )
    frame["c"] = frame["s"].astype("category")
    frame["day"] = pd.to_datetime("2020-01-02")
    frame.to_parquet(base / "t.parquet")
    table = load_entry_table({"path": "t.parquet", "label": "y"}, base)
    assert table.frame["s"].tolist() == ["a", None, "b"]
    assert table.frame["c"].tolist() == ["a", None, "b"]
    assert table.frame["n"].tolist() == [1, 2, 3]
    assert table.frame["day"][0].startswith("2020-01-02")
    assert table.label.tolist() == [1, 0, 1]
    (base / "t.parquet").rename(base / "t.bin")
    assert len(load_entry_table({"path": "t.bin", "format": "parquet", "label": "y"}, base)) == 3


@pytest.mark.parametrize(
    ("positive", "values", "expected"),
    [
        (None, "0 1", [0, 1]),
        (None, "-1 1", [0, 1]),
        (None, "False True", [0, 1]),
        (None, "1.0 0.0", [1, 0]),
        (0, "0 1", [1, 0]),
        ("no", "no yes", [1, 0]),
        (True, "true false", [1, 0]),
        (2, "1 2", [0, 1]),
        ("2", "1 2", [0, 1]),
        (">50K", "<=50K >50K", [0, 1]),
    ],
)
def test_positive_label(base: Path, positive: Any, values: str, expected: list[int]):
    write(base, "x,y\n" + "".join(f"1,{value}\n" for value in values.split()))
    options = {"path": "t.csv", "label": "y"}
    if positive is not None:
        options["positive"] = positive
    assert load_entry_table(options, base).label.tolist() == expected


@pytest.mark.parametrize(
    ("values", "positive", "said"),
    [
        ("0 1 2", None, "3 values"),
        ("a b c", "a", "3 values"),
        ("1 1", None, "one class only"),
        ("yes yes", "yes", "one class only"),
        ("yes no", None, "which one is positive"),
        ("yes no", "Yes", "not a value"),
        ("NA ?", None, "no value"),
    ],
)
def test_invalid_labels(base: Path, values: str, positive: Any, said: str):
    text = "x,y\n" + "".join(f"1,{value}\n" for value in values.split())
    found = fault(base, text, label="y", **({"positive": positive} if positive else {}))
    assert found.code == "E406"
    assert said in found.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\n",
        "a,b\n",
        "a,b\n1\n",
        "a,b\n1,2\n1,2,3\n",
        "a,b\n1,2,3\n4,5,6\n",
        "a,a\n1,2\n",
        "a, a\n1,2\n",
        "a,\n1,2\n",
        "<!doctype html><html><body>Not found</body></html>",
        b"PAR1\x00\x00\x01",
        b"\x89PNG\r\n\x1a\n\x00\x00",
        "a,b\nJos\xe9,2\n".encode("latin-1"),
        "Jos\xe9,b\n1,2\n".encode("latin-1"),
        'a,b\n"x,2\n',
    ],
)
def test_files_that_are_no_tables(base: Path, text: str | bytes):
    found = fault(base, text)
    assert found.code == "E404"
    assert "'t.csv'" in found.message


def test_files_that_are_no_parquet_tables(base: Path):
    assert fault(base, GOOD, format="parquet").code == "E404"
    assert fault(base, b"", format="parquet").code == "E404"
    pa.parquet.write_table(pa.table({"a": [[1], [2]]}), base / "t.csv")
    assert faults(base, format="parquet")[0].code == "E404"
    write(base, GOOD, "t.xlsx")
    assert faults(base, path="t.xlsx")[0].code == "E404"


@pytest.mark.parametrize(("kind", "value"), [(pa.int64(), 2**53 + 1), (pa.uint64(), 2**64 - 1)])
def test_large_integers_beside_missing_ones(base: Path, kind: pa.DataType, value: int):
    pa.parquet.write_table(pa.table({"x": pa.array([1, None, value], kind)}), base / "t.parquet")
    table = load_entry_table({"path": "t.parquet", "missing": "mean"}, base)
    np.testing.assert_array_equal(table.frame["x"], [1, np.nan, float(value)])


@pytest.mark.parametrize(
    ("cell", "said"), [("", "no number"), ("nan", "no number"), ("-inf", "an infinite value")]
)
def test_missing_and_infinite_features(base: Path, cell: str, said: str):
    found = fault(base, f"x,y\n1,0\n2,1\n{cell},1\n{cell},1\n", label="y")
    assert found.code == "E407"
    assert "'x'" in found.message
    assert "row 3" in found.message
    assert said in found.message


def test_dropped_columns_may_be_infinite(base: Path):
    write(base, "x,z,y\n1,inf,0\n2,,1\n")
    assert load_entry_table({"path": "t.csv", "label": "y", "drop": ["z"]}, base).features == ("x",)


def test_stray_word_among_numbers(base: Path):
    text = "x,y\n" + "".join(f"{i / 7},{i % 2}\n" for i in range(50)) + "12O,1\n"
    found = fault(base, text, label="y")
    assert (found.code, "row 51" in found.message) == ("E411", True)
    assert load_entry_table(
        {"path": "t.csv", "label": "y", "categorical": ["x"]}, base
    ).features == ("x",)


@pytest.mark.parametrize(
    "options",
    [
        {"features": ["paid"], "label": "paid", "positive": "yes"},
        {"features": ["sex"], "drop": ["sex"]},
        {"drop": ["sex", "age", "zip", "paid"]},
        {"label": "age", "weight": "age"},
        {"weight": "sex"},
    ],
)
def test_columns_with_two_roles(base: Path, options: dict[str, Any]):
    assert fault(base, GOOD, **options).code == "E411"


@pytest.mark.parametrize("cell", ["0", "-1", "", "inf"])
def test_weights_must_be_positive(base: Path, cell: str):
    found = fault(base, f"x,w\n1,2\n1,{cell}\n", weight="w")
    assert (found.code, "row 2" in found.message) == ("E411", True)


def test_weights_too_far_apart(base: Path):
    found = fault(base, "x,w\n1,1e-300\n1,1e300\n", weight="w")
    assert found.code == "E411"
    assert found.message.startswith("weight column 'w' ranges from 1e-300 to 1e+300: the largest")


def test_unknown_columns_are_reported_together(base: Path):
    write(base, GOOD)
    found = faults(base, label="piad", drop=["zap"], features=["sex"], weight="w")
    assert [one.code for one in found] == ["E205"] * 3
    assert "did you mean 'paid'?" in str(found[0].help)


def test_split_column_is_no_feature(base: Path):
    write(base, "x,fold,y\n1,train,0\n2,test,1\n")
    options = {"path": "t.csv", "label": "y", "split": {"by": "fold"}}
    assert load_entry_table(options, base).features == ("x",)


def test_sha256(base: Path):
    right = hashlib.sha256(GOOD.encode()).hexdigest()
    write(base, GOOD)
    assert len(load_entry_table({"path": "t.csv", "sha256": right.upper()}, base)) == 4
    assert fault(base, GOOD, sha256="0" * 64).code == "E403"
    with pytest.raises(FaultError, match="E403"):
        table_digest({"path": "t.csv", "sha256": "0" * 64}, base)


@pytest.mark.parametrize("path", ["no.csv", "../../out.csv", ".", "a\0b", "sub/../../../out.csv"])
def test_missing_files_and_paths_out_of_the_folder(base: Path, path: str):
    write(base.parent.parent, GOOD, "out.csv")
    (found,) = faults(base, path=path)
    assert found.code == "E405"
    assert missing_entry_files({"path": "no.csv"}, base) == [str(base / "no.csv")]


def test_paths_in_the_current_folder_and_absolute_paths(
    base: Path, monkeypatch: pytest.MonkeyPatch
):
    outside = write(base.parent.parent, GOOD, "out.csv")
    assert len(load_entry_table({"path": str(outside)}, base)) == 4
    monkeypatch.chdir(base.parent.parent)
    assert len(load_entry_table({"path": "../../out.csv"}, base)) == 4


def test_digest_depends_on_content_and_roles_only(base: Path):
    write(base, GOOD)
    plain = table_digest({"path": "t.csv"}, base)
    assert plain == table_digest({"path": str(base / "t.csv"), "split": {"test": 0.5}}, base)
    assert plain != table_digest({"path": "t.csv", "drop": ["zip"]}, base)
    write(base, GOOD.replace("20", "21"))
    assert plain != table_digest({"path": "t.csv"}, base)


NUMBERS = "x,y\n1,2.5\n2,\n3,4\n4,0\n"


def test_numeric_label(base: Path):
    write(base, NUMBERS)
    options = {"path": "t.csv", "label": "y", "target": "number", "label_range": [0, 4]}
    table = load_entry_table(options, base)
    np.testing.assert_array_equal(table.label, [2.5, np.nan, 4, 0])
    assert table.label_range == (0, 4)
    assert table.features == ("x",)
    others = [options | {"label_range": ends} for ends in ([0, 5], [None, None])]
    others += [{key: options[key] for key in ("path", "label", "target")}]
    assert len({table_digest(each, base) for each in [options, *others]}) == 4
    inf = float("inf")
    ranges = [load_entry_table(each, base).label_range for each in others]
    assert ranges == [(0, 5), (-inf, inf), (-inf, inf)]
    assert load_entry_table({"path": "t.csv", "features": ["x"]}, base).label_range is None


@pytest.mark.parametrize(
    ("cells", "ends", "code", "words"),
    [
        ("1 5 6 2", [0, 4], "E406", "5 in row 2, which is not from 0 to 4, and 2 such rows in all"),
        ("-1 5 6 2", [0, None], "E406", "holds -1 in row 1, which is not from 0 to inf"),
        ("1 inf 2 3", [None, None], "E406", "holds inf in row 2"),
        ("1 two 2 3", [0, 4], "E411", "holds text, such as '1'"),
    ],
)
def test_numeric_labels_out_of_range(
    base: Path, cells: str, ends: list[float | None], code: str, words: str
):
    text = "x,y\n" + "".join(f"0,{cell}\n" for cell in cells.split())
    found = fault(base, text, label="y", target="number", label_range=ends)
    assert found.code == code
    assert words in found.message


def test_numeric_label_without_any_number(base: Path):
    pd.DataFrame({"x": [1.0, 2.0], "y": [np.nan, np.nan]}).to_parquet(base / "t.csv")
    (found,) = faults(base, format="parquet", label="y", target="number")
    assert (found.code, "no value at all" in found.message) == ("E406", True)
