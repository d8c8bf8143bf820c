"""Least squares under bounds on errors of groups: optima of SLSQP, certified gaps, fairlearn."""

import re
from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import Rows, Rules, problem, run, values
from scipy import sparse, stats
from scipy.optimize import minimize
from sklearn.linear_model import LinearRegression
from thinned import one_in

from experiments import measured_values, run_file, write
from ratecli.errors import FaultError
from ratecli.experiment.entries import make_settings, make_solver
from ratecli.experiment.prepare import prepare
from ratecli.ledger.records import BEST_CONSTANT_KEY
from ratecli.models.storage import dumps, loads
from ratecli.solvers.baselines.options import Unconstrained
from ratecli.solvers.margin import MarginSpec, solve_with_margin
from ratecli.solvers.problem import Problem
from ratecli.solvers.regression.options import LeastSquares
from ratecli.solvers.tuned import solve_tuned

REAL = (-np.inf, np.inf)


def rows(scale: float = 1.0, n: int = 300, group_shift: float = 0.5, seed: int = 0) -> Rows:
    """Weighted rows; group `a` has other coefficients, more noise and a few unknown labels."""
    rng = np.random.default_rng(seed)
    X, a = rng.normal(size=(n, 3)), rng.random(n) < 0.3
    y = X @ [0.3, 0.6, -0.9] + a * (X[:, 0] + group_shift) + rng.normal(size=n) * (1 + a)
    y[:5] = np.nan
    return Rows(X, scale * y, np.where(a, "a", "b").astype(object), rng.integers(1, 4, n) * 1.0)


def posed(rules: Rules, given: Rows | None = None, ends=REAL, l2: float = 0.01) -> Problem:
    return replace(problem(given or rows(), rules, l2), label_range=ends)


def at(made: Problem, w: np.ndarray, node) -> float:
    """The value of an expression for linear estimates, without clipping."""
    X = made.X if isinstance(made.X, np.ndarray) else made.X.toarray()
    rates = made.rates.measured(made.measurements(X @ w[:-1] + w[-1]))[:, None]
    return float(values(node, rates, made.rates.index())[0])


def penalized(made: Problem, w: np.ndarray) -> float:
    return at(made, w, made.objective.expression) + made.l2 / 2 * float(w[:-1] @ w[:-1])


def pieces(made: Problem) -> list:
    return [piece for goal in made.constraints for piece in goal.pieces]


def slsqp(objective, constraints, start):
    return minimize(
        objective,
        start,
        method="SLSQP",
        constraints=[{"type": "ineq", "fun": each} for each in constraints],
        options={"maxiter": 1000, "ftol": 1e-14},
    )


def weights(solution) -> np.ndarray:
    (model,) = solution.variants.values()
    return np.append(model.weights, model.bias)


BINDING = [
    Rules({}, "mse"),
    Rules({"m": "mse[g=a] <= 4.2"}, "mse"),
    Rules({"e": "abs(mean_error[g=a] - mean_error[g=b]) <= 0.2"}, "mse"),
    Rules({"m": "mse[g=a] <= 4.2", "e": "max_gap(mean_error, by=g) <= 0.37"}, "mse"),
    Rules({"m": "mse[g=a] + mse[g=b] <= 5.87", "e": "mean_error[g=b] >= 0.05"}, "mse"),
    Rules({"m": "mse <= 2.4"}, "3 * mse[g=a] + 0.2 * mean_error + 1"),
]


@pytest.mark.parametrize(
    ("rules", "layout"),
    [*one_in(2, ((rules, np.asarray) for rules in reversed(BINDING))), (BINDING[3], sparse.csr_array)],
    ids=lambda each: "; ".join(each.constraints.values()) if isinstance(each, Rules) else None,
)  # fmt: skip
def test_the_optimum_is_that_of_slsqp_with_a_certified_gap(rules, layout):
    made = posed(rules, replace(given := rows(), X=layout(given.X)))
    found = run(LeastSquares(), made)
    own, (row,) = weights(found), found.trace
    best = slsqp(
        lambda w: penalized(made, w),
        [lambda w, piece=piece: -at(made, w, piece) for piece in pieces(made)],
        np.zeros(4),
    )
    assert found.status == "solved"
    assert best.success
    assert penalized(made, own) == pytest.approx(best.fun, rel=1e-6)
    assert max([at(made, own, piece) for piece in pieces(made)], default=0) <= 0
    assert row["objective"] == pytest.approx(at(made, own, made.objective.expression))
    assert -1e-12 <= row["gap"] <= 1e-6
    assert (max(found.multipliers.values(), default=1) > 0.01) or not pieces(made)


