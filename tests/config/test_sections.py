"""`filter:`, `safety:`, `expect:` and `limits:`: how they are read, written back and combined.

Errors of their keys are in test_broken_files.py."""

from typing import get_args

import pytest
from pydantic import ValidationError

from ratecli.certify.bounds import AUTO, BOUNDS
from ratecli.certify.trees import SafetyMethod, SafetyTestSpec
from ratecli.config.experiment import Experiment, json_schema
from ratecli.config.training import LimitsSpec, SafetySpec

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
    resolved = experiment.resolved()
    assert resolved[section] == written
    again = Experiment.model_validate(resolved)
    assert again == experiment
    assert again.resolved() == resolved
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
    assert "filter" not in load(PLAIN).resolved()


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
