"""The settings of a safety test are part of the keys of tested trials, and of no others."""

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


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """The keys of `TESTED`, in another folder."""
    place = tmp_path_factory.mktemp("tested")
    people(200, 1).to_csv(place / "people.csv", index=False)
    return keys(place, TESTED)


def keys(folder, text, *overrides):
    plan = prepare(write(folder, text), overrides).plan
    return {(each.label, str(each.point)): each.key for each in plan.planned}


def test_keys_without_a_test_do_not_depend_on_it(folder):
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
        "safety.stratify=[sex]",
        "safety.order=positional",
        "resample=1",
        "resample=k",
        "safety.fraction=k",
    ],
)
def test_each_setting_changes_the_key(folder, tested, change):
    changed = keys(folder, TESTED, change)
    assert tested.keys() == changed.keys()
    assert set(tested.values()).isdisjoint(changed.values())


def test_aim_changes_only_keys_of_algorithms_that_use_it(folder):
    own = "algorithms=[majorize, unconstrained, thresholded]"
    plain, aimed = keys(folder, TESTED, own), keys(folder, TESTED, own, "safety.aim=0.9")
    assert {name for name in plain if aimed[name] != plain[name]} == {
        name for name in plain if name[0] == "majorize"
    }


def test_aim_may_be_a_swept_name(folder):
    for own in ("majorize", "seldonian"):
        algorithms = f"algorithms=[{own}]"
        swept = keys(folder, TESTED, algorithms, "sweep={a: [0.7, 0.9]}", "safety.aim=a")
        for value in (0.7, 0.9):
            alone = keys(folder, TESTED, algorithms, "sweep={a: [0]}", f"safety.aim={value}")
            assert swept[own, str({"a": value})] == alone[own, "{'a': 0}"]
        assert len(set(swept.values())) == 2


def test_aim_is_the_inflation_of_algorithms_with_a_margin_of_their_own(folder):
    def of(options, *overrides):
        return keys(folder, TESTED, f"algorithms=[seldonian: {{{options}}}]", *overrides)

    passing = of("inflation: {pass: 0.7}", "safety.aim=0.7")
    assert of("", "safety.aim=0.7") == of("safety: {aim: 0.7}") == passing
    assert of("inflation: 2", "safety.aim=0.7") != passing
    assert of("inflation: {pass: 0.7}") != passing  # without bolder candidates


@pytest.mark.parametrize(
    "written",
    [
        "safety={fraction: 1/2}",
        "safety.delta=1/20",
        "safety.delta={some: 1/20}",
        "safety.delta={some: 0.05, right: 0.05}",
    ],
)
def test_equal_tests_have_equal_keys(folder, tested, written):
    assert keys(folder, TESTED, written) == tested


def test_entry_overrides_the_file(folder):
    plain, own = keys(folder, TESTED), "algorithms=[majorize: {safety: {KEYS}}, unconstrained]"
    same = own.replace("KEYS", "fraction: 0.5").replace("ned]", "ned: {safety: {delta: 0.05}}]")
    assert keys(folder, FILE, same) == plain
    other = keys(folder, TESTED, "safety.bound=betting", own.replace("KEYS", "bound: auto"))
    assert {name: other[name] == plain[name] for name in plain} == {
        name: name[0] == "majorize" for name in plain
    }


def test_swept_names_stand_for_numbers(folder):
    swept = keys(folder, TESTED, "safety.delta=k")
    assert swept["majorize", "{'k': 0.05}"] == keys(folder, TESTED)["majorize", "{'k': 0.05}"]
    assert swept["majorize", "{'k': 0.1}"] != keys(folder, TESTED)["majorize", "{'k': 0.1}"]
    prepared = prepare(write(folder, TESTED), ["safety.delta={some: k}"])
    found = [dict(case.safety.delta) for case in prepared.cases]
    assert found == [{"some": 0.05, "right": 0.05}, {"some": 0.1, "right": 0.05}] * 2


def test_names_of_constraints_are_in_the_keys_of_tested_trials(folder):
    """Certificates name the constraints, which metrics in the ledger do not."""
    renamed = FILE.replace("some:", "few:")
    assert keys(folder, renamed) == keys(folder, FILE)
    tested = TESTED.replace("some:", "few:")
    assert set(keys(folder, tested).values()).isdisjoint(keys(folder, TESTED).values())