@pytest.mark.parametrize("name", ["m", "e"])
def test_multipliers_are_the_price_of_a_bound(name):
    texts = {"m": "mse[g=a] <= {:.6f}", "e": "max_gap(mean_error, by=g) <= {:.6f}"}
    bounds = {"m": 4.2, "e": 0.37}

    def solved(by):
        moved = bounds | {name: bounds[name] + by}
        rules = Rules({key: text.format(moved[key]) for key, text in texts.items()}, "mse")
        made = posed(rules)
        found = run(LeastSquares(), made)
        return penalized(made, weights(found)), found.multipliers[name]

    (low, _), (high, _), (_, price) = solved(-1e-3), solved(1e-3), solved(0.0)
    assert (low - high) / 2e-3 == pytest.approx(price, rel=1e-3)


@pytest.mark.parametrize("scale", [1e-4, 1e5])
def test_units_of_the_label_do_not_matter(scale):
    plain = run(LeastSquares(), posed(Rules({"m": "mse[g=a] <= 4.2"}, "mse"), l2=0.0))
    rule = f"mse[g=a] <= {4.2 * scale**2}"
    found = run(LeastSquares(), posed(Rules({"m": rule}, "mse"), rows(scale), l2=0.0))
    assert (found.status, found.trace[0]["violation"]) == ("solved", 0.0)
    np.testing.assert_allclose(weights(found) / scale, weights(plain), rtol=1e-4)


def test_infeasible_constraints_give_the_smallest_violation():
    made = posed(Rules({"m": "mse[g=a] <= 3", "e": "max_gap(mean_error, by=g) <= 0.1"}, "mse"))
    found = run(LeastSquares(), made)
    best = slsqp(
        lambda x: x[-1],
        [lambda x, piece=piece: x[-1] - at(made, x[:-1], piece) for piece in pieces(made)],
        np.ones(5),
    )
    assert (found.status, best.success) == ("infeasible", True)
    assert found.trace[0]["violation"] == pytest.approx(best.x[-1], abs=1e-5)
    assert f"' by {best.x[-1]:.3g}; use a looser limit or another" in found.reason


def test_constraints_hold_for_clipped_estimates():
    given = rows(group_shift=1.0)
    given = replace(given, label=np.clip(given.label, -1, 2))
    made = posed(Rules({"e": "abs(mean_error[g=a]) <= 0.1"}, "mse"), given, (-1.0, 2.0))
    found = run(LeastSquares(), made)
    (model,) = found.variants.values()
    estimates = model.estimate(made.X)
    assert {-1.0, 2.0} <= {estimates.min(), estimates.max()}
    assert found.status == "solved"
    assert made.violation(model) == 0.0
    np.testing.assert_array_equal(loads(dumps(model)).estimate(made.X), estimates)
    unclipped = at(made, weights(found), pieces(made)[0])
    assert abs(unclipped) > 1e-3  # clipping was accounted for


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Rules({}, "mean_error"), "the objective has no mse, so it has no minimum"),
        (Rules({"p": "positive_rate <= 0.5"}, "mse"), "is not a sum of mse and mean_error"),
    ],
)
def test_other_goals_are_refused(rules, message):
    with pytest.raises(FaultError, match=message):
        run(LeastSquares(), posed(rules))
    with pytest.raises(FaultError, match="needs labels that are numbers"):
        run(LeastSquares(), posed(rules, ends=None))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_is_no_worse_than_fairlearns_bounded_group_loss():
    """At the group losses that fairlearn's mixture reaches, the objective is at most its own."""
    reductions = pytest.importorskip("fairlearn.reductions")
    given = rows()
    known = ~np.isnan(given.label)
    X, y, group = given.X[known], given.label[known], given.group[known].astype(str)
    bound = reductions.BoundedGroupLoss(reductions.SquareLoss(-100, 100), upper_bound=4.2)
    options = {"eps": 1e-2, "nu": 1e-3}
    theirs = reductions.ExponentiatedGradient(LinearRegression(), bound, **options)
    theirs.fit(X, y, sensitive_features=group)
    used = theirs.weights_[theirs.weights_ > 0]
    errors = sum(w * (theirs.predictors_[k].predict(X) - y) ** 2 for k, w in used.items())
    losses = {g: float(errors[group == g].mean()) for g in "ab"}
    assert losses["a"] == pytest.approx(4.2, abs=0.01)
    rules = Rules({g: f"mse[g={g}] <= {loss}" for g, loss in losses.items()}, "mse")
    found = run(LeastSquares(), posed(rules, Rows(X, y, given.group[known]), l2=0.0))
    assert found.status == "solved"
    assert found.trace[0]["objective"] <= errors.mean() + 1e-9


