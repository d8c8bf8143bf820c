import pytest
from marked import spot, unmarked

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


def test_all_errors_are_reported_those_of_the_file_first(faults_of):
    faults = faults_of(HEAD, "seeds", "name.x=3", "algorithms.9=a", "seeds=2")
    assert [fault.code for fault in faults] == ["E107"] * 3
    faults = faults_of(HEAD.replace("name: x", "name: X"), "seeds=1", "seeds=0")
    assert [(fault.code, fault.place.line) for fault in faults] == [("E104", 1), ("E104", 1)]
    assert [fault.place.file == "--set" for fault in faults] == [False, True]
