"""Every algorithm that `explain` offers for a goal runs with it."""

import pytest
from oracles.goals import KL, Rules, problem, run, smooth_rows
from thinned import one_in

from ratecli.experiment.checks.goals import refusal_reason
from ratecli.experiment.entries import make_solver
from ratecli.ledger.records import CONSTRAINT_TOLERANCE
from ratecli.rates.analysis import Shape
from ratecli.solvers.registry import all_algorithms

GOALS = {
    "subtracted ratios": Rules({"c": "tpr[g=a] / tpr[g=b] - fpr[g=a] / fpr[g=b] <= 0.2"}),
    "ratio as objective": Rules({"c": "tpr >= 0.8"}, "error + 0.1 * fnr[g=a] / fnr[g=b]"),
    "churn": Rules({"c": "wins[g=a] / losses[g=a] - wins[g=b] / losses[g=b] <= 0.5"}),
    "sum of ratios": Rules({"c": "tpr[g=a] / tpr[g=b] + tnr[g=a] / tnr[g=b] >= 1.9"}),
    "parity of ratios": Rules({"c": "max_gap(fnr / fpr, by=g) <= 0.4"}),
    "numerators of both signs": Rules({"c": "(tpr - tnr) / fpr <= 0.5"}),
    "ratio from below": Rules({"c": "tpr[g=a] / tpr[g=b] >= 0.9"}),
    "precision": Rules({"c": "precision[g=a] - precision[g=b] <= 0.1"}),
    "f1": Rules({"c": "max_gap(f1, by=g) <= 0.1"}, "1 - f1"),
    "largest error": Rules({"c": "positive_rate <= 0.5"}, "max(error[g=a], error[g=b])"),
    "means": Rules({"c": "q_mean[g=a] >= 0.4"}, "1 - g_mean"),
    "divergence": Rules({"c": "error <= 0.4"}, KL),
    "affine": Rules({"c": "positive_rate[g=a] <= 1.1 * positive_rate[g=b]"}),
    "largest gap": Rules({"c": "max_gap(tpr, by=g) <= 0.1"}),
    "correlation": Rules({"c": "min_ratio(positive_rate, by=g) >= 0.8"}, "-mcc"),
    "product": Rules({"c": "tpr >= 0.8"}, "-tpr * tnr"),
    "worst correlation": Rules({"c": "max_gap(tpr, by=g) <= 0.1"}, "-min(mcc, by=g)"),
    "smallest ratio": Rules({"c": "min_ratio(positive_rate, by=g) >= 0.8"}),
}
FEW_STEPS = {"three_player": {"steps": 1000}}


def offered(given, name):
    solver = make_solver(name, FEW_STEPS.get(name, {}), ["c"])
    apart = solver.needs_safety_test or solver.needs_deployed or solver.role != "enforces"
    goals = (given.objective, *given.constraints)
    refused = [
        refusal_reason(type(solver), goal, objective=not k)[0] for k, goal in enumerate(goals)
    ]
    return None if apart or any(refused) else solver


def test_a_game_says_if_one_more_classifier_would_improve_its_mixture():
    """The mean of all answers, which sets the prices, may stay where no single answer is best."""
    given = problem(smooth_rows(1), GOALS["parity of ratios"])
    solution = run(make_solver("coco", {"randomize": True}, ["c"]), given)
    best = given.value(run(make_solver("post_shift", {}, ["c"]), given).main)
    assert solution.status == "iteration_limit"
    assert "one more classifier would improve the objective by about" in solution.reason
    assert given.value(solution.main) > best + 0.01


@pytest.mark.parametrize("goal", one_in(5, GOALS))
def test_offered_algorithms_find_models_that_satisfy_the_constraints(goal):
    """Their objectives are near the best one, which each of them approximates in its own way."""
    given, found = problem(smooth_rows(1), GOALS[goal]), {}
    for name in all_algorithms():
        solver = offered(given, name)
        if solver is not None:
            solution = run(solver, given)
            approximate = name == "coco" and "would improve" in solution.reason
            assert approximate or (name, solution.status) == (name, "solved")
            assert given.violation(solution.main) <= CONSTRAINT_TOLERANCE
            found[name] = given.value(solution.main)
    players = set() if given.objective.shape is Shape.SMOOTH else {"three_player", "coco"}
    assert {"mixture", "post_shift"} | players <= found.keys()
    assert max(found.values()) <= min(found.values()) + 0.11
