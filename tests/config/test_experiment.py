"""Valid files: sections, sweeps, defaults."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from typing import get_args

import pytest
from full_file import FULL_FILE
from hypothesis import given
from hypothesis import strategies as st
from nested import faults as misfits
from pydantic import ValidationError

from ratecli.certify.bounds import AUTO, BOUNDS
from ratecli.certify.trees import SafetyMethod, SafetyTestSpec
from ratecli.config.document import Document
from ratecli.config.experiment import Experiment, json_schema
from ratecli.config.sweep import Sweep, expand_space, sweep_points
from ratecli.config.trials import LimitsSpec, SafetySpec
from ratecli.errors import FaultError
from ratecli.experiment.starters.options import template_text

HEAD = "name: x\ndatasets: {d: {path: d.csv, label: y}}\n"
PLAIN = HEAD + "algorithms: [unconstrained, unconstrained: {as: plain, filter: false}]\n"
RULES = HEAD + "constraints: {a: error <= 0.2, b: tpr >= 0.1}\n"
TESTED = RULES + "algorithms: [unconstrained, majorize: {safety: OWN}]\nsafety: {}\n"
RULE = "rms(share[a] - 0.5)"
CUSTOM = f"{{objective: '{RULE}', disclosivity: 0, algorithm: {{balanced_tree: {{depth: null}}}}}}"
DEFAULTS = {
    "delta": 0.05, "bound": "auto", "fraction": 0.5, "method": "pieces",
    "guarantee": "each",
    "order": "shuffled", "test": True,
}  # fmt: skip


def check_resolved(experiment, section, written):
    """Check what is written of a section, and that it is read again; return all that is written."""
    resolved = experiment.stated()
    assert resolved[section] == written
    again = Experiment.model_validate(resolved)
    assert again == experiment
    assert again.stated() == resolved
    return resolved


@pytest.mark.parametrize(
    ("stage", "written"),
    [
        ("{balance: sex}", {"balance": ["sex"], "algorithm": {"balanced_tree": {}}}),
        (
            "{balance: [sex, race], disclosivity: alpha, algorithm: qp_proxy, take: sample}",
            {"balance": ["sex", "race"], "disclosivity": "alpha", "algorithm": {"qp_proxy": {}}}
            | {"take": "sample"},
        ),
        (
            CUSTOM,
            {"objective": RULE, "disclosivity": 0, "algorithm": {"balanced_tree": {"depth": None}}},
        ),
    ],
)
def test_filter_is_written_and_read_again(load, stage, written):
    experiment = load(f"{PLAIN}filter: {stage}\n")
    resolved = check_resolved(experiment, "filter", {"take": "weights"} | written)
    assert resolved["algorithms"][1] == {"unconstrained": {"as": "plain", "filter": False}}
    assert [entry.filter for entry in experiment.algorithms] == [True, False]
    assert "filter" not in load(PLAIN).stated()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("as: plain", "as: filter", "'filter' is already the label of the results of `filter:`"),
        ("label: y", "label: y, levels: 3", "'levels' cannot be combined with 'filter'"),
    ],
)
def test_filter_conflicts_with_its_label_and_with_levels(load, faults_of, old, new, message):
    text = PLAIN.replace(old, new)
    load(text)
    (fault,) = faults_of(f"{text}filter: {{balance: sex}}\n")
    assert fault.message.startswith(message)


def test_other_keys_of_expect_are_swept_names_and_defaults_are_not_written(load):
    text = "{algorithm: unconstrained, variant: b, metric: m, at_most: 0, k: 1, mode: true}"
    experiment = load(f"{PLAIN}expect:\n  - {text}\n")
    (entry,) = experiment.expect
    assert entry.point == {"k": 1, "mode": True}
    assert (entry.kind, entry.at_most, entry.split, entry.within) == ("at_most", 0.0, "test", None)
    written = {"algorithm": "unconstrained", "variant": "b", "split": "test", "metric": "m"}
    check_resolved(experiment, "expect", [written | {"at_most": 0.0, "k": 1, "mode": True}])


@pytest.mark.parametrize("within", ["0", "0.5", "2%", ".5 %", "ci"])
def test_tolerances(load, within):
    text = f"{{algorithm: unconstrained, metric: m, value: 1, within: {within}}}"
    (entry,) = load(f"{PLAIN}expect:\n  - {text}\n").expect
    assert str(entry.within) in {within, f"{within}.0"}


def test_choices_are_those_of_safety_tests():
    fields = SafetySpec.model_fields
    assert set(get_args(fields["bound"].annotation)) == {AUTO, *BOUNDS}
    assert get_args(fields["method"].annotation) == get_args(SafetyMethod)
    plain = SafetySpec.model_validate({})
    assert SafetyTestSpec({}, 1) == SafetyTestSpec({}, 1, plain.bound, plain.method)


@pytest.mark.parametrize(
    ("own", "given"),
    [
        ("false", False),
        ("{}", {}),
        (
            "{delta: {a: 0.1, b: k}, fraction: 2/5}",
            {"delta": {"a": 0.1, "b": "k"}, "fraction": "2/5"},
        ),
        ("{delta: 1/20, aim: k}", {"delta": "1/20", "aim": "k"}),
        ("{bound: betting, stratify: [label]}", {"bound": "betting", "stratify": ["label"]}),
    ],
)
def test_safety_test_is_written_and_read_again(load, own, given):
    resolved = check_resolved(load(TESTED.replace("OWN", own)), "safety", DEFAULTS)
    assert resolved["algorithms"][1]["majorize"]["safety"] == given
    assert "safety" not in resolved["algorithms"][0]["unconstrained"]


def test_schema_has_safety_for_the_file_and_for_each_algorithm():
    schema = json_schema()
    reference = {"$ref": "#/$defs/SafetySpec"}
    assert schema["properties"]["safety"]["$ref"] == reference["$ref"]  # null is refused
    entry = schema["$defs"]["AlgorithmSpec"]["anyOf"][1]["additionalProperties"]
    own = entry["properties"]["safety"]["anyOf"]
    assert own == [reference, {"const": False, "type": "boolean"}]
    kinds = {each.get("type") for each in schema["properties"]["resample"]["anyOf"]}
    assert kinds == {"number", "string"}


@pytest.mark.parametrize(
    ("key", "amount", "number"),
    [
        ("time", 90, 90),
        ("time", "90 s", 90),
        ("time", "1.5 min", 90),
        ("time", "2h", 7200),
        ("time", "1e2 s", 100),
        ("memory", "64 MiB", 2**26),
        ("memory", "2 GB", 2 * 10**9),
        ("memory", 2**30, 2**30),
        ("memory", "1.5GiB", 3 * 2**29),
    ],
)
def test_units_of_time_and_memory(key, amount, number):
    assert getattr(LimitsSpec.model_validate({key: amount}), key) == number


@pytest.mark.parametrize(
    ("key", "amount", "words"),
    [
        ("time", 0, "more than 0"),
        ("time", "10 hours", "units s, min, h"),
        ("time", True, "must be a number or a text"),
        ("time", "1e4 h", "at most 30 days"),
        ("time", float("nan"), "more than 0"),
        ("memory", "2", "units B, kB"),
        ("memory", 5, "from 64 MiB"),
    ],
)
def test_invalid_limits_are_refused(key, amount, words):
    with pytest.raises(ValidationError, match=words):
        LimitsSpec.model_validate({key: amount})


@pytest.mark.parametrize(
    ("split", "seeds", "words"),
    [
        ("{folds: 5}", 3, "3 seeds do not test each row of 5 folds equally"),
        ("{folds: 2}", "[0, 2]", "2 seeds do not test"),
        ("{folds: 5}", "[0, 6, 2, 8, 4]", "5 seeds do not test"),
        ("{folds: 2}", "[4, 5]", ""),
        ("{folds: 3, seed: 1}", 6, ""),
        ("{folds: 3, test: 0}", 1, ""),
        ("{folds: 3, test: 0.2}", 3, "'test' cannot be combined with 'folds'"),
        ("{folds: 2, validation: 0.6}", 2, "must add up to 1"),
    ],
)
def test_seeds_of_folds(load, split, seeds, words):
    text = f"name: x\ndatasets: {{d: {{source: loans, split: {split}}}}}\nseeds: {seeds}\n"
    text += "algorithms: [unconstrained]\n"
    if not words:
        assert load(text).datasets["d"].division.folds
        return
    with pytest.raises(FaultError) as error:
        load(text)
    assert any(words in fault.message for fault in error.value.faults)


VALUES = st.one_of(
    st.integers(-5, 5),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from("xyz"),
)
AXES = st.dictionaries(
    st.sampled_from(["k", "j", "i"]), st.lists(VALUES, min_size=1, max_size=4), max_size=3
)


def typed(point):
    return tuple((name, isinstance(value, bool), value) for name, value in point.items())


GRIDS = {
    "no sweep": ({}, [{}]),
    "the product, in the order of the file": (
        {"k": [1, 2], "j": ["a", "b"]},
        [{"k": 1, "j": "a"}, {"k": 1, "j": "b"}, {"k": 2, "j": "a"}, {"k": 2, "j": "b"}],
    ),
    "zip": (
        {"a": [1, 2], "b": [True, False], "c": [5, 6], "zip": [["a", "c"]]},
        [
            {"a": 1, "b": True, "c": 5},
            {"a": 1, "b": False, "c": 5},
            {"a": 2, "b": True, "c": 6},
            {"a": 2, "b": False, "c": 6},
        ],
    ),
    "zip of a space and a list": (
        {"a": "linspace(0, 1, 2)", "b": ["x", "y"], "zip": [["b", "a"]]},
        [{"a": 0.0, "b": "x"}, {"a": 1.0, "b": "y"}],
    ),
    "exclude what matches all pairs": (
        {"a": [1, 2], "b": [1, 2], "exclude": [{"a": 1, "b": 2}]},
        [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}],
    ),
    "exclude distinguishes true from 1": (
        {"a": [1, True, 2], "exclude": [{"a": True}]},
        [{"a": 1}, {"a": 2}],
    ),
    "include adds points": ({"a": [1], "include": [{"a": 7}]}, [{"a": 1}, {"a": 7}]),
    "include alone": ({"include": [{"a": 7, "b": 8}]}, [{"a": 7, "b": 8}]),
    "include restores an excluded point": (
        {"a": [1, 2], "exclude": [{"a": 2}], "include": [{"a": 2}]},
        [{"a": 1}, {"a": 2}],
    ),
    "include completes the points it agrees with": (
        {"a": [1, 2], "include": [{"j": 0}, {"a": 2, "j": 5}]},
        [{"a": 1, "j": 0}, {"a": 2, "j": 5}],
    ),
    "equal values make one point": ({"a": [1, 1.0, True, 1]}, [{"a": 1}, {"a": True}]),
}


@pytest.mark.parametrize(("sweep", "points"), GRIDS.values(), ids=GRIDS)
def test_grid(sweep, points):
    assert sweep_points(Sweep.model_validate(sweep)) == points


def test_own_sweep_multiplies_the_grid_and_replaces_names():
    outer = Sweep.model_validate({"k": [1, 2], "j": [5]})
    assert sweep_points(outer, Sweep.model_validate({"i": [3, 4]})) == [
        {"k": 1, "j": 5, "i": 3},
        {"k": 1, "j": 5, "i": 4},
        {"k": 2, "j": 5, "i": 3},
        {"k": 2, "j": 5, "i": 4},
    ]
    assert sweep_points(outer, Sweep.model_validate({"k": [9]})) == [{"j": 5, "k": 9}]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("linspace(0, 1, 11)", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        ("linspace(0.3, 0, 4)", [0.3, 0.2, 0.1, 0.0]),
        (" linspace ( 2 ,3, 1) ", [2.0]),
        ("linspace(-1e-3, 1E-3, 3)", [-0.001, 0.0, 0.001]),
        ("logspace(0.001, 1, 4)", [0.001, 0.01, 0.1, 1.0]),
        ("logspace(1, 1024, 11)", [2.0**k for k in range(11)]),
        ("logspace(5., .5, 2)", [5.0, 0.5]),
        ("logspace(3, 9, 1)", [3.0]),
    ],
)
def test_spaces_give_correctly_rounded_values(text, values):
    assert list(expand_space(text)) == values


@given(AXES)
def test_the_grid_is_the_product_without_repetitions(axes):
    found = sweep_points(Sweep.model_validate(axes))
    distinct = [len({(isinstance(v, bool), v) for v in values}) for values in axes.values()]
    assert len(found) == math.prod(distinct)
    assert len({typed(point) for point in found}) == len(found)
    assert all(list(point) == list(axes) for point in found)
    for name, values in axes.items():
        exact = {(type(value), value) for value in values}
        assert all((type(point[name]), point[name]) in exact for point in found)


def test_many_excluded_and_included_points_take_linear_time():
    values, begun = list(range(3000)), time.perf_counter()
    exclude = [{"a": value} for value in values[1:]]
    include = [{"a": value, "b": -value} for value in values]
    assert sweep_points(Sweep.model_validate({"a": values, "exclude": exclude})) == [{"a": 0}]
    found = sweep_points(Sweep.model_validate({"a": values, "include": include}))
    assert [point["b"] for point in found] == [-value for value in values]
    assert time.perf_counter() - begun < 5


@given(AXES.filter(bool), st.data())
def test_exclude_removes_exactly_the_matching_points(axes, data):
    before = sweep_points(Sweep.model_validate(axes))
    names = data.draw(st.sets(st.sampled_from(sorted(axes)), min_size=1))
    chosen = data.draw(st.sampled_from(before))
    pairs = {name: chosen[name] for name in names}
    kept = [p for p in before if typed({n: p[n] for n in pairs}) != typed(pairs)]
    try:
        after = sweep_points(Sweep.model_validate(axes | {"exclude": [pairs]}))
    except ValidationError:
        after = []
    assert after == kept


@pytest.mark.parametrize("text", [FULL_FILE, template_text()], ids=["full", "starter"])
def test_resolved_file_is_plain_data_and_means_the_same(load, text):
    experiment = load(text)
    resolved = experiment.stated()
    assert json.loads(json.dumps(resolved, allow_nan=False)) == resolved
    assert Experiment.model_validate(resolved) == experiment
    assert Experiment.model_validate(resolved).stated() == resolved
    schema = json_schema()
    assert misfits(schema, Document.of_text(text).data, schema) == []
    assert misfits(schema, resolved, schema) == []


def test_defaults(load):
    experiment = load("name: x\ndatasets: {d: {source: loans}}\nalgorithms: [unconstrained]\n")
    assert experiment.stated() == {
        "name": "x",
        "description": "",
        "datasets": {"d": {"source": "loans"}},
        "groups": {},
        "bins": {},
        "objective": "error",
        "constraints": {},
        "regularization": {"l2": "1/n"},
        "holds": "train",
        "sweep": {},
        "algorithms": [{"unconstrained": {"as": "unconstrained"}}],
        "seeds": [0],
        "goal": {},
        "limits": {},
        "trial_seconds": {},
        "metrics": {"error": "error"},
        "report": {"tables": []},
        "expect": [],
    }
    assert sweep_points(experiment.sweep, experiment.algorithms[0].sweep) == [{}]


def test_entries_of_algorithms_and_data_sets(load):
    experiment = load(FULL_FILE)
    base, majorize, players = experiment.algorithms
    assert (base.name, base.label, base.options, base.sweep) == ("unconstrained", "base", {}, None)
    assert (players.label, players.options["steps"]) == ("three_player", 5000)
    assert experiment.seeds == (3, 1)
    assert experiment.datasets["mine"].stated() == {
        "path": "mine.csv",
        "label": "y",
        "positive": 1,
        "drop": ["sex"],
        "split": {"train": 0.7, "test": "3/10", "stratify": ["sex"], "seed": 3},
    }
    assert sweep_points(experiment.sweep) == [{"a": 2, "b": True}, {"a": 3, "b": "y"}]
    assert majorize.options == {"iterations": 8}
    assert len(sweep_points(experiment.sweep, majorize.sweep)) == 2 * 96
    with pytest.raises(ValidationError):
        experiment.name = "other"


def test_config_imports_no_heavy_library():
    code = (
        "import sys, ratecli.config.experiment, ratecli.render; "
        "print(*{'numpy', 'pandas', 'scipy', 'rich', 'typer'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
