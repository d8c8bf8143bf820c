import json

import pytest
from full_file import FULL_FILE
from hypothesis import given
from hypothesis import strategies as st
from marked import spot, unmarked
from nested import changed, paths

from ratecli.config.document import Document
from ratecli.config.experiment import read_experiment
from ratecli.errors import FaultError

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
    found = load(HEAD, override).resolved()
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


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("algorithms.majorize.iterations=2", "entry 1: write 1.majorize instead of majorize"),
        ("algorithms.unconstrained.loss=hinge", "entry 0: set the whole entry, 0={unconstrained: "),
    ],
)
def test_names_of_entries_are_not_numbers(faults_of, override, hint):
    (fault,) = faults_of(HEAD, override)
    assert hint in fault.help


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
        assert experiment.resolved()["name"]


@given(PATHS, st.text("a1.=[]{}:, '-", max_size=8))
def test_any_override_gives_an_experiment_or_placed_errors(path, value):
    document = Document.of_text(json.dumps(FULL))
    try:
        read_experiment(document.with_overrides([".".join(map(str, path)) + "=" + value]))
    except FaultError as error:
        assert all(fault.place is not None for fault in error.faults)  # noqa: PT017