@pytest.mark.parametrize(
    "rules", one_in(2, BINDING), ids=lambda each: "; ".join(each.constraints.values())
)
def test_fits_of_any_regressor_reach_the_exact_optimum_of_linear_ones(rules):
    made = posed(rules, l2=1e-9)
    exact = run(LeastSquares(), made)
    found = run(LeastSquares(model="LinearRegression", gap=1e-4, iterations=100), made)
    (model,) = found.variants.values()
    assert found.status == "solved"
    assert made.violation(model) == found.trace[-1]["violation"] == 0.0
    below = exact.trace[0]["objective"]
    assert below - 1e-6 <= made.value(model) <= below + found.trace[-1]["gap"] + 1e-6
    assert found.trace[-1]["gap"] <= 2e-3
    for name, price in exact.multipliers.items():
        assert found.multipliers[name] == pytest.approx(price, rel=0.1, abs=0.05)


def test_trees_satisfy_bounds_that_plain_ones_violate():
    made = posed(Rules({"e": "max_gap(mean_error, by=g) <= 0.15", "m": "mse[g=a] <= 3.6"}, "mse"))
    tree = {"DecisionTreeRegressor": {"max_depth": 3, "random_state": 0}}
    solver = LeastSquares(model=tree, scores="in_sample")
    free, found = run(solver, posed(Rules({}, "mse"))), run(solver, made)
    (plain,), (model,) = free.variants.values(), found.variants.values()
    (baseline,) = run(Unconstrained(model=tree), made).variants.values()
    np.testing.assert_allclose(baseline.estimate(made.X), plain.estimate(made.X), rtol=1e-12)
    assert found.status == "solved"
    assert made.violation(plain) > 0.02
    assert made.violation(model) == 0.0
    assert made.value(plain) < made.value(model) < 1.3 * made.value(plain)
    np.testing.assert_array_equal(loads(dumps(model)).estimate(made.X), model.estimate(made.X))
    again = run(solver, made)
    assert dumps(again.variants["estimate"]) == dumps(model)


def test_a_bound_that_makes_a_model_worse_than_a_constant_does_not_call_for_more_rows():
    """Features know little of the group, whose labels are 5 larger."""
    made = posed(Rules({"e": "max_gap(mean_error, by=g) <= 0.1"}, "mse"), rows(group_shift=5))
    found = solve_with_margin(
        LeastSquares(), MarginSpec("new_rows", 0.9), made, np.random.default_rng(0)
    )
    assert found.status == "no_solution_found"
    assert "What may help: a looser limit, other features or" in found.reason
    assert "instead of 300" not in found.reason  # no number of rows


