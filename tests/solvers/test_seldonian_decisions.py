from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import grid_rows, run, smooth_rows
from oracles.promised import GAP, RATIO, promised

from ratecli.models.linear import Logistic
from ratecli.rates import expression as ex
from ratecli.solvers.problem import ERROR_RATE
from ratecli.solvers.seldonian.hard import BOUND_KNOTS, ThresholdCandidates
from ratecli.solvers.seldonian.prediction import predict_safety_test
from ratecli.solvers.seldonian.scores import DecisionOutputs
from ratecli.solvers.seldonian.solver import BoundInflation, Seldonian, calibrate_inflation

RULES = {"c": GAP, "d": "tpr >= 0.3"}


def cuts_of(problem, scores, inflation=1.0) -> ThresholdCandidates:
    said = DecisionOutputs((scores > 0).astype(float))
    prediction = predict_safety_test(problem, problem.safety_test, said)
    prediction = replace(prediction, inflation=BoundInflation(inflation))
    return ThresholdCandidates(scores, problem.rates, ERROR_RATE, prediction)


def brute(problem, cuts: ThresholdCandidates) -> list[tuple[float, float]]:
    """Error and the largest expected end of every threshold, one by one."""
    every = [-np.inf, *np.unique(cuts.scores)]
    found = []
    for threshold in every:
        decisions = (cuts.scores > threshold).astype(float)
        error = float(np.mean(decisions != problem.label))
        found.append((error, cuts.prediction.at(DecisionOutputs(decisions)).worst))
    return found


@pytest.mark.parametrize("bound", ["auto", "clopper_pearson", "student_t"])
@pytest.mark.parametrize("method", ["leaves", "pieces"])
@pytest.mark.parametrize("seed", range(3))
def test_all_thresholds_match_brute_force(seed, method, bound):
    if bound == "clopper_pearson" and method == "pieces":
        bound = "hoeffding"  # a difference of rates is no count
    rows = grid_rows(seed)  # few places: scores are tied
    problem = promised(rows, RULES, method=method, bound=bound, tests=3000)
    cuts = cuts_of(problem, rows.X @ np.array([1.0, 0.5]))
    wanted = brute(problem, cuts)
    assert len(wanted) == len(cuts.values)
    ends = [cuts.worst(k) for k in range(len(cuts.values))]
    np.testing.assert_allclose(sorted(ends), sorted(end for _, end in wanted), atol=1e-9)
    np.testing.assert_allclose(
        sorted(cuts.values), sorted(error for error, _ in wanted), atol=1e-12
    )
    passing = [error for error, end in wanted if end <= 0]
    best = cuts.best(np.inf)
    assert (best is None) == (not passing)
    if best is not None:
        assert cuts.values[best] == pytest.approx(min(passing))


@pytest.mark.parametrize("rule", [GAP, RATIO])
def test_skipped_thresholds_do_not_pass(rule):
    rows = smooth_rows(2)
    problem = promised(rows, {"c": rule}, method="pieces", bound="auto", tests=20_000)
    cuts = cuts_of(problem, rows.X @ np.linspace(1, -1, 5))
    passing = [error for error, end in brute(problem, cuts) if end <= 0]
    best = cuts.best(np.inf)
    assert len(cuts.values) > BOUND_KNOTS
    assert best is not None
    assert cuts.values[best] == pytest.approx(min(passing))


@pytest.mark.parametrize("rule", [GAP, RATIO, "precision >= 0.7", "tpr[g = a] >= 0.6"])
def test_deterministic_candidate_passes_and_is_close_to_the_best_line(rule):
    rows = smooth_rows(3, d=2)
    problem = promised(rows, {"c": rule}, method="pieces", bound="auto", tests=20_000)
    solver = Seldonian(decisions="deterministic")
    solution = run(solver, problem)
    assert solution.status == "solved"
    (model,) = solution.variants.values()
    assert isinstance(model, Logistic)
    said = DecisionOutputs(model.decide(rows.X))
    prediction = predict_safety_test(problem, problem.safety_test, said)
    prediction = replace(prediction, inflation=calibrate_inflation(0.9, prediction.bounds))
    assert prediction.at(said).worst <= 0
    error = float(np.mean(model.decide(rows.X) != rows.label))
    best = 1.0
    for angle in np.linspace(0, 2 * np.pi, 16, endpoint=False):
        scores = rows.X @ np.array([np.cos(angle), np.sin(angle)])
        cuts = ThresholdCandidates(scores, problem.rates, ERROR_RATE, prediction)
        k = cuts.best(best)
        best = best if k is None else float(cuts.values[k])
    assert error <= best + 0.015
    assert solution.trace[-1]["objective"] == pytest.approx(error)


def test_the_objective_of_the_file_is_that_of_decisions():
    rows = smooth_rows(1, d=2)
    problem = promised(rows, {"c": "tpr >= 0.4"}, "fpr", tests=20_000)
    solution = run(Seldonian(decisions="deterministic"), problem)
    (model,) = solution.variants.values()
    said = model.decide(rows.X)
    assert solution.trace[-1]["objective"] == pytest.approx(said[rows.label == 0].mean())


def test_nearest_decisions_are_returned_if_none_pass():
    problem = promised(smooth_rows(0, n=150), {"c": "accuracy >= 0.97"}, tests=150)
    solution = run(Seldonian(decisions="deterministic"), problem)
    assert solution.status == "iteration_limit"
    assert "the smallest bound attainable is +" in solution.reason
    assert len(solution.variants) == 1


@pytest.mark.parametrize("rule", ["precision >= 0.6", pytest.param(GAP, marks=pytest.mark.slow)])
def test_reported_number_of_rows_is_enough_for_decisions(rule):
    """The candidate of the least bound may be one that more rows do not help, as one that says no."""
    solver = Seldonian(decisions="deterministic", inflation=1)

    def ended(tests):
        rows = smooth_rows(1, n=150)
        problem = promised(rows, {"c": rule}, tests=tests, bound="clopper_pearson")
        return run(solver, problem)

    found = ended(12)
    assert found.status == "iteration_limit"
    count = int(found.reason.split("about ")[1].split(" rows")[0].replace(",", ""))
    assert ended(round(1.3 * count)).status == "solved"
    assert ended(count // 2).status == "iteration_limit"


def test_deterministic_rejects_rates_of_other_measurements():
    problem = promised(smooth_rows(0), {"c": "mse <= 0.3", "d": "tpr >= 0.2"})
    mse, tpr = problem.constraints
    hard, soft = Seldonian(decisions="deterministic"), Seldonian()
    fault = hard.obstacle(mse, problem.rates)
    assert fault is not None
    assert fault.code == "E308"
    assert ex.to_text(mse.pieces[0])
    assert hard.obstacle(tpr, problem.rates) is soft.obstacle(mse, problem.rates) is None
