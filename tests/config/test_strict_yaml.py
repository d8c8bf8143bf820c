import json
import math
import string
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratecli.config.document import Document
from ratecli.config.yaml import MAX_NODES, resolve_scalar
from ratecli.errors import FaultError

WORDS = """
no on yes off y n 1_000 1:30 190:20:30 2024-01-01 2001-12-14t21:59:43 0b11 . e5 1e -.5.1 =
1/3 80% nan inf 0x 0o8 +.inf.
"""
SCALARS = {
    "1e-3": 0.001, "1E5": 100000.0, ".5": 0.5, "5.": 5.0, ".inf": math.inf, "-.INF": -math.inf,
    "+3": 3, "-3": -3, "0777": 777, "0o17": 15, "0xFF": 255, str(2**63 - 1): 2**63 - 1,
    "true": True, "FALSE": False, "null": None, "~": None, "": None,
    **{word: word for word in WORDS.split()},
}  # fmt: skip


@pytest.mark.parametrize(("text", "value"), SCALARS.items())
def test_scalars_are_yaml_1_2(text, value):
    assert resolve_scalar(text) == value
    assert type(resolve_scalar(text)) is type(value)


def test_nan_quoted_scalars_and_aliases():
    assert math.isnan(resolve_scalar(".NaN"))
    data = Document.of_text("a: '1'\nb: \"true\"\nc: |\n  5\nd: &x [1, 2]\ne: {c: *x}\n").data
    assert data == {"a": "1", "b": "true", "c": "5\n", "d": [1, 2], "e": {"c": [1, 2]}}


TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cc", "Cs"]), max_size=20)
NUMBER = st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
DATA = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(TEXT, DATA, min_size=1, max_size=4), st.sampled_from([None, 1]))
def test_json_is_yaml(data, indent):
    assert Document.of_text(json.dumps(data, indent=indent)).data == data


@given(st.text(string.printable + "äあ\u2028\x85\ufeff", max_size=60))
def test_any_text_is_data_or_placed_faults(text):
    try:
        Document.of_text(text)
    except FaultError as error:
        for fault in error.faults:
            assert fault.place.line >= 1
            assert 1 <= fault.place.column <= len(fault.place.excerpt) + 1


def alias_bomb():
    """Return a text whose values, with aliases expanded, are many."""
    names = "abcdefghi"
    rows = [f"{names[0]}: &a [{', '.join('x' * 9)}]"]
    for inner, name in pairwise(names):
        rows.append(f"{name}: &{name} [{', '.join([f'*{inner}'] * 9)}]")
    return "\n".join(rows)


DEEP = {
    "open brackets": "a: " + "[" * 10_000,
    "brackets": "a: " + "[" * 10_000 + "]" * 10_000,
    "braces": "a: " + "{a: " * 10_000,
    "dashes": "- " * 10_000,
    "questions": "? " * 10_000,
    "mappings": "\n".join(" " * k + "a:" for k in range(1_000)),
    "aliases": "\n".join(["a0: &a0 [x]", *(f"a{k}: &a{k} [*a{k - 1}]" for k in range(1, 60))]),
    "many values": "a:\n" + "- 1\n" * MAX_NODES,
    "alias bomb": alias_bomb(),
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_deep_and_large_files_are_refused(text):
    with pytest.raises(FaultError) as caught:
        Document.of_text(text)
    assert [fault.code for fault in caught.value.faults] == ["E003"]


@pytest.mark.parametrize(
    "text",
    ["a: [" + "1, " * 300_000, "a: '" + "(" * 900_000 + "'", "a: 1\n" + "# x" * 300_000],
    ids=["values", "text", "comment"],
)
def test_a_megabyte_takes_seconds_at_most(text):
    start = time.perf_counter()
    try:
        Document.of_text(text)
    except FaultError as error:
        assert {fault.code for fault in error.faults} == {"E003"}  # noqa: PT017
    assert time.perf_counter() - start < 20


def read_error(path):
    with pytest.raises(FaultError) as caught:
        Document.read(path)
    (fault,) = caught.value.faults
    assert fault.code == "E005"
    return fault


def test_unreadable_files(tmp_path):
    (tmp_path / "big.yaml").write_bytes(b"# " + b"x" * 1_000_000)
    for name, words in {
        "no.yaml": "cannot be read: No such file",
        "": "cannot be read: Is a directory",
        "big.yaml": "larger than 1 MB",
        "a\0b": "cannot be read",
    }.items():
        assert words in read_error(tmp_path / name).message


@pytest.mark.parametrize(
    ("raw", "line", "column"),
    [(b"a: 1\nb: x\0y\n", 2, 5), (b"a: \x1b[31m\n", 1, 4)],
    ids=["nul", "escape"],
)
def test_file_must_be_text(tmp_path, raw, line, column):
    path = tmp_path / "odd.yaml"
    path.write_bytes(raw)
    place = read_error(path).place
    assert (place.line, place.column) == (line, column)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_file_must_be_utf_8(tmp_path, encoding):
    path = tmp_path / "odd.yaml"
    path.write_bytes("a: 1\nb: é\n".encode(encoding))
    assert "is not UTF-8 text" in read_error(path).message


def test_byte_order_mark_and_windows_line_ends(tmp_path):
    path = tmp_path / "windows.yaml"
    path.write_bytes("\ufeffa: 1\r\nb:\r\n  c: é\r\n".encode())
    document = Document.read(path)
    assert document.data == {"a": 1, "b": {"c": "é"}}
    place = document.place(("b", "c"))
    assert (place.line, place.column, place.excerpt) == (3, 6, "  c: é")