@pytest.mark.slow
def test_trees_satisfy_a_bound_on_new_rows_as_often_as_stated():
    """Judged by their own rows, they violate this bound in nearly all draws."""
    rules, draws = Rules({"m": "max(mse, by=g) <= 5.3"}, "mse"), 8
    solver = LeastSquares(model={"DecisionTreeRegressor": {"max_depth": 5}})
    population, violated = posed(rules, rows(n=40_000, seed=99)), 0
    for seed in range(draws):
        made, rng = posed(rules, rows(n=600, seed=seed)), np.random.default_rng(seed)
        found = solve_with_margin(solver, MarginSpec("new_rows", 0.9), made, rng)
        if found.status == "solved":
            violated += population.violation(found.variants["estimate"]) > 0
    assert violated <= stats.binom.ppf(0.99, draws, 0.1)


def test_errors_of_rows_that_the_objective_ignores_are_constrained():
    rules = Rules({"m": "mean_error[g=b] >= 0.5"}, "mse[g=a]")
    made = posed(rules, ends=(-9.0, 9.0))
    found = run(LeastSquares(model={"DecisionTreeRegressor": {"max_depth": 4}}), made)
    assert made.violation(found.variants["estimate"]) <= 1e-6
    assert made.value(found.variants["estimate"]) < 1.3 * float(np.nanvar(made.label))


def test_a_bound_out_of_reach_of_clipped_estimates_ends_with_a_reason():
    rules = Rules({"m": "mean_error[g=a] >= 3"}, "mse")
    found = run(LeastSquares(), posed(rules, ends=(-9.0, 1.0)))
    assert found.status == "iteration_limit"
    assert found.reason.startswith("clipped to the range of the label, estimates violate 'm' by")


def test_a_bound_out_of_reach_ends_with_a_reason():
    found = run(LeastSquares(model="Ridge"), posed(Rules({"m": "mse[g=a] <= 1"}, "mse")))
    assert found.status == "no_solution_found"
    assert found.reason.startswith("the best average of regressors violates 'm' by")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "RandomForestClassifier"}, "it is not a regressor class"),
        ({"model": "Rigde"}, "there is no regressor 'Rigde'"),
        ({"model": "lightgbm"}, "'lightgbm' is a classifier, not a regressor"),
        ({"model": {"Ridge": {"alfa": 1}}}, "'Ridge' has no option 'alfa'"),
        ({"model": "catboost:CatBoostRegressor"}, "its trees cannot be stored"),
        ({"model": {"LGBMRegressor": {"objective": "binary"}}}, "predicts classes, not numbers"),
        ({"model": {"LGBMRegressor": {"early_stopping_round": 5}}}, "no rows are held out"),
        ({"gap": 0.1}, "linear models are solved exactly"),
    ],
)
def test_invalid_options(options, message):
    if package := re.search("catboost|LGBM", str(options)):
        pytest.importorskip({"LGBM": "lightgbm"}.get(package[0], package[0]))
    with pytest.raises(FaultError, match=message):
        make_solver("least_squares", options, [])


def test_parameters_of_a_regressor_without_constraints_are_tuned_by_their_error():
    made = posed(Rules({}, "mse"))
    settings = make_settings("unconstrained", {"model": "Ridge"}, {"alpha": [1e9, 1.0]}, [])
    found = solve_tuned(settings, MarginSpec(), made, lambda: np.random.default_rng(0))
    assert [row["chosen"] for row in found.trace[:2]] == [False, True]
    assert found.trace[1]["objective"] < 0.8 * found.trace[0]["objective"]


FILE = """
name: amounts
datasets: {{d: {{path: rows.csv, label: y, target: number, split: {{validation: 0.2}}}}}}
objective: mse
constraints: {{c: '{rule}'}}
algorithms: [{algorithm}]
metrics: {{worst: 'max(mse[g = a], mse[g = b])'}}
"""


@pytest.fixture
def folder(tmp_path):
    given = rows(n=2000)
    lines = zip(*given.X.T, np.nan_to_num(given.label), given.group, strict=True)
    text = "".join(",".join(map(str, line)) + "\n" for line in lines)
    (tmp_path / "rows.csv").write_text("x,z,u,y,g\n" + text)
    return tmp_path


