from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from entries import load_entry_table, read_streamed_table, table_digest

from ratecli.errors import Diagnostic, FaultError
from ratecli.rates.scope import Scope, check_condition
from ratecli.rates.syntax import Condition

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
    assert table.frame.dtypes.astype(str).tolist() == ["object", "float64", "object", "object"]
    assert table.files == (("t.csv", hashlib.sha256(path.read_bytes()).hexdigest()),)
    assert table.digest == table_digest(options, base)


def test_file_is_read_once_until_it_changes(base: Path):
    write(base, GOOD)
    first = load_entry_table({"path": "t.csv", "label": "paid", "positive": "yes"}, base)
    assert load_entry_table({"path": "t.csv", "drop": ["zip"]}, base).frame is first.frame
    write(base, GOOD.replace("20", "25"))
    again = load_entry_table({"path": "t.csv"}, base)
    assert again.frame["age"].tolist() == [25, 30, 40.5, 50]
    assert np.isnan(again.label).all()


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["1", "2.5", "-3"], [1, 2.5, -3]),
        (["", "+4", "NA"], [None, 4, None]),
        (["+.5", "1e400", "inf"], [0.5, np.inf, np.inf]),
        (["-nan", "1", "-nan"], [None, 1, None]),
        (["nan", "1_0", "2"], [None, "1_0", "2"]),
        (["12 kg", "3", "4"], ["12 kg", "3", "4"]),
        (["infant", "1", "2"], ["infant", "1", "2"]),
        (["?", "no", "yes"], [None, "no", "yes"]),
        (["NA", "", "none"], [None, None, "none"]),
        (["#N/A", "None", "Null"], [None, None, None]),
        (["1e3", ".5", "5."], [1000, 0.5, 5]),
        (["0.1", "0.30000000000000004", "1e-310"], [0.1, 0.30000000000000004, 1e-310]),
        (["007", "7", ""], ["007", "7", None]),
        (["-01.5", "+7", "NaT"], ["-01.5", "+7", None]),
        (["0.5", "0", "1234567890123456"], [0.5, 0, 1234567890123456]),
        (
            ["9007199254740993", "9007199254740992", "1"],
            ["9007199254740993", "9007199254740992", "1"],
        ),
        (["9007199254740993.5", "1e300", "1"], [9007199254740993.5, 1e300, 1]),
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


def test_bom_crlf_quotes_and_other_separators(base: Path):
    write(base, b'\xef\xbb\xbf"a";b\r\n"x;\r\ny";1\r\n\r\nz;0\r\n')
    table = load_entry_table({"path": "t.csv", "label": "b", "separator": ";"}, base)
    assert table.frame["a"].tolist() == ["x;\r\ny", "z"]
    write(base, "a\tb\nu\t1\nv\t0\n", "t.tsv")
    assert load_entry_table({"path": "t.tsv", "label": "b"}, base).frame["a"].tolist() == ["u", "v"]


def rows(names: str, *cells: str) -> str:
    return "\n".join([names, *cells]) + "\n"


TWO = {"label": "y"}
NUMBER = {"label": "y", "target": "number"}
NUMBERS_AND_A_WORD = rows("x,y", *(f"{i / 7},{i % 2}" for i in range(50)), "12O,1")


