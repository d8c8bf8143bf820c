"""Strict YAML, the places of its values, and overrides."""

from __future__ import annotations

import json
import math
import string
import time
from itertools import pairwise

import pytest
from full_file import FULL_FILE
from hypothesis import given
from hypothesis import strategies as st
from marked import spot, unmarked
from nested import changed, paths

from ratecli.config.document import Document
from ratecli.config.experiment import read_experiment
from ratecli.config.yaml import MAX_NODES, resolve_scalar
from ratecli.errors import FaultError, Span

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


def document_of(text):
    plain, places = unmarked(text)
    return Document.of_text(plain), places[0]


@pytest.mark.parametrize(
    ("text", "loc"),
    [
        ("a: ⟦b c⟧  # comment\n", ("a",)),
        ("a: ⟦'b'⟧\n", ("a",)),
        ("a: [1, ⟦2⟧]\n", ("a", 1)),
        ("a: ⟦[1, 2]⟧\n", ("a",)),
        ("a: {b: ⟦3⟧}\n", ("a", "b")),
        ("⟦a⟧:\n  b: 3\n", ("a",)),
        ("⟦a⟧:\n- 3\n", ("a",)),
        ("⟦a⟧:\n", ("a",)),
        ("a:\n- ⟦b: 3⟧\n", ("a", 0)),
        ("a: ⟦[1,⟧\n  2]\n", ("a",)),
        ("x: ⟦&y 5⟧\na: *y\n", ("a",)),
        # missing values are placed at their parents
        ("# c\n⟦b: 3⟧\n", ("missing", "deep", 3)),
        ("⟦b⟧: {c: 3}\n", ("b", "missing")),
        ("b:\n  - ⟦c⟧\n", ("b", 0, "c", "iterations")),
        ("⟦b⟧: [c]\n", ("b", 7)),
        ("b: ⟦t⟧\n", ("b", "missing")),  # the short form of a mapping
    ],
)
def test_value_is_placed_at_itself_its_key_or_its_parent(text, loc):
    document, place = document_of(text)
    assert spot(document.place(loc)) == place
    if loc[0] != "a":
        assert spot(document.place(loc, Span(0, 1))) == place


@pytest.mark.parametrize(
    ("text", "loc"),
    [("⟦a⟧: 3\n", ("a",)), ("a: {⟦'b'⟧: 3}\n", ("a", "b")), ("a: [{⟦b⟧: 3}]\n", ("a", 0, "b"))],
)
def test_key_is_placed(text, loc):
    document, place = document_of(text)
    assert spot(document.place(loc, key=True)) == place


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("  a: tpr[⟦women⟧] >= 0.8\n", "women"),
        ("a: 'tpr[⟦women⟧] >= 0.8'\n", "women"),
        ('a: "tpr[⟦women⟧] >= 0.8"\n', "women"),
        ("a: ⟦'it''s ''tpr'' women'⟧\n", "women"),
        ('a: ⟦"\\x41\\u0042\\U00000043\\n\\t women"⟧\n', "women"),
        ("a: tpr +\n   tpr[⟦women⟧]\n", "women"),
        ("a: tpr\n\n\n   tpr[⟦women⟧]\n", "women"),
        ("a: 'tpr +\n   tpr[⟦women⟧]'\n", "women"),
        ("a: |\n  tpr +\n  ⟦women⟧ x\n", "women"),
        ("a: >-\n  tpr +\n  ⟦women⟧\n  x\n", "women"),
        ("a: >\n  tpr\n\n  ⟦women⟧\n", "women"),
        ("a: 名前 ⟦women⟧\n", "women"),
        ("a: ⟦'''x'⟧\n", None),
        ("a: 0.⟦5⟧\n", Span(2, 3)),
        ("a: tpr ⟦>=⟧\n   0.5\n", Span(4, 9)),  # ends with its first line
        ("a: tpr⟦[⟧\n", Span(4, 4)),
        ("a: 'tpr[⟦'⟧\n", Span(4, 4)),
    ],
)
def test_span_is_mapped_to_the_file(text, part):
    document, place = document_of(text)
    if part == "women":
        start = document.data["a"].index(part)
        part = Span(start, start + 5)
    assert spot(document.place(("a",), part)) == place


HEAD = """name: x
datasets: {d: {source: loans}}
algorithms:
  - unconstrained
  - majorize: {iterations: 6}
  - three_player:
seeds: 5
"""


