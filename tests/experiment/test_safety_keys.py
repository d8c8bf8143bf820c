"""A safety test is part of a trial's key, and only where there is one."""

from __future__ import annotations

import pytest

from experiments import people, write
from ratecli.experiment.cases import case_key_content
from ratecli.experiment.prepare import prepare

FILE = """
name: keys
datasets:
  people: {path: people.csv, label: y, drop: [old]}
groups: {women: sex = F}
constraints: {some: 'positive_rate[women] >= 0.3', right: error <= 0.4}
algorithms: [majorize, unconstrained]
sweep: {k: [0.05, 0.1]}
metrics: {error: error}
"""
TESTED = FILE + "safety: {delta: 0.05, fraction: 0.5}\n"


@pytest.fixture
def folder(tmp_path):
    people(200, 1).to_csv(tmp_path / "people.csv", index=False)
    return tmp_path


def keys(folder, text, *overrides):
    plan = prepare(write(folder, text), overrides).plan
    return {(each.label, str(each.point)): each.key for each in plan.planned}


def test_without_a_test_nothing_of_it_is_in_the_key(folder):
    prepared = prepare(write(folder, FILE))
    for case in prepared.cases:
        assert case_key_content(case).keys().isdisjoint({"safety", "resample"})
    plain = keys(folder, FILE)
    assert keys(folder, FILE.replace("[majorize", "[majorize: {safety: false}")) == plain
    assert keys(folder, TESTED, "algorithms=[majorize: {safety: false}]") == {
        name: key for name, key in plain.items() if name[0] == "majorize"
    }
    assert set(keys(folder, TESTED).values()).isdisjoint(plain.values())


@pytest.mark.parametrize(
    "change",
    [
        "safety.delta=0.06",
        "safety.delta={some: 0.1}",
        "safety.bound=hoeffding",
        "safety.fraction=0.4",
        "safety.method=leaves",
        "safety.division=optimized",
        "safety.stratify=[sex]",
        "safety.order=positional",
        "resample=1",
        "resample=k",
        "safety.fraction=k",
    ],
)
def test_each_key_of_it_counts(folder, change):
    plain, changed = keys(folder, TESTED), keys(folder, TESTED, change)
    assert plain.keys() == changed.keys()
    assert set(plain.values()).isdisjoint(changed.values())


def test_an_aim_counts_for_those_who_can_take_it(folder):
    plain, aimed = keys(folder, TESTED), keys(folder, TESTED, "safety.aim=0.9")
    assert {name: aimed[name] == plain[name] for name in plain} == {
        name: name[0] == "unconstrained" for name in plain
    }


def test_an_aim_may_be_a_name_of_the_sweep(folder):
    for own in ("majorize", "seldonian"):
        algorithms = f"algorithms=[{own}]"
        swept = keys(folder, TESTED, algorithms, "sweep={a: [0.7, 0.9]}", "safety.aim=a")
        for value in (0.7, 0.9):
            alone = keys(folder, TESTED, algorithms, "sweep={a: [0]}", f"safety.aim={value}")
            assert swept[own, str({"a": value})] == alone[own, "{'a': 0}"]
        assert len(set(swept.values())) == 2


def test_a_files_aim_says_nothing_to_those_who_hold_no_constraint(folder):
    """An entry's own is refused there: see the broken files."""
    own = "algorithms=[unconstrained, thresholded]"
    assert keys(folder, TESTED, own, "safety.aim=0.9") == keys(folder, TESTED, own)


def test_an_aim_is_the_inflation_of_those_who_leave_room_themselves(folder):
    own = "algorithms=[seldonian: {KEYS}]"
    plain, passing = (keys(folder, TESTED, own.replace("KEYS", f"inflation: {each}"))
                      for each in ("2", "{pass: 0.7}"))  # fmt: skip
    bare = own.replace("KEYS", "")
    assert keys(folder, TESTED, bare, "safety.aim=0.7") == passing
    assert keys(folder, TESTED, own.replace("KEYS", "safety: {aim: 0.7}")) == passing
    assert keys(folder, TESTED, own.replace("KEYS", "inflation: 2"), "safety.aim=0.7") == plain
    assert set(keys(folder, TESTED, bare).values()).isdisjoint(passing.values())


@pytest.mark.parametrize(
    "written",
    [
        "safety={fraction: 1/2}",
        "safety.delta=1/20",
        "safety.delta={some: 1/20}",
        "safety.delta={some: 0.05, right: 0.05}",
    ],
)
def test_the_same_test_has_the_same_key_however_it_is_written(folder, written):
    assert keys(folder, TESTED, written) == keys(folder, TESTED)


def test_an_entry_speaks_louder_than_the_file(folder):
    plain, own = keys(folder, TESTED), "algorithms=[majorize: {safety: {KEYS}}, unconstrained]"
    same = own.replace("KEYS", "fraction: 0.5").replace("ned]", "ned: {safety: {delta: 0.05}}]")
    assert keys(folder, FILE, same) == plain
    other = keys(folder, TESTED, "safety.bound=betting", own.replace("KEYS", "bound: auto"))
    assert {name: other[name] == plain[name] for name in plain} == {
        name: name[0] == "majorize" for name in plain
    }


def test_names_of_the_sweep_stand_for_numbers(folder):
    swept = keys(folder, TESTED, "safety.delta=k")
    assert swept["majorize", "{'k': 0.05}"] == keys(folder, TESTED)["majorize", "{'k': 0.05}"]
    assert swept["majorize", "{'k': 0.1}"] != keys(folder, TESTED)["majorize", "{'k': 0.1}"]
    prepared = prepare(write(folder, TESTED), ["safety.delta={some: k}"])
    found = [dict(case.safety.delta) for case in prepared.cases]
    assert found == [{"some": 0.05, "right": 0.05}, {"some": 0.1, "right": 0.05}] * 2


def test_a_constraint_of_another_name_is_another_record(folder):
    """Certificates name the constraints, which metrics in the ledger do not."""
    renamed = FILE.replace("some:", "few:")
    assert keys(folder, renamed) == keys(folder, FILE)
    tested = TESTED.replace("some:", "few:")
    assert set(keys(folder, tested).values()).isdisjoint(keys(folder, TESTED).values())