@pytest.mark.parametrize(
    ("text", "options", "code", "said"),
    [
        (" \n\n", {}, "E404", "'t.csv'"),
        ("a,b\n1\n", {}, "E404", "'t.csv'"),
        ("a,b\n1,2,3\n4,5,6\n", {}, "E404", "'t.csv'"),
        ("a, a\n1,2\n", {}, "E404", "'t.csv'"),
        ("a,\n1,2\n", {}, "E404", "'t.csv'"),
        (b"PAR1\x00\x00\x01", {}, "E404", "'t.csv'"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", {}, "E404", "'t.csv'"),
        ("Jos\xe9,b\n1,2\n".encode("latin-1"), {}, "E404", "'t.csv'"),
        ('a,b\n"x,2\n', {}, "E404", "'t.csv'"),
        (GOOD, {"format": "parquet"}, "E404", "'t.csv'"),
        (b"", {"format": "parquet"}, "E404", "'t.csv'"),
        *((GOOD, {"separator": each}, "E104", "separate") for each in ('"', "\n", "\r", "\0", "→")),
        # labels of two classes
        (rows("x,y", "1,a", "1,b", "1,c"), TWO | {"positive": "a"}, "E406", "3 values"),
        (rows("x,y", "1,yes", "1,yes"), TWO | {"positive": "yes"}, "E406", "only one class"),
        (rows("x,y", "1,yes", "1,no"), TWO, "E406", "which value is positive"),
        (rows("x,y", "1,yes", "1,no"), TWO | {"positive": "Yes"}, "E406", "not a value"),
        (rows("x,y", "1,NA", "1,?"), TWO, "E406", "is empty"),
        # labels that are numbers
        (
            rows("x,y", "0,1", "0,5", "0,6"),
            NUMBER | {"label_range": [0, 4]},
            "E406",
            "5 in row 2, which is not between 0 and 4 (2 such rows in total)",
        ),
        (
            rows("x,y", "0,-1"),
            NUMBER | {"label_range": [0, None]},
            "E406",
            "not between 0 and 1e+100",
        ),
        (rows("x,y", "0,1", "0,inf"), NUMBER, "E406", "has inf in row 2"),
        (
            rows("x,y", "0,1", "0,1e300"),
            NUMBER,
            "E406",
            "1e+300 in row 2, which is not at most 1e+100 in size (1",
        ),
        (rows("x,y", "0,1", "0,two"), NUMBER, "E411", "holds text, such as '1'"),
        # features
        (rows("x,y", "1,0", "2,1", ",1", ",1"), TWO, "E407", "'x' has no number in row 3"),
        (rows("x,y", "1,0", "2,1", "-inf,1"), TWO, "E407", "'x' has an infinite value in row 3"),
        (NUMBERS_AND_A_WORD, TWO, "E411", "row 51"),
        # roles of columns
        (GOOD, {"features": ["paid"], "label": "paid", "positive": "yes"}, "E411", "paid"),
        (GOOD, {"features": ["sex"], "drop": ["sex"]}, "E411", "sex"),
        (GOOD, {"drop": ["sex", "age", "zip", "paid"]}, "E411", "no column is left as a feature"),
        # weights
        (GOOD, {"weight": "sex"}, "E411", "sex"),
        (GOOD, {"label": "age", "weight": "age"}, "E411", "cannot be both label and weight"),
        *(
            (f"x,w\n1,2\n1,{w}\n", {"weight": "w"}, "E411", "row 2, which is not a positive number")
            for w in ("0", "-1", "", "inf")
        ),
        ("x,w\n1,1e-300\n1,1e300\n", {"weight": "w"}, "E411", "ranges from 1e-300 to 1e+300: the"),
    ],
)
def test_invalid_tables_are_refused(
    base: Path, text: str | bytes, options: dict[str, Any], code: str, said: str
):
    found = fault(base, text, **options)
    assert (found.code, said in found.message) == (code, True), found.message


@pytest.mark.parametrize(
    ("cells", "key", "hint"),
    [
        ("1 9", "label_range", "widen 'label_range'"),
        ("1 1e300", "label", "use other units"),
        ("1 two", "label", "leave 'target' out for two classes"),
    ],
)
def test_errors_of_numeric_labels_are_located_at_what_to_change(base: Path, cells, key, hint):
    found = fault(
        base, rows("x,y", *(f"0,{y}" for y in cells.split())), **NUMBER, label_range=[0, 4]
    )
    assert (found.loc[-1], hint in str(found.help)) == (key, True)


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
    for name, values in (("s", ["a", None, "b"]), ("c", ["a", None, "b"]), ("n", [1, 2, 3])):
        assert table.frame[name].tolist() == values
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
        ("none", "fault none", [0, 1]),
        ("fault", "fault none ?", [1, 0, np.nan]),
        ("yes", "yes no None", [1, 0, np.nan]),
    ],
)
def test_positive_label(base: Path, positive: Any, values: str, expected: list[int]):
    write(base, "x,y\n" + "".join(f"1,{value}\n" for value in values.split()))
    options = {"path": "t.csv", "label": "y"}
    if positive is not None:
        options["positive"] = positive
    assert np.array_equal(load_entry_table(options, base).label, expected, equal_nan=True)


def test_files_that_are_no_parquet_tables(base: Path):
    pa.parquet.write_table(pa.table({"a": [[1], [2]]}), base / "t.csv")
    write(base, GOOD, "t.xlsx")
    for options in ({"format": "parquet"}, {"path": "t.xlsx"}):
        assert faults(base, **options)[0].code == "E404"


