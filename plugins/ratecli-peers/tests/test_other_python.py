"""Packages run by interpreters of their own, named by FAIRGBM_PYTHON and so on."""

import json
import os
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import Rules, problem, run, smooth_rows
from ratecli_peers import other_python
from ratecli_peers.other_methods import TFCO, FairGBM, SeldonianToolkit

from ratecli.errors import FaultError
from ratecli.models.storage import dumps, loads

ROWS = smooth_rows(3)
GROUP = np.unique(ROWS.group, return_inverse=True)[1]
BY_HAND = """
import json, sys, numpy as np
from fairgbm import FairGBMClassifier
kind, data = sys.argv[1], np.load(sys.argv[2])
model = FairGBMClassifier(constraint_type=kind, constraint_fnr_tolerance=0.05,
    constraint_fpr_tolerance=0.05, n_jobs=1, random_state=0)
model.fit(data["X"], data["y"], constraint_group=data["g"])
print(json.dumps((model.predict_proba(data["X"])[:, -1] > 0.5).tolist()))
"""
NO_MODEL = """
import pathlib, sys, pandas as pd
folder = pathlib.Path(sys.argv[1])
rows = pd.read_parquet(folder / "rows.parquet")
pd.DataFrame({"decision": rows.label}).to_parquet(folder / "decisions.parquet")
(folder / "model.json").write_text("null")
"""


def interpreter(name):
    if not os.environ.get(name):
        pytest.skip(f"{name} names no interpreter")
    return os.environ[name]


def decisions(solver, rules):
    given = problem(ROWS, Rules(rules))
    found = run(solver, given)
    return given, found, given.decisions(loads(dumps(found.main)))


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("max_gap(tpr, by=g) <= 0.05", "FNR"),
        ("max_gap(fpr, by=g) <= 0.05", "FPR"),
        ("equalized_odds_difference(by=g) <= 0.05", "FNR,FPR"),
    ],
)
def test_fairgbm_decides_as_by_hand(tmp_path, rule, kind):
    python = interpreter("FAIRGBM_PYTHON")
    np.savez(tmp_path / "rows.npz", X=ROWS.X, y=ROWS.label.astype(int), g=GROUP)
    call = [python, "-c", BY_HAND, kind, tmp_path / "rows.npz"]
    said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    _, _, found = decisions(FairGBM(python=python), {"r": rule})
    np.testing.assert_array_equal(found, json.loads(said.splitlines()[-1]))


@pytest.mark.parametrize(
    "rules",
    [
        {"r": "max_gap(tpr, by=g) <= 0.05"},
        {"r": "min_ratio(positive_rate, by=g) >= 0.8"},
        {"r": "min(tpr, by=g) >= 0.7", "s": "max_gap(fpr, by=g) <= 0.1"},
    ],
)
def test_tfco_meets_rules_on_average(rules):
    solver = TFCO(python=interpreter("TFCO_PYTHON"), learning_rate=0.05, steps=500)
    given, solution, found = decisions(solver, rules)
    assert solution.trace[-1]["objective"] == pytest.approx(given.value_of(found))
    assert given.worst_violation(given.rates.rates(found)) <= 0.01
    assert given.value_of(found) <= 0.35


@pytest.mark.parametrize(
    ("rule", "passes"),
    [
        ("max_gap(positive_rate, by=g) <= 0.6", True),
        ("min_ratio(tpr, by=g) >= 0.1", True),
        ("max_gap(fpr, by=g) <= 0.01", False),
    ],
)
def test_the_toolkits_model_is_returned_if_it_passes_the_test(rule, passes):
    solver = SeldonianToolkit(python=interpreter("SELDONIAN_PYTHON"), num_iters=50)
    rows = replace(ROWS, group=np.where(GROUP == 0, "a", "b").astype(object))
    given = problem(rows, Rules({"r": rule}))
    found = run(solver, given)
    assert (found.status == "solved") == passes
    assert bool(found.variants) == passes
    assert not passes or given.value(found.main) < 0.3


def test_an_interpreter_that_is_absent_is_named():
    with pytest.raises(FaultError, match="'/nowhere' cannot be run"):
        decisions(TFCO(python="/nowhere"), {"r": "max_gap(tpr, by=g) <= 0.05"})


@pytest.mark.parametrize("solver", [FairGBM(), TFCO()])
def test_a_script_without_a_model_is_an_error(tmp_path, monkeypatch, solver):
    (tmp_path / f"{solver.script}_script.py").write_text(NO_MODEL)
    monkeypatch.setattr(other_python, "SCRIPTS", tmp_path)
    with pytest.raises(FaultError, match=r"E501.*returned no model"):
        decisions(solver, {"r": "max_gap(tpr, by=g) <= 0.05"})


def test_a_run_that_takes_too_long_is_ended():
    solver = TFCO(python=interpreter("TFCO_PYTHON"), seconds=0.5)
    with pytest.raises(FaultError, match="took more than"):
        decisions(solver, {"r": "max_gap(tpr, by=g) <= 0.05"})
