"""Settings of algorithms, chosen by the goals on rows that their models have not seen."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from oracles.goals import Rules, problem, run, smooth_rows
from sklearn.model_selection import ParameterGrid
from thinned import one_in

from ratecli.errors import FaultError
from ratecli.experiment.entries import make_settings, make_solver
from ratecli.models.linear import LinearRegressor, Threshold
from ratecli.solvers.base import JudgedRows, Solution, Solver
from ratecli.solvers.margin import MarginSpec, solve_with_margin
from ratecli.solvers.oracles.unseen import folds_of
from ratecli.solvers.tuned import Setting, solve_tuned

SLACK = 0.05
NO_MARGIN, GUARD = MarginSpec(), MarginSpec("new_rows", 0.9)
RULES = Rules({"parity": f"positive_rate[g=c] - positive_rate[g=a] <= {SLACK}"})
TREE = {"DecisionTreeClassifier": {"min_samples_leaf": 5}}
CASES = {
    "mixture": ({}, {"calls": [2, 5]}),
    "majorize": ({}, {"iterations": [1, 2]}),
    "zafar": ({}, {"covariance": [0.0, 0.1, 1.0]}),
    "thresholded": ({"model": TREE}, {"max_depth": [2, 6], "scores": ["in_sample", {"folds": 3}]}),
    "three_player": ({"steps": 30, "every": 5}, {"optimizer": ["adam", "sgd"]}),
    "post_shift": ({"model": TREE}, {"max_depth": [2, 6], "groups": ["known", "unknown"]}),
    "unconstrained": ({}, {"loss": ["hinge", "logistic"]}),
}


def solve(settings, given, guard=NO_MARGIN):
    return solve_tuned(settings, guard, given, lambda: np.random.default_rng(0))


def judge(rows, decisions):
    """Return the error, the violation of `RULES` and its excess over its standard error."""
    error = np.where(rows.label > 0, 1 - decisions, decisions).mean()
    shares, variance = {}, 0.0
    for group in "ca":
        own = decisions[rows.group == group]
        shares[group] = own.mean()
        variance += ((own - own.mean()) ** 2).sum() / len(own) ** 2
    violation = shares["c"] - shares["a"] - SLACK
    return error, max(violation, 0.0), max(violation - np.sqrt(variance), 0.0)


def main_decisions(solution, given):
    return given.decisions(solution.main)


@pytest.mark.parametrize(
    ("name", "held"), one_in(4, [("post_shift", True), *((name, False) for name in CASES)])
)
def test_the_chosen_setting_is_that_of_a_loop_over_settings_and_folds(name, held):
    rows, new = smooth_rows(0, 240), smooth_rows(1, 240)
    given = problem(rows, RULES)
    options, tune = CASES[name]
    settings = make_settings(name, options, tune, RULES.constraints)
    assert len(settings) == len(ParameterGrid(tune))
    found = solve(settings, replace(given, validation=problem(new, RULES)) if held else given)

    def solver_with(values):
        model = {**TREE["DecisionTreeClassifier"], **values}
        model = {key: model[key] for key in ("min_samples_leaf", "max_depth") if key in model}
        own = {key: value for key, value in values.items() if key != "max_depth"}
        changed = {"model": {"DecisionTreeClassifier": model}} if "model" in options else {}
        return make_solver(name, {**options, **changed, **own}, [*RULES.constraints])

    def meets(part, fitted):
        judged, decisions = part.judged or (fitted, main_decisions(part, fitted))
        return judged.worst_violation(judged.rates.rates(decisions)) <= 1e-5

    expected, fold = [], folds_of(given, 5)
    for row in found.trace[: len(settings)]:
        solver = solver_with(row["setting"])
        if held:
            part = run(solver, given)
            met = meets(part, given)
            reached = judge(new, main_decisions(part, problem(new, RULES)))
        else:
            decisions, met = np.empty(240), True
            for k in range(5):
                fitted, unseen = (given.on(np.flatnonzero(s)) for s in (fold != k, fold == k))
                part = run(solver, fitted)
                met &= meets(part, fitted)
                decisions[fold == k] = main_decisions(part, unseen)
            reached = judge(rows, decisions)
        assert [row["objective"], row["violation"]] == pytest.approx(reached[:2], abs=1e-12)
        expected.append((reached[2 if met else 1], reached[0]))
    assert [row["chosen"] for row in found.trace[: len(settings)]] == [
        k == expected.index(min(expected)) for k in range(len(settings))
    ]
    (chosen,) = (row["setting"] for row in found.trace if row.get("chosen"))
    plain = run(solver_with(chosen), given)
    np.testing.assert_array_equal(main_decisions(found, given), main_decisions(plain, given))
    assert len(found.trace) == len(settings) + len(plain.trace)


@dataclass(frozen=True)
class Fixed(Solver):
    """Decides by a threshold on the first feature; finds nothing without the row of this value."""

    threshold: float = 0.0
    needs: float | None = None

    def solve(self, problem, rng, progress):  # noqa: ARG002
        if self.needs is not None and self.needs not in problem.X[:, 0]:
            return Solution({}, "no_solution_found", "no such row")
        weights = np.eye(problem.X.shape[1])[0]
        return Solution({"deterministic": Threshold(weights, -self.threshold)})


def test_a_setting_without_solutions_comes_after_all_others():
    given = problem(smooth_rows(0, 200), Rules())
    needed, label = given.X[0, 0], given.label
    thresholds = np.quantile(given.X[:, 0], [0.1, 0.5, 0.9])
    errors = [np.mean((given.X[:, 0] > each) != label) for each in thresholds]
    best, *_, worst = np.argsort(errors)
    settings = [
        Setting({"k": 0}, Fixed(thresholds[best], needed)),
        Setting({"k": 1}, Fixed(thresholds[worst])),
        Setting({"k": 2}, Fixed(thresholds[best], np.inf)),
    ]
    rows = solve(settings, given).trace
    assert [row["unsolved"] for row in rows] == [1, 0, 5]
    assert [row["chosen"] for row in rows] == [False, True, False]
    assert np.isnan(rows[2]["objective"])
    others = folds_of(given, 5) != folds_of(given, 5)[0]
    solved = np.mean((given.X[:, 0] > thresholds[best])[others] != label[others])
    assert rows[0]["objective"] == pytest.approx(solved)
    assert rows[1]["objective"] == pytest.approx(errors[worst])
    assert solve(settings[2:], given).status == "no_solution_found"


@pytest.mark.parametrize(
    ("slack", "is_met", "tolerated"),
    [(-0.02, True, False), (0.02, True, True), (0.02, False, False)],
)
def test_a_violation_within_its_standard_error_is_tolerated_if_training_rows_satisfy(
    slack, is_met, tolerated
):
    rows = smooth_rows(0, 200)
    share = np.mean(rows.X[:, 0] > 0)
    limit = share - np.sqrt(share * (1 - share) / 200) + slack
    given = problem(rows, Rules({"few": f"positive_rate <= {limit}"}))
    fewer = problem(rows, Rules({"few": f"positive_rate <= {share if is_met else limit}"}))
    settings = [Setting({"t": t}, Fixed(t)) for t in (0.0, 99.0)]
    found = solve(settings, replace(fewer, validation=given))
    errors = [row["objective"] for row in found.trace]
    assert errors[0] < errors[1]
    assert found.trace[0]["violation"] == pytest.approx(share - limit)
    assert [row["chosen"] for row in found.trace] == [tolerated, not tolerated]


@dataclass(frozen=True)
class Estimates(Solver):
    """Estimates a constant, and claims an unseen mean error of -1."""

    constant: float

    def solve(self, problem, rng, progress):  # noqa: ARG002
        model = LinearRegressor(np.zeros(problem.X.shape[1]), self.constant, problem.label_range)
        judged = JudgedRows(problem, problem.label - 1)
        return Solution({"estimate": model}, judged=judged)


def test_unseen_estimates_are_judged_as_numbers():
    """The first violation is within its standard error, and the judged rows show none."""
    rows = smooth_rows(0, 200)
    numbers = replace(rows, label=rows.X[:, 0] - rows.X[:, 0].mean() + 3)
    limit = 0.5 * numbers.label.std() / np.sqrt(200)
    given = problem(numbers, Rules({"m": f"mean_error <= {limit}"}, "mse"))
    settings = [Setting({"c": c}, Estimates(c)) for c in (3 + 1.5 * limit, 2.0)]
    found = solve(settings, replace(given, label_range=(-np.inf, np.inf)))
    assert found.trace[0]["violation"] == pytest.approx(limit / 2)
    assert [row["chosen"] for row in found.trace] == [True, False]


def test_settings_have_the_margin_of_the_trial():
    rules = Rules({"few": "positive_rate <= 0.3"})
    given, guard = problem(smooth_rows(0, 400), rules), MarginSpec("new_rows", 0.9)
    settings = make_settings("post_shift", {}, {"loss": ["hinge", "logistic"]}, rules.constraints)
    plain, tight = solve(settings, given), solve(settings, given, guard)
    for before, after in zip(plain.trace[:2], tight.trace[:2], strict=True):
        assert after["objective"] > before["objective"]
        assert after["violation"] == 0


def test_the_margin_of_a_tuned_model_is_that_of_its_chosen_setting():
    given = problem(smooth_rows(1, 400), Rules({"few": "positive_rate <= 0.5"}))
    tree = {"min_samples_leaf": 2, "random_state": 0}
    model = {"model": {"DecisionTreeClassifier": tree}}
    settings = make_settings("post_shift", model, {"max_depth": [2, 3, 4]}, ["few"])
    tuned = solve(settings, given, GUARD)
    deep = make_solver(
        "post_shift", {"model": {"DecisionTreeClassifier": tree | {"max_depth": 3}}}, []
    )
    alone = solve_with_margin(deep, GUARD, given, np.random.default_rng(0))
    assert [row["chosen"] for row in tuned.trace[:3]] == [False, True, False]
    np.testing.assert_array_equal(main_decisions(tuned, given), main_decisions(alone, given))


def test_a_part_of_a_constraint_may_be_a_number():
    found = []
    for text in ("positive_rate <= 0.3", "max(positive_rate - 0.3, -0.1) <= 0"):
        rules = Rules({"few": text})
        settings = make_settings("post_shift", {}, {"loss": ["hinge", "logistic"]}, ["few"])
        found.append(solve(settings, problem(smooth_rows(3, 200), rules)).trace[:2])
    assert found[0] == found[1]
    assert max(row["violation"] for row in found[0]) > 0


def test_rows_of_one_fold_alone_are_refused():
    rows = smooth_rows(0, 100)
    lonely = replace(rows, group=np.where(np.arange(100) == 7, "z", rows.group).astype(object))
    given = problem(lonely, Rules({"few": "positive_rate[g=z] <= 0.9"}))
    with pytest.raises(FaultError, match="are in one fold") as caught:
        solve(make_settings("unconstrained", {}, {"loss": ["hinge"]}, ["few"]), given)
    assert caught.value.faults[0].code == "E410"


@pytest.mark.parametrize(
    ("name", "options", "tune", "solver"),
    [
        ("coco", {"steps": 5}, {"C": [2.0]},
         {"oracle": {"plugin": {"groups": True, "probabilities": {"LogisticRegression": {"C": 2.0}}}}}),
        ("three_player", {"model": "lightgbm"}, {"learning_rate": [0.5]},
         {"model": {"lightgbm": {"learning_rate": 0.5}}}),
        ("mixture", {}, {"model": ["GaussianNB"], "var_smoothing": [0.1]},
         {"model": {"GaussianNB": {"var_smoothing": 0.1}}}),
        ("unconstrained", {"model": "SGDClassifier"}, {"loss": ["hinge"], "alpha": [1.0]},
         {"model": {"SGDClassifier": {"loss": "hinge", "alpha": 1.0}}}),
        ("mixture", {"scores": "in_sample"}, {"model": ["RandomForestClassifier", "linear"]},
         {"model": "RandomForestClassifier"}),
        ("unconstrained", {}, {"loss": ["logistic"]}, {"loss": "logistic"}),
        ("three_player", {}, {"learning_rate": [0.5]}, None),
        ("three_player", {}, {"learning_rate": [0.5], "steps": [9]},
         {"learning_rate": 0.5, "steps": 9}),
    ],
)  # fmt: skip
def test_names_are_options_or_parameters_of_the_model(name, options, tune, solver):
    """None: the algorithm's own option `tune` takes them."""
    settings = make_settings(name, options, tune, [])
    if solver is None:
        assert settings == ()
    else:
        assert settings[0].solver == make_solver(name, {**options, **solver}, [])
