import json
import subprocess
import sys

import pytest
from full_file import FULL_FILE
from nested import faults as misfits
from pydantic import ValidationError

from ratecli.config.document import Document
from ratecli.config.experiment import Experiment, json_schema
from ratecli.config.sweep import sweep_points
from ratecli.experiment.starters.options import template_text


@pytest.mark.parametrize("text", [FULL_FILE, template_text()], ids=["full", "starter"])
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
        "bins": {},
        "objective": "error",
        "constraints": {},
        "regularization": {"l2": "1/n"},
        "holds": "train",
        "sweep": {},
        "algorithms": [{"unconstrained": {"as": "unconstrained"}}],
        "seeds": [0],
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
