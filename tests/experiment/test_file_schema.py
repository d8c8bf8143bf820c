"""The JSON schema for editors: complete, described, and valid for every shipped file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from json_schema import faults, parts
from jsonschema import Draft202012Validator

from ratecli.config.document import Document
from ratecli.datasets.sources import SOURCES
from ratecli.experiment.catalogue import list_metrics, template_summaries, template_text
from ratecli.experiment.schema import file_schema, option_schemas
from ratecli.render import terminal_safe_json
from ratecli.solvers.registry import all_algorithms

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "experiments").rglob("*.yaml"))
PLAIN = "name: x\ndatasets: {d: {source: loans}}\nalgorithms: [unconstrained]\n"


@pytest.fixture(scope="module")
def schema():
    return file_schema()


def test_schema_is_well_formed_and_describes_every_key(schema):
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)
    bare = [
        (*path, name)
        for path, part in parts(schema)
        for name, inner in part.get("properties", {}).items()
        if not inner.get("description") and "$ref" not in inner
    ]
    assert bare == []


def test_all_names_are_offered_with_their_summaries(schema):
    defined = schema["$defs"]
    sources = defined["DatasetSpec"]["properties"]["source"]["anyOf"][0]["oneOf"]
    assert {each["const"]: each["description"] for each in sources} == {
        name: source.summary for name, source in SOURCES.items()
    }
    offered = defined["AlgorithmSpec"]["anyOf"][0]["oneOf"]
    assert [each["const"] for each in offered] == list(all_algorithms())
    assert all(each["description"] for each in (*sources, *offered))
    rule = next(iter(schema["properties"]["constraints"]["patternProperties"].values()))
    assert all(row["name"] in rule["description"] for row in list_metrics())


def test_options_of_algorithms_with_their_defaults(schema):
    for algorithm in all_algorithms().values():
        part = schema["$defs"][f"options.{algorithm.name}"]
        options = option_schemas(algorithm)
        assert options.keys() < part["properties"].keys()
        assert part["additionalProperties"] is False
        for name, option in options.items():
            offered = part["properties"][name]
            assert option["description"] in offered["description"]
            assert offered["default"] == option["default"]
            assert faults(offered, option["default"], schema) == []


@pytest.mark.parametrize(
    "path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT / "experiments"))
)
def test_shipped_experiments_are_valid(schema, path):
    assert faults(schema, Document.read(path).data, schema) == []


SWEPT_OPTION = PLAIN.replace("[unconstrained]", "[majorize: {iterations: n}]\nsweep: {n: [1, 2]}")


@pytest.mark.parametrize(
    "text",
    [*map(template_text, template_summaries()), PLAIN, SWEPT_OPTION],
    ids=lambda text: text[:40],
)
def test_starter_files_and_swept_options_are_valid(schema, text):
    assert faults(schema, Document.of_text(text).data, schema) == []


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("source: loans", "source: lones"),
        PLAIN.replace("[unconstrained]", "[unconstraint]"),
        PLAIN.replace("[unconstrained]", "[majorize: {iteration: 3}]"),
        PLAIN.replace("[unconstrained]", "[majorize: {iterations: 0}]"),
        PLAIN.replace("[unconstrained]", "[majorize: {hashed: 2}]"),
        PLAIN.replace("[unconstrained]", "[majorize: {inner: [newton]}]"),
        PLAIN.replace("[unconstrained]", "[majorise: {}]"),
        PLAIN + "filter: {balance: sex, algorithm: majorize}\n",
        PLAIN + "constraints: {a: 1}\n",
        PLAIN + "report: {plots: [{kind: pie}]}\n",
        PLAIN + "report: {plots: [{kind: tradeoff, x: a, y: b, lines: c}]}\n",
        PLAIN + "report: {plots: [{kind: tradeoff, x: a}]}\n",
        PLAIN + "report: {plots: [{kind: convergence, x: error}]}\n",
        PLAIN + "expect: [{algorithm: a, paper: 1}]\n",
        PLAIN + "expect: [{algorithm: a, metric: m, paper: low}]\n",
        PLAIN + "expect: [{algorithm: a, metric: m, paper: 1, within: two}]\n",
        PLAIN + "expect: [{algorithm: a, metric: m, paper: 1, kappa: [1]}]\n",
        PLAIN + "seeds: 0\n",
        PLAIN + "sweep: {k: 5}\n",
        PLAIN.replace("name: x", "name: ../evil"),
        PLAIN.replace("source: loans", "source: loans, rows: many"),
        PLAIN.replace("[unconstrained]", "[]"),
        PLAIN.replace("[unconstrained]", "[{a: {}, b: {}}]"),
    ],
)  # fmt: skip
def test_invalid_files(schema, text):
    assert faults(schema, Document.of_text(text).data, schema)


def test_schema_does_not_depend_on_hash_seeds(schema):
    command = [sys.executable, "-m", "ratecli", "schema"]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == terminal_safe_json(schema) + "\n"