@pytest.mark.parametrize(
    ("override", "keys", "value"),
    [
        ("seeds=2", ["seeds"], [0, 1]),
        ("seeds=[3, 4]", ["seeds"], [3, 4]),
        ("datasets.d.rows=40", ["datasets", "d", "rows"], 40),
        ("sweep.k=[1e-3, 0.5]", ["sweep", "k"], [0.001, 0.5]),
        ("sweep.k=linspace(0, 1, 3)", ["sweep", "k"], [0.0, 0.5, 1.0]),
        ("algorithms.1.majorize.iterations=2", ["algorithms", 1, "majorize", "iterations"], 2),
        ("algorithms.2.three_player.steps=2", ["algorithms", 2, "three_player", "steps"], 2),
        ("algorithms.0=zafar", ["algorithms", 0], {"zafar": {"as": "zafar"}}),
        ("constraints.p=tpr[a] >= 0.8 * tpr", ["constraints", "p"], "tpr[a] >= 0.8 * tpr"),
        ("report.plots=[{kind: tradeoff, x: a, y: b}]", ["report", "plots", 0, "x"], "a"),
        ("description='no'", ["description"], "no"),
        ("description=on", ["description"], "on"),
    ],
)
def test_values_are_set(load, override, keys, value):
    found = load(HEAD, override).stated()
    for key in keys:
        found = found[key]
    assert found == value


@pytest.mark.parametrize(
    ("code", "override"),
    [
        ("E107", "⟦seeds⟧"),
        ("E107", "⟦=⟧3"),
        ("E107", "⟦a..b⟧=3"),
        ("E107", "⟦a b⟧=3"),
        ("E107", "⟦⟧"),
        ("E107", "algorithms.⟦9⟧=a"),
        ("E107", "algorithms.⟦majorize⟧=a"),
        ("E107", "name.⟦x⟧=3"),
        ("E107", "seeds=⟦[⟧1"),
        ("E107", "seeds={a: 1, ⟦a⟧: 2}"),
        ("E107", "seeds=⟦99999999999999999999⟧"),
        ("E107", "description=a: b⟦:⟧ c"),
        ("E101", "⟦nme⟧=3"),
        ("E103", "datasets.d.rows=⟦many⟧"),
        ("E103", "⟦seeds⟧="),
        ("E104", "seeds=⟦0⟧"),
        ("E106", "algorithms.1=⟦unconstrained⟧"),
    ],
)
def test_errors_are_placed_on_the_command_line(faults_of, code, override):
    text, places = unmarked(override)
    (fault,) = faults_of(HEAD, text)
    assert (fault.code, fault.place.file, fault.place.excerpt) == (code, "--set", text)
    assert spot(fault.place) == places[0]


def test_all_errors_are_reported_those_of_the_file_first(faults_of):
    faults = faults_of(HEAD, "seeds", "name.x=3", "algorithms.9=a", "seeds=2")
    assert [fault.code for fault in faults] == ["E107"] * 3
    faults = faults_of(HEAD.replace("name: x", "name: X"), "seeds=1", "seeds=0")
    assert [(fault.code, fault.place.line) for fault in faults] == [("E104", 1), ("E104", 1)]
    assert [fault.place.file == "--set" for fault in faults] == [False, True]


FULL = Document.of_text(FULL_FILE).data
TEXTS = ["", "a", "zip", "as", "1/0", "1/n", "linspace(1, 2, 0)", "{0}", "../"]
KEYS = st.sampled_from(["a", "d", "as", "sweep", "source", "[key]", "1"])
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=6,
)
PATHS = st.sampled_from([path for path in paths(FULL) if path])


@given(PATHS, ODD)
def test_any_value_gives_an_experiment_or_placed_errors(path, value):
    text = json.dumps(changed(FULL, path, value))
    text = text.replace("-Infinity", "-.inf").replace("Infinity", ".inf").replace("NaN", ".nan")
    try:
        experiment = read_experiment(Document.of_text(text))
    except FaultError as error:
        assert all(fault.place.line == 1 and fault.message for fault in error.faults)  # noqa: PT017
    else:
        assert experiment.stated()["name"]


@given(PATHS, st.text("a1.=[]{}:, '-", max_size=8))
def test_any_override_gives_an_experiment_or_placed_errors(path, value):
    document = Document.of_text(json.dumps(FULL))
    try:
        read_experiment(document.with_overrides([".".join(map(str, path)) + "=" + value]))
    except FaultError as error:
        assert all(fault.place is not None for fault in error.faults)  # noqa: PT017
