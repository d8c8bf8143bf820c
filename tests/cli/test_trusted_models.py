"""Classifiers of a module that the user trusts, and tuned ones, by the command line."""

import os
import sys

import numpy as np
import pandas as pd
import pytest

MODULE = '''\
import os
import pathlib

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin


class Direction:
    def __init__(self, weights, bias):
        self.weights, self.bias = weights, bias


class Means(ClassifierMixin, BaseEstimator):
    """Classifies by the nearer of two weighted means."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, X, y, sample_weight=None):
        pathlib.Path(__file__).with_name(f"fitted_by_{os.getpid()}").touch()
        X = X.toarray() if hasattr(X, "toarray") else X
        self.classes_ = np.unique(y)
        low, high = (np.average(X[y == c], axis=0, weights=sample_weight[y == c])
                     for c in self.classes_)
        self.found_ = Direction(high - low, (low @ low - high @ high) / 2)
        return self

    def predict_proba(self, X):
        score = self.scale * (X @ self.found_.weights + self.found_.bias)
        chance = 1 / (1 + np.exp(-score))
        return np.column_stack([1 - chance, chance])
'''
FILE = """\
name: own
datasets: {people: {path: people.csv, label: y}}
seeds: 2
report: {plots: []}
algorithms:
  - unconstrained: {model: {'own_means:Means': {scale: 2.0}}}
  - thresholded: {model: 'own_means:Means', scores: {folds: 2}}
"""
TRUST = ("--trust", "own_means")


@pytest.fixture
def own(folder, monkeypatch):
    """A folder with the module, a table and a file; nothing is trusted at the end."""
    monkeypatch.setenv("RATECLI_TRUST", "")
    monkeypatch.syspath_prepend(str(folder))
    (folder / "own_means.py").write_text(MODULE)
    (folder / "own.yaml").write_text(FILE)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.normal(size=300), "b": rng.normal(size=300)})
    rows["y"] = (rows.a - rows.b + rng.normal(size=300) > 0).astype(int)
    rows.to_csv(folder / "people.csv", index=False)
    yield folder
    sys.modules.pop("own_means", None)


def test_workers_fit_classifiers_of_a_trusted_module_and_predict_loads_them(own, cli, monkeypatch):
    answer = cli(*TRUST, "run", "own.yaml", "--executor", "processes", "-j", 1)
    assert answer.code == 0, answer.err
    assert "4 trials: 4 ok" in answer.out
    workers = {int(path.name.rpartition("_")[2]) for path in own.glob("fitted_by_*")}
    assert workers
    assert os.getpid() not in workers
    model = own / "results/own/models/unconstrained-seed=0"
    monkeypatch.setenv("RATECLI_TRUST", "other")
    sys.modules.pop("own_means")
    refused = cli("predict", model, "people.csv")
    assert refused.code == 4
    assert "types that are not trusted: own_means.Direction, own_means.Means" in refused.err
    refused = cli("run", "own.yaml")
    assert refused.code == 2
    assert "error[E104]: 'own_means' is not a package whose classes a file may name" in refused.err
    assert "if you trust it: ratecli --trust own_means COMMAND FILE" in refused.err
    assert "own_means" not in sys.modules
    answer = cli(*TRUST, "predict", model, "people.csv", "-o", "out.csv")
    assert answer.code == 0, answer.err
    found, metrics = pd.read_csv(own / "out.csv"), pd.read_csv(own / "results/own/metrics.csv")
    own_trial = metrics[(metrics.algorithm == "unconstrained") & (metrics.seed == 0)]
    errors = own_trial[own_trial.metric == "error"].set_index("split").value
    sizes = {"train": 200, "test": 100}
    expected = sum(errors[split] * count for split, count in sizes.items()) / 300
    assert (found.decision != found.y).mean() == pytest.approx(expected)