@pytest.mark.parametrize(
    ("algorithm", "limit", "split"),
    [
        ("least_squares", 0.25, "train"),
        ("least_squares: {holds: validation}", 0.25, "validation"),
        ("least_squares: {holds: new_rows}", 0.25, "test"),
        (
            "least_squares: {holds: new_rows, model: {ExtraTreeRegressor: {max_depth: 4}}}",
            0.4,
            "test",
        ),
        ("least_squares: {safety: {delta: 0.1, aim: 0.9, bound: student_t}}", 0.7, "test"),
    ],
)
def test_constraints_hold_where_a_file_says(folder, algorithm, limit, split):
    text = FILE.format(rule=f"abs(mean_error[g = a]) <= {limit}", algorithm=algorithm)
    _, store = run_file(write(folder, text))
    ((trial, result),) = [(each, store.results()[each.key]) for each in store.plan()]
    assert result.status == "ok", result.reason
    measured = measured_values(trial, result)
    assert measured["violation.c", split] <= 1e-6
    margin = -measured["violation.c", "train"]
    assert margin > 0.01 or split in {"train", "validation"}
    # the mean label may violate the constraint; its mse is the variance
    constant = result.info[BEST_CONSTANT_KEY]
    assert "test" in constant
    assert list(constant.values()) == pytest.approx(
        [np.nanvar(rows(n=2000).label)] * len(constant), rel=0.2
    )


@pytest.mark.parametrize(
    ("rule", "message", "span"),
    [
        ("max_gap(mse, by=g) <= 0.1", "it subtracts 'mse', which is not convex", "mse"),
        ("sqrt(mse) <= 1", "'sqrt(mse)' is not a sum of mse and mean_error", "sqrt(mse)"),
    ],
)
def test_rules_that_are_not_convex_are_refused_by_name(folder, rule, message, span):
    with pytest.raises(FaultError) as caught:
        prepare(write(folder, FILE.format(rule=rule, algorithm="least_squares")))
    (fault,) = caught.value.faults
    assert fault.code == "E308"
    assert message in fault.message
    assert re.fullmatch(
        r"algorithms that can: seldonian \([^)]+\); add safety: {delta: 0.05}", fault.help
    )
    assert rule[fault.span.start : fault.span.end].startswith(span)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda rows: replace(rows, X=np.hstack([rows.X, rows.X])), "mse[g=a] <= 4.2"),
        (lambda rows: replace(rows, X=rows.X * [1, 0, 1e8]), "mse[g=a] <= 4.5"),
        (lambda rows: replace(rows, label=np.full(300, 2.0)), "mse[g=a] <= 1"),
        (lambda rows: rows, "abs(mean_error[g=a] - 0.1) <= 0"),
        (lambda rows: replace(rows, X=np.nan_to_num(rows.label)[:, None]), "mse <= 0"),
    ],
    ids=["equal features", "constant feature", "equal labels", "equality", "exact fit"],
)
def test_unusual_rows_and_rules_are_solved(change, rule):
    made = posed(Rules({"c": rule}, "mse"), change(rows()), l2=0.0)
    found = run(LeastSquares(), made)
    assert found.status == "solved", found.reason
    assert found.trace[0]["violation"] <= 1e-8


def test_a_model_that_is_worse_than_the_mean_label_on_unseen_rows_is_no_solution():
    """Where features say nothing about groups, trees satisfy a constraint by chance, at any cost."""
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(300, 3)), np.where(rng.random(300) < 0.15, "a", "b")
    label = X[:, 0] + 2.0 * (group == "a") + 0.3 * rng.normal(size=300)
    given = Rows(X, label, group.astype(object))
    solver = LeastSquares(model={"HistGradientBoostingRegressor": {"max_iter": 20}})
    rules = Rules({"c": "max_gap(mean_error, by=g) <= 0.1"}, objective="mse")
    found = run(solver, posed(rules, given))
    assert (found.status, found.variants) == ("no_solution_found", {})
    assert "is worse than the mean label" in found.reason
