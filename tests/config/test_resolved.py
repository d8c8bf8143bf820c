import json
import subprocess
import sys

import pytest
from json_schema import faults as misfits
from pydantic import ValidationError

from ratecli.config.document import Document
from ratecli.config.experiment import Experiment, json_schema
from ratecli.config.sweep import sweep_points
from ratecli.experiment.catalogue import template_text

QUICKSTART = """\
name: quickstart
description: How much accuracy does each algorithm pay for the 80% rule?
datasets:
  loans: {source: loans, rows: 4000}            # generated, with a known optimal trade-off
groups:
  women: sex = Female
  men: sex = Male
objective: error
constraints:
  parity: positive_rate[women] >= kappa * positive_rate[men]
sweep: {kappa: [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]}
algorithms:
  - unconstrained
  - majorize: {iterations: 6}
  - three_player
  - exponentiated_gradient
seeds: 5
metrics:
  ratio: positive_rate[women] / positive_rate[men]
  error: error
report:
  tables: [{rows: [algorithm, variant, kappa], columns: [ratio, error, violation.parity]}]
  plots: [{kind: tradeoff, x: ratio, y: error}]
"""

FIGURE_2 = """\
name: goh2016-adult-fairness
datasets: {adult: {source: a9a}}
groups: {men: sex = Male, women: sex = Female}
regularization: {l2: 1/n}
constraints: {ratio: 'positive_rate[men] <= target * positive_rate[women]'}
algorithms:
  - unconstrained: {loss: hinge}
  - majorize: {iterations: 8, inner: cutting_plane, sweep: {target: 'linspace(1, 6.5, 96)'}}
  - zafar:
      sweep:
        covariance: linspace(0, 0.3, 60)
metrics: {ratio: 'positive_rate[men] / positive_rate[women]', error: error}
report:
  plots:
    - {kind: tradeoff, x: ratio, y: error, lines: [unconstrained], file: figure2}
    - {kind: tradeoff, x: target, y: ratio, algorithms: [majorize], variants: [a], diagonal: true}
    - {kind: tradeoff, x: violation.ratio, y: error, by: target}
    - {kind: convergence, x: seconds, by: target, title: On the way}
    - {kind: tradeoff, x: ratio, y: error, split: [train, test]}
    - {kind: posteriors, algorithms: [a], variant: drawn, column: job, at: {target: [0.5, 1], word: [low]}, seed: 3}
    - {kind: group_shares, split: validation, title: Whom}
    - {kind: guarantee, x: target, y: error, truth: train, constraint: ratio, variants: [a]}
"""

TABLE_3 = """\
name: narasimhan2019-table3-adult
datasets:
  adult: {source: adult, preparation: narasimhan2019, split: {validation: 1/3}}
  mine:
    path: mine.csv
    label: y
    positive: 1
    drop: [sex]
    split: {train: 0.7, test: 3/10, stratify: [sex], seed: 3}
groups: {women: sex = Female, men: sex != Female}
objective: kl(base_rate, positive_rate[women]) + kl(base_rate, positive_rate[men])
constraints: {accuracy: 'error <= 1.1 * of(unconstrained, error)'}
deployed: {algorithm: base}
sweep: {a: [1, 2], b: [x, true], zip: [[a, b]], include: [{a: 3, b: y}], exclude: [{a: 1}]}
algorithms:
  - unconstrained: {as: base}
  - three_player:
      steps: 5000
      tune: {learning_rate: [0.001, 0.01, 0.1, 1], multiplier_rate: [0.001, 0.01, 0.1, 1]}
seeds: [3, 1]
expect:
  - {algorithm: three_player, variant: stochastic, metric: objective, paper: 0.014, source: Table 3}
  - {algorithm: base, split: train, metric: violation.accuracy, at_most: 0, within: ci, a: 2, b: true}
"""

FILES = {
    "quickstart": QUICKSTART,
    "figure 2": FIGURE_2,
    "table 3": TABLE_3,
    "starter": template_text(),
}
each_file = pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())


@each_file
def test_resolved_file_is_plain_data_and_means_the_same(load, text):
    experiment = load(text)
    resolved = experiment.resolved()
    assert json.loads(json.dumps(resolved, allow_nan=False)) == resolved
    assert Experiment.model_validate(resolved) == experiment
    assert Experiment.model_validate(resolved).resolved() == resolved
    schema = json_schema()
    assert misfits(schema, Document.of_text(text).data, schema) == []
    assert misfits(schema, resolved, schema) == []