@pytest.mark.parametrize(("kind", "value"), [(pa.int64(), 2**53 + 1), (pa.uint64(), 2**64 - 1)])
def test_large_integers_beside_missing_ones(base: Path, kind: pa.DataType, value: int):
    pa.parquet.write_table(pa.table({"x": pa.array([1, None, value], kind)}), base / "t.parquet")
    table = load_entry_table({"path": "t.parquet"}, base)
    assert table.frame["x"].tolist() == ["1", None, str(value)]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("x,z,y\n1,inf,0\n2,,1\n", {"drop": ["z"]}),
        (NUMBERS_AND_A_WORD, {"categorical": ["x"]}),
        ("x,fold,y\n1,train,0\n2,test,1\n", {"split": {"by": "fold"}}),
    ],
)
def test_only_features_must_be_finite_and_split_columns_are_none(
    base: Path, text: str, options: dict[str, Any]
):
    write(base, text)
    assert load_entry_table({"path": "t.csv", "label": "y", **options}, base).features == ("x",)


def test_unknown_columns_are_reported_together(base: Path):
    write(base, GOOD)
    found = faults(base, label="piad", drop=["zap"], features=["sex"], weight="w")
    assert [one.code for one in found] == ["E205"] * 3
    assert "did you mean 'paid'?" in str(found[0].help)
    names = [f"f{k}" for k in range(300)]
    many = fault(base, rows(",".join(names), ",".join(["1"] * 300)), drop=names)
    assert str(many.help).endswith("'f18', 'f19', ...")


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


@pytest.mark.parametrize("rows", [1, 70_000])  # in the part that names the columns, and beyond
def test_a_table_in_another_encoding_is_said_to_be_so(base, rows):
    found = fault(base, b"sex,paid\n" + b"F,yes\n" * rows + "M\xe4nnlich,no\n".encode("latin-1"))
    assert (found.code, found.message) == ("E404", "'t.csv' is not a table: it is not UTF-8 text")
    assert found.help == 'set encoding: "cp1252" (for a command: --encoding cp1252)'


FORMATS = {
    "cp1252": (";", ",", "."),
    "utf-8-sig": (";", ",", "\u202f"),
    "utf-16": ("\t", ".", "\u2019"),
    "utf-16-le": ("|", ",", " "),
    "utf-8": (",", ".", ","),
}


