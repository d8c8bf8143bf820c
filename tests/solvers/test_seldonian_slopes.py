from __future__ import annotations

import itertools

import numpy as np
import pytest
from oracles.goals import smooth_rows
from oracles.promised import GAP, RATIO, numbers, numeric, promised
from scipy.optimize import approx_fprime
from scipy.special import expit

from ratecli.solvers.seldonian.scores import (
    ScoreModel,
    plain_objective,
    score_model_of,
    smooth_objective,
)
from ratecli.solvers.seldonian.selection import CandidateSelection
from ratecli.solvers.seldonian.soft import candidate_selection
from ratecli.solvers.seldonian.solver import Seldonian

CLASSES = [
    ({"c": GAP}, "error"),
    ({"c": RATIO}, "log_loss"),
    ({"c": "mean_error[g = a] <= 0.1", "d": "tpr >= 0.2"}, "error[g = b]"),
    ({"c": "mse <= 0.3", "d": "log_loss[g = b] <= 2"}, "fnr + 2 * fpr * fpr"),
    ({"c": "precision >= 0.3"}, "mse"),
]
NUMBERS = [
    ({"c": "abs(mean_error[g = a] - mean_error[g = c]) <= 0.1"}, "mse"),
    ({"c": "mse[g = b] <= 1", "d": "mean_error >= -1"}, "mse[g = a] + mean_error"),
]


def selection(problem, **options) -> CandidateSelection:
    return candidate_selection(Seldonian(**options), problem, problem.safety_test)


def check(chosen: CandidateSelection, seed: int) -> None:
    v = 0.3 * np.random.default_rng(seed).normal(size=chosen.design.width)
    point = chosen.at(v)
    assert np.isfinite(point.upper).all()
    seen = approx_fprime(v, lambda at: chosen.at(at).objective, 1e-6)
    np.testing.assert_allclose(chosen.gradient(point), seen, rtol=1e-4, atol=2e-6)
    slopes = np.atleast_2d(approx_fprime(v, lambda at: chosen.at(at).upper, 1e-6))
    np.testing.assert_allclose(chosen.jacobian(point), slopes, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("inflation", [2.0, {"pass": 0.9}])
@pytest.mark.parametrize("method", ["leaves", "pieces"])
@pytest.mark.parametrize("case", range(len(CLASSES)))
def test_slopes_of_probabilities_match_finite_differences(case, method, inflation):
    rules, objective = CLASSES[case]
    problem = promised(smooth_rows(case), rules, objective, method=method, tests=4000)
    check(selection(problem, inflation=inflation), case)


@pytest.mark.parametrize("bound", ["auto", "hoeffding", "empirical_bernstein"])
def test_slopes_with_other_bounds(bound):
    problem = promised(smooth_rows(5), {"c": GAP}, bound=bound, method="forms", tests=4000)
    check(selection(problem), 5)


@pytest.mark.parametrize("case", range(len(NUMBERS)))
def test_slopes_of_estimates_match_finite_differences(case):
    rules, objective = NUMBERS[case]
    check(selection(numeric(numbers(case), rules, objective), inflation=1.5), case)


def test_slopes_of_steeper_probabilities_match_finite_differences():
    scores = np.linspace(-2, 2, 9)
    label = np.arange(9) % 2.0
    for of, sharpness in itertools.product(("decision", "error", "log_loss"), (1.0, 4.0)):
        model = ScoreModel(label, numeric=False, sharpness=sharpness)
        seen = (
            model.outputs(scores + 1e-6).measured(of) - model.outputs(scores - 1e-6).measured(of)
        ) / 2e-6
        np.testing.assert_allclose(model.outputs(scores).slopes(of), seen, atol=1e-8)
    steep = ScoreModel(label, numeric=False, sharpness=4.0).outputs(scores)
    np.testing.assert_allclose(steep.measured("decision"), expit(4 * scores))
    np.testing.assert_allclose(steep.measured("error"), expit(scores) - label)


def test_error_is_minimized_by_log_loss_and_numbers_by_their_squares():
    problem = promised(smooth_rows(4), {"c": GAP})
    model = score_model_of(problem)
    made = smooth_objective(problem.objective, problem.rates, model)
    scores = np.linspace(-1, 1, len(problem.label))
    plain = np.mean(np.logaddexp(0, scores) - problem.label * scores)
    assert made.value(scores) == pytest.approx(plain, abs=1e-12)
    own = numeric(numbers(1), {"c": "mse <= 2"})
    made = smooth_objective(own.objective, own.rates, score_model_of(own))
    scores = np.linspace(-9, 9, len(own.label))
    assert made.value(scores) == pytest.approx(np.mean((scores - own.label) ** 2))
    assert plain_objective(own, score_model_of(own)).value(scores) == pytest.approx(
        made.value(scores)
    )