def test_defaults(load):
    experiment = load("name: x\ndatasets: {d: {source: loans}}\nalgorithms: [unconstrained]\n")
    assert experiment.resolved() == {
        "name": "x",
        "description": "",
        "datasets": {"d": {"source": "loans"}},
        "groups": {},
        "objective": "error",
        "constraints": {},
        "regularization": {"l2": "1/n"},
        "sweep": {},
        "algorithms": [{"unconstrained": {"as": "unconstrained"}}],
        "seeds": [0],
        "limits": {},
        "metrics": {"error": "error"},
        "report": {"tables": [], "plots": []},
        "expect": [],
    }
    assert sweep_points(experiment.sweep, experiment.algorithms[0].sweep) == [{}]


def test_entries_of_algorithms_and_data_sets(load):
    experiment = load(TABLE_3)
    base, players = experiment.algorithms
    assert (base.name, base.label, base.options, base.sweep) == ("unconstrained", "base", {}, None)
    assert players.label == "three_player"
    assert players.options["steps"] == 5000
    assert experiment.seeds == (3, 1)
    assert experiment.datasets["mine"].options() == {
        "path": "mine.csv",
        "label": "y",
        "positive": 1,
        "drop": ["sex"],
        "split": {"train": 0.7, "test": "3/10", "stratify": ["sex"], "seed": 3},
    }
    assert sweep_points(experiment.sweep) == [{"a": 2, "b": True}, {"a": 3, "b": "y"}]


def test_own_sweep_of_an_algorithm(load):
    experiment = load(FIGURE_2)
    majorize = experiment.algorithms[1]
    assert majorize.options == {"iterations": 8, "inner": "cutting_plane"}
    assert len(sweep_points(experiment.sweep, majorize.sweep)) == 96
    with pytest.raises(ValidationError):
        experiment.name = "other"


def test_config_imports_no_heavy_library():
    code = (
        "import sys, ratecli.config.experiment, ratecli.render; "
        "print(*{'numpy', 'pandas', 'scipy', 'rich', 'typer'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    "change",
    [
        {"nme": "x"},
        {"name": "../evil"},
        {"seeds": 0},
        {"seeds": "many"},
        {"algorithms": []},
        {"algorithms": [{"a": {}, "b": {}}]},
        {"algorithms": [{"a": 5}]},
        {"datasets": {"d": {"source": "a", "rows": "many"}}},
        {"sweep": {"k": 5}},
        {"expect": [{"algorithm": "a", "paper": 1}]},
        {"expect": [{"algorithm": "a", "metric": "m", "paper": "low"}]},
        {"expect": [{"algorithm": "a", "metric": "m", "paper": 1, "within": "two"}]},
        {"expect": [{"algorithm": "a", "metric": "m", "paper": 1, "kappa": [1]}]},
        {"report": {"plots": [{"kind": "pie", "x": "a", "y": "b"}]}},
        {"report": {"plots": [{"kind": "tradeoff", "x": "a", "y": "b", "lines": "c"}]}},
        {"report": {"plots": [{"kind": "tradeoff", "x": "a"}]}},
        {"report": {"plots": [{"kind": "convergence", "x": "error"}]}},
        {"report": {"plots": [{"kind": "tradeoff", "x": "a", "y": "b", "algorithms": []}]}},
    ],
)
def test_the_schema_refuses_bad_files(change):
    schema = json_schema()
    good = {"name": "x", "datasets": {"d": {"source": "loans"}}, "algorithms": ["a", {"b": None}]}
    assert misfits(schema, good, schema) == []
    assert misfits(schema, good | change, schema)


def test_every_key_is_described():
    schema = json_schema()
    parts = {"Experiment": schema} | {
        name: part for name, part in schema["$defs"].items() if "properties" in part
    }
    bare = [
        f"{name}.{key}"
        for name, part in parts.items()
        for key, value in part["properties"].items()
        if not value.get("description")
    ]
    assert not bare
    sections = {"DatasetSpec", "SplitSpec", "TableSpec", "TradeoffPlot", "ConvergencePlot"}
    assert {*sections, "ReportSpec", "DeployedSpec", "Expectation"} <= set(parts)
