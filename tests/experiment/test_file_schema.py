"""The JSON schema for editors: complete, described, and valid for every shipped file."""

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from nested import faults, parts

from experiments import SHIPPED
from ratecli.config.document import Document
from ratecli.datasets.sources import SOURCES
from ratecli.experiment.registry import list_metrics
from ratecli.experiment.schema import algorithm_notes, file_schema, option_schemas
from ratecli.experiment.starters.options import template_summaries, template_text
from ratecli.solvers.registry import all_algorithms

ROOT = Path(__file__).parents[2]
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
    described = schema["properties"]["constraints"]["description"]
    assert all(row["name"] in described for row in list_metrics())


def test_options_of_algorithms_with_their_defaults(schema):
    for algorithm in all_algorithms().values():
        part = schema["$defs"][f"options.{algorithm.name}"]
        options = option_schemas(algorithm)
        assert options.keys() < part["properties"].keys()
        assert part["additionalProperties"] is False
        defaults = {field.name: field.default for field in fields(algorithm.load())}
        defaults |= algorithm.preset
        assert {name: each["default"] for name, each in options.items()} == {
            name: [] if value == () else value for name, value in defaults.items()
        }
        assert all(each["description"] for each in options.values())
        assert "Attributes" not in algorithm_notes(algorithm)
        for name, option in options.items():
            offered = part["properties"][name]
            assert option["description"] in offered["description"]
            assert offered["default"] == option["default"]
            assert faults(offered, option["default"], schema) == []


SWEPT_OPTION = PLAIN.replace("[unconstrained]", "[majorize: {iterations: n}]\nsweep: {n: [1, 2]}")
LIMITED = PLAIN + "limits: {time: 1.5 min, memory: 2 GiB}\nregularization: {l2: 2/n}\n"
SHIPPED_TEXTS = [path.read_text("utf-8") for path in SHIPPED]


@pytest.mark.parametrize(
    "text",
    [*SHIPPED_TEXTS, *map(template_text, template_summaries()), PLAIN, SWEPT_OPTION, LIMITED],
    ids=lambda text: text[:40],
)
def test_shipped_and_starter_files_and_swept_options_are_valid(schema, text):
    assert faults(schema, Document.of_text(text).data, schema) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("source: loans", "source: lones"),
        ("source: loans", "source: loans, rows: many"),
        ("name: x", "name: ../evil"),
        *(
            ("[unconstrained]", entries)
            for entries in (
                "[]",
                "[unconstraint]",
                "[{a: {}, b: {}}]",
                "[majorise: {}]",
                "[majorize: {iteration: 3}]",
                "[majorize: {iterations: 0}]",
                "[majorize: {inner: [newton]}]",
            )
        ),
        *(
            ("algorithms", f"{section}\nalgorithms")
            for section in (
                "filter: {balance: sex, algorithm: majorize}",
                "constraints: {a: 1}",
                "report: {plots: [{kind: pie}]}",
                "report: {plots: [{kind: tradeoff, x: a}]}",
                "report: {plots: [{kind: convergence, x: error}]}",
                "expect: [{algorithm: a, paper: 1}]",
                "expect: [{algorithm: a, metric: m, paper: 1, within: two}]",
                "expect: [{algorithm: a, metric: m, paper: 1, kappa: [1]}]",
                "seeds: 0",
                "limits: {time: 0}",
                "limits: {time: soon}",
                "limits: {memory: -1}",
                "limits: {memory: 2 min}",
                "regularization: {l2: 0}",
                "regularization: {l2: 0/n}",
                "sweep: {k: 5}",
            )
        ),
    ],
)
def test_invalid_files(schema, old, new):
    assert faults(schema, Document.of_text(PLAIN.replace(old, new)).data, schema)


def test_schema_does_not_depend_on_hash_seeds(schema):
    command = [sys.executable, "-m", "ratecli", "schema"]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == json.dumps(schema, indent=2) + "\n"