@pytest.mark.parametrize(("encoding", "signs"), FORMATS.items())
@pytest.mark.parametrize("stream", [False, True])
def test_numbers_and_texts_are_those_of_the_plain_table(base: Path, encoding, signs, stream):
    rows = [[1234567.5, 0.25, "Köln"], [-950.0, 26.0, "Ulm"], [12000.0, -3.5, "Köln"]]
    mark, decimal, thousands = signs
    marks = str.maketrans({",": thousands, ".": decimal})
    words = [[f"{each:,}".translate(marks) for each in row[:2]] + row[2:] for row in rows]
    with (base / "t.csv").open("w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=mark).writerows([["größe", "b", "c"], *words])
    thousands = {"\u202f": " ", "\u2019": "'"}.get(thousands, thousands)
    keys = {"separator": mark, "decimal": decimal, "thousands": thousands, "encoding": encoding}
    options = {"path": "t.csv", **keys}
    if stream:
        columns = read_streamed_table({**options, "stream": True}, base).columns
        assert columns["größe"].values == sorted(row[0] for row in rows)
        assert columns["c"].values == ["Köln", "Ulm"]
    else:
        assert load_entry_table(options, base).frame.values.tolist() == rows


@pytest.mark.parametrize(
    ("words", "keys", "way"),
    [
        (["26,0", "3"], {}, 'set decimal: ","'),
        (["26,0", "1.234,5"], {}, 'set decimal: ",", thousands: "."'),
        (["1,234", "7,000"], {}, 'set thousands: "," (for a command: --thousands ,) or'),
        (["1 234.5", "7"], {}, "set thousands: \" \" (for a command: --thousands ' ')"),
        (["0,125", "0,25"], {}, 'set decimal: ","'),
        (["26.5", "3"], {"decimal": ","}, 'write them with the stated signs, or set decimal: "."'),
        (["1'234", "?"], {"decimal": ","}, "write them with the stated signs, or set thousands"),
        (["26,5", "26.5"], {}, "write all numbers alike"),
        ([f"{k},5" for k in range(50)] + ["unknown"], {}, 'set decimal: ","'),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_numbers_with_other_signs_are_never_categories(base: Path, words, keys, way, stream):
    write(base, "x;y\n" + "".join(f"{word};{k % 2}\n" for k, word in enumerate(words)))
    options = {"path": "t.csv", "label": "y", "separator": ";", **keys}
    with pytest.raises(FaultError) as caught:
        read_streamed_table({**options, "stream": True}, base) if stream else load_entry_table(
            options, base
        )
    (found,) = caught.value.faults
    assert found.code == "E411"
    assert found.message.startswith("column 'x' holds numbers that are written as '")
    assert found.help.startswith(way)
    assert found.help.endswith("or name the column under 'categorical' or 'drop'")
    table = load_entry_table({**options, "categorical": ["x"]}, base)
    assert table.frame["x"].dropna().isin(words).all()


@pytest.mark.parametrize("words", [["a,b", "c,d"], ["1,2,3", "4,5,6"], ["12.05.2020", "1.2.2021"]])
def test_other_texts_remain_categories(base: Path, words):
    write(base, "x;y\n" + "".join(f"{word};1\n{word};0\n" for word in words))
    table = load_entry_table({"path": "t.csv", "label": "y", "separator": ";"}, base)
    assert sorted(set(table.frame["x"])) == sorted(words)


@pytest.mark.parametrize("role", ["weight", "label"])
def test_columns_that_must_be_numbers_name_the_sign(base: Path, role):
    options = {"label": "y", "weight": "x"} if role == "weight" else NUMBER | {"label": "x"}
    found = fault(base, "x;y;z\n2,5;0;1\n3,5;1;2\n", separator=";", features=["z"], **options)
    assert (found.code, found.help) == ("E411", 'set decimal: "," (for a command: --decimal ,)')


def test_a_condition_on_numbers_with_other_signs_names_the_keys():
    values = {"age": ["26,0", "1.234,5"], "day": ["12.05.2020", "1.2.2021"]}
    scope = Scope(columns=frozenset(values), values=values.get)
    helps = []
    for name in values:
        with pytest.raises(FaultError) as caught:
            check_condition(Condition(name, ">=", (30.0,)), scope)
        helps.append(caught.value.faults[0].help)
    assert helps[0] == "if '26,0' is a number, set 'decimal' or 'thousands' of the data set"
    assert helps[1].startswith("compare with =")


LONG = b"a" * 10_000_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"x,y\n1,0\n2\0,1\n", " has a NUL character"),
        (b"x,y\n" + b"1,0\n2,1\n" * 50_000 + b"a\0b,1\n", " has a NUL character"),
        (b"x,y\n1,0\n" + bytes(9_000_000), " has a NUL character"),
        (b"x,y\n1,0\n" + LONG + b",1\n", "a row has over 4,194,304"),
        (b"x,y," * 2_000_000, "a row has over 4,194,304"),
        (b'x,y\n1,0\n"2,1\n' + b"1,0\n" * 2_000_000, 'Expected 2 columns, got 1: "2,1'),
        ("é,y\n1,0\n".encode("utf-16"), "it is not UTF-8 text"),
        ("x,y\n1,0\n".encode("utf-16-be"), "it is not UTF-8 text"),
        (bytes(range(256)) * 9, "it is not UTF-8 text"),
    ],
)
def test_what_is_wrong_with_a_file(base: Path, text, reason):
    found = fault(base, text, label="y")
    assert found.code == "E404"
    assert found.message.startswith("'t.csv' is not a table: ")
    assert reason in found.message


@pytest.mark.parametrize(
    ("text", "keys", "way"),
    [
        ("é,y\n1,0\n".encode("utf-16"), {}, 'set encoding: "utf-16" '),
        ("é;y\n1,5;0\n".encode("utf-16-be"), {}, 'set encoding: "utf-16-be", separator: ";"'),
        ("é,y\n1,0\n", {"encoding": "cp1252"}, 'set encoding: "utf-8"'),
        ("x,y\n1,0\n", {"encoding": "utf-16"}, 'set encoding: "utf-8"'),
        (b"x,y\n\x81,0\n", {"encoding": "cp1252"}, 'set encoding: "latin-1"'),
        ("x;y\n1,5;0\n", {}, 'set separator: ";"'),
        ("x\ty\n1,5\t0\n", {}, "set separator: \"\\t\" (for a command: --separator $'\\t')"),
    ],
)
def test_the_key_of_another_format_is_named(base: Path, text, keys, way):
    found = fault(base, text, **keys)
    assert (found.code, found.help[: len(way)]) == ("E404", way)


@pytest.mark.parametrize(
    ("key", "value"), [("encoding", "base64"), ("encoding", "no"), ("thousands", ".")]
)
def test_a_format_that_cannot_be(base: Path, key, value):
    found = fault(base, GOOD, **{key: value})
    assert (found.code, found.loc) == ("E104", (key,))
