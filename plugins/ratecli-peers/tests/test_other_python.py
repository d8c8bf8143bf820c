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
from ratecli_peers.rows import seed_of

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
TFCO_BY_HAND = """
import json, sys, numpy as np, tensorflow as tf, tensorflow_constrained_optimization as tfco
rule, data = sys.argv[1], np.load(sys.argv[2])
v1, X, label, groups = tf.compat.v1, data["X"].astype("float32"), data["y"], data["g"]
v1.disable_eager_execution()
w = v1.get_variable("w", [X.shape[1] + 1], initializer=v1.zeros_initializer(), use_resource=True)
scores = tf.tensordot(np.hstack([X, np.ones((len(X), 1), "float32")]), w, 1)
rows = tfco.rate_context(scores, tf.constant(label, "float32"))
parts = [rows.subset(tf.constant(groups == g)) for g in np.unique(groups)]
tpr, fpr, chosen = (list(map(rate, parts)) for rate in (
    tfco.true_positive_rate, tfco.false_positive_rate, tfco.positive_prediction_rate))
problem = tfco.RateMinimizationProblem(tfco.error_rate(rows), eval(rule))
step = tfco.ProxyLagrangianOptimizerV1(v1.train.AdamOptimizer(0.05),
    constraint_optimizer=v1.train.AdamOptimizer(0.01)).minimize(problem)
now, seen = [w, problem.objective(), problem.constraints()], []
with v1.Session() as session:
    session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
    for t in range(1, 501):
        session.run(step)
        if t % 10 == 0:
            seen.append(session.run(now))
weights, errors, over = map(np.array, zip(*seen))
chances = tfco.find_best_candidate_distribution(errors, over)
print(json.dumps(((X @ weights[:, :-1].T + weights[:, -1] > 0) @ chances).tolist()))
"""
TOOLKIT_BY_HAND = """
import contextlib, io, json, sys, numpy as np
from seldonian.dataset import SupervisedDataSet, SupervisedMetaData
from seldonian.models import objectives
from seldonian.models.models import BinaryLogisticRegressionModel
from seldonian.parse_tree.parse_tree import make_parse_trees_from_constraints
from seldonian.seldonian_algorithm import SeldonianAlgorithm
from seldonian.spec import SupervisedSpec, default_supervised_initial_solution_fn
rule, data = sys.argv[1], np.load(sys.argv[2])
order = np.random.RandomState(int(sys.argv[3])).permutation(len(data["y"]))
X, y, members = data["X"][order], data["y"][order], np.eye(2)[data["g"][order]]
sub, names = "classification", [f"x{j}" for j in range(X.shape[1])]
meta = SupervisedMetaData(sub, ["g0", "g1", *names, "y"], names, ["y"], ["g0", "g1"])
trees = make_parse_trees_from_constraints([rule], [0.05], "supervised_learning", sub,
    columns=["g0", "g1"])
spec = SupervisedSpec(SupervisedDataSet(X, y, members, len(y), meta),
    BinaryLogisticRegressionModel(), parse_trees=trees, sub_regime=sub,
    frac_data_in_safety=0.6, primary_objective=objectives.binary_logistic_loss,
    initial_solution_fn=default_supervised_initial_solution_fn,
    optimization_hyperparams=dict(lambda_init=np.array([0.5]), alpha_theta=0.01,
        alpha_lamb=0.01, beta_velocity=0.9, beta_rmsprop=0.95, use_batches=False, num_iters=50,
        gradient_library="autograd", hyper_search=None, verbose=False))
with contextlib.redirect_stdout(io.StringIO()):
    passed, w = SeldonianAlgorithm(spec).run()
print(json.dumps([bool(passed), *((data["X"] @ w[1:] + w[0] > 0).tolist() if passed else [])]))
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


def by_hand(folder, name, script, *arguments, group=GROUP):
    """Return what a script prints as JSON about the rows, run by the named interpreter."""
    np.savez(folder / "rows.npz", X=ROWS.X, y=ROWS.label.astype(int), g=group)
    call = [interpreter(name), "-c", script, arguments[0], folder / "rows.npz", *arguments[1:]]
    said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    return json.loads(said.splitlines()[-1])


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("max_gap(tpr, by=g) <= 0.05", "FNR"),
        ("max_gap(fpr, by=g) <= 0.05", "FPR"),
        ("equalized_odds_difference(by=g) <= 0.05", "FNR,FPR"),
    ],
)
def test_fairgbm_decides_as_by_hand(tmp_path, rule, kind):
    expected = by_hand(tmp_path, "FAIRGBM_PYTHON", BY_HAND, kind)
    _, _, found = decisions(FairGBM(python=interpreter("FAIRGBM_PYTHON")), {"r": rule})
    np.testing.assert_array_equal(found, expected)


GAP = "[a - b <= {1} for a in {0} for b in {0} if a is not b]"
RATIO = "[a >= {1} * b for a in {0} for b in {0} if a is not b]"
FLOOR = "[a >= {1} for a in {0}]"


@pytest.mark.parametrize(
    ("rules", "written"),
    [
        ({"r": "max_gap(tpr, by=g) <= 0.05"}, GAP.format("tpr", 0.05)),
        ({"r": "min_ratio(positive_rate, by=g) >= 0.8"}, RATIO.format("chosen", 0.8)),
        (
            {"r": "min(tpr, by=g) >= 0.7", "s": "max_gap(fpr, by=g) <= 0.1"},
            f"{FLOOR.format('tpr', 0.7)} + {GAP.format('fpr', 0.1)}",
        ),
    ],
)
def test_tfco_decides_as_by_hand(tmp_path, rules, written):
    """Rates may differ in the last digit of single precision, and so may chances."""
    solver = TFCO(python=interpreter("TFCO_PYTHON"), learning_rate=0.05, steps=500)
    given, solution, found = decisions(solver, rules)
    assert solution.trace[-1]["objective"] == pytest.approx(given.value_of(found))
    assert given.worst_violation(given.rates.rates(found)) <= 0.01
    expected = by_hand(tmp_path, "TFCO_PYTHON", TFCO_BY_HAND, written)
    np.testing.assert_allclose(found, expected, atol=0.01)


@pytest.mark.parametrize(
    ("rule", "written", "passes"),
    [
        ("max_gap(positive_rate, by=g) <= 0.6", "abs((PR|[g0]) - (PR|[g1])) <= 0.6", True),
        (
            "min_ratio(tpr, by=g) >= 0.1",
            "min((TPR|[g0]) / (TPR|[g1]), (TPR|[g1]) / (TPR|[g0])) >= 0.1",
            True,
        ),
        ("max_gap(fpr, by=g) <= 0.01", "abs((FPR|[g0]) - (FPR|[g1])) <= 0.01", False),
    ],
)
def test_the_toolkit_decides_as_by_hand_if_its_model_passes(tmp_path, rule, written, passes):
    solver = SeldonianToolkit(python=interpreter("SELDONIAN_PYTHON"), num_iters=50)
    group = np.minimum(GROUP, 1)
    given = problem(replace(ROWS, group=np.array(["a", "b"], object)[group]), Rules({"r": rule}))
    found = run(solver, given)
    call = (TOOLKIT_BY_HAND, written, str(seed_of(np.random.default_rng(0))))
    passed, *expected = by_hand(tmp_path, "SELDONIAN_PYTHON", *call, group=group)
    assert (found.status == "solved") == bool(found.variants) == passed == passes
    if passes:
        np.testing.assert_array_equal(given.decisions(found.main), expected)


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
