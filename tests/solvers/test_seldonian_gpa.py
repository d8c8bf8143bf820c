"""The problems of the toolkit's GPA example: the first 40 % of the rows choose, the others test."""

import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from oracles.goals import Rows, Rules, problem, run

from ratecli.certify.trees import SafetyTestSpec
from ratecli.solvers.base import Solution
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.options import Seldonian
from ratecli.solvers.seldonian.prediction import predict_safety_test
from ratecli.solvers.seldonian.score_models import score_model_of

FILE = Path(os.environ.get("RATECLI_DATA_MIRROR", "data")) / "gpa" / "gpa_regression_dataset.csv"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="needs the data set gpa")
RATIO = "min_ratio(positive_rate, by=g) >= {}"
GAP = "abs(mean_error[g = M] - mean_error[g = F]) <= {}"


@cache
def table() -> np.ndarray:
    return np.loadtxt(FILE, delimiter=",")


def halves(rule: str, objective: str, delta: float = 0.05) -> list[Problem]:
    """Of candidate and of safety rows; features standardized on all of them."""
    data, numeric = table(), objective == "mse"
    X, gpa = data[:, 2:11], data[:, 11]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    label = gpa if numeric else (gpa >= 3).astype(float)
    group = np.where(data[:, 0] == 1, "M", "F").astype(object)
    cut, found = round(0.4 * len(data)), []
    spec = SafetyTestSpec({"c": delta}, len(data) - cut, "student_t", "leaves")
    for own in (slice(0, cut), slice(cut, None)):
        made = problem(Rows(X[own], label[own], group[own]), Rules({"c": rule}, objective), 0.0)
        ends = (0.0, 4.0) if numeric else None
        found.append(replace(made, label=label[own], label_range=ends, safety_test=spec))
    return found


def solved(made: Problem, inflation: float, optimizer: str = "sequential") -> Solution:
    solver = Seldonian(inflation=inflation, optimizer=optimizer, iterations=400)
    return run(solver, made)


def end(made: Problem, solution: Solution, inflation: float = 1.0) -> float:
    """The upper bound on the rows of a problem, as if the test had as many."""
    (model,) = solution.variants.values()
    said = score_model_of(made).outputs(model.score(made.X))
    rows = made.safety_test.rows
    test = predict_safety_test(made, replace(made.safety_test, rows=rows), said, inflation)
    return float(test.upper(said).max())


@pytest.mark.parametrize(
    ("goals", "inflation", "value", "ends"),
    [
        ((RATIO.format(0.8), "error"), 2.0, 0.635083, pytest.approx((-0.0969, -0.1047), abs=1e-3)),
        (("mse <= 2", "mse", 0.1), 2.0, 0.584617, pytest.approx((-1.39965, -1.41236), abs=1e-5)),
        ((GAP.format(0.05), "mse"), 1.0, 0.689095, None),
    ],
    ids=[
        "ratio met without constraints",
        "squared error met without constraints",
        "gap that binds",
    ],
)
def test_problems_with_a_solution(goals, inflation, value, ends):
    candidate, safety = halves(*goals)
    solution = solved(candidate, inflation)
    assert solution.status == "solved"
    assert solution.trace[-1]["objective"] == pytest.approx(value, abs=1e-5)
    assert end(safety, solution) < 0
    assert ends is None or ends == (end(candidate, solution, inflation), end(safety, solution))


@pytest.mark.parametrize(("optimizer", "room"), [("sequential", 1e-6), ("lagrangian", 1e-5)])
def test_a_ratio_that_binds(optimizer, room):
    """The toolkit's descent ends at 0.642146 for 0.95, its CMA-ES nowhere that was measured."""
    candidate, safety = halves(RATIO.format(0.95), "error")
    solution = solved(candidate, 2.0, optimizer)
    best = min(row["objective"] for row in solution.trace if row["violation"] == 0)
    assert best == pytest.approx(0.637213, abs=1e-5)
    assert -room < end(candidate, solution, 2.0) <= 0
    assert end(safety, solution) < 0


@pytest.mark.slow
def test_a_gap_of_a_twentieth_is_too_small_at_a_factor_of_two():
    candidate, _ = halves(GAP.format(0.05), "mse")
    solution = solved(candidate, 2.0)
    assert solution.status == "iteration_limit"
    assert end(candidate, solution, 2.0) == pytest.approx(0.0156, abs=1e-4)
    assert "'c': the smallest upper bound on its violation is 0.015" in solution.reason
    assert "safety rows instead of 25,982 would be enough" in solution.reason
