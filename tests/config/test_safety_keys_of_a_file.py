"""What `safety:` may say is what there is."""

from __future__ import annotations

from typing import get_args

import pytest

from ratecli.certify.bounds import AUTO, BOUNDS
from ratecli.certify.trees import DeltaDivision, SafetyMethod, SafetyTestSpec
from ratecli.config.experiment import Experiment, json_schema
from ratecli.config.safety import SafetySpec

HEAD = "name: x\ndatasets: {d: {source: loans}}\nconstraints: {a: error <= 0.2, b: tpr >= 0.1}\n"
FILE = HEAD + "algorithms: [unconstrained, majorize: {safety: OWN}]\nsafety: {}\n"


def test_choices_are_those_of_safety_tests():
    fields = SafetySpec.model_fields
    assert set(get_args(fields["bound"].annotation)) == {AUTO, *BOUNDS}
    assert get_args(fields["method"].annotation) == get_args(SafetyMethod)
    assert get_args(fields["division"].annotation) == get_args(DeltaDivision)
    plain = SafetySpec.model_validate({})
    assert SafetyTestSpec({}, 1) == SafetyTestSpec({}, 1, plain.bound, plain.method, plain.division)


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
def test_resolved_file_means_the_same(load, own, given):
    experiment = load(FILE.replace("OWN", own))
    resolved = experiment.resolved()
    assert resolved["safety"] == {
        "delta": 0.05,
        "bound": "auto",
        "fraction": 0.5,
        "method": "pieces",
        "division": "equal",
        "order": "shuffled",
        "test": True,
    }
    assert resolved["algorithms"][1]["majorize"]["safety"] == given
    assert "safety" not in resolved["algorithms"][0]["unconstrained"]
    again = Experiment.model_validate(resolved)
    assert again == experiment
    assert again.resolved() == resolved


def test_schema_has_the_keys():
    """For the file and, or `false`, for each algorithm."""
    schema = json_schema()
    reference = {"$ref": "#/$defs/SafetySpec"}
    assert schema["properties"]["safety"]["$ref"] == reference["$ref"]  # null is refused
    entry = schema["$defs"]["AlgorithmSpec"]["anyOf"][1]["additionalProperties"]
    own = entry["properties"]["safety"]["anyOf"]
    assert own == [reference, {"const": False, "type": "boolean"}]
    kinds = {each.get("type") for each in schema["properties"]["resample"]["anyOf"]}
    assert kinds == {"number", "string"}


def test_override_sets_one_key(load):
    experiment = load(FILE.replace("OWN", "{delta: 0.1}"), "safety.fraction=0.4", "resample=1/3")
    assert (experiment.safety.fraction, experiment.safety.delta) == (0.4, 0.05)
    assert experiment.resample == "1/3"
    own = load(FILE.replace("OWN", "{}"), "algorithms.1.majorize.safety=false")
    assert own.algorithms[1].safety is False
