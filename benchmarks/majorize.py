"""What a constrained solve costs, in plain SVM fits of the same run: `make bench`.

On a9a (where it is at hand): one target of Figure 2 of Goh et al. 2016 at 8 majorization steps from a
cold start, each convex problem to a relative gap of 1e-4, against LIBLINEAR's unconstrained SVM and
against Algorithm 2 as published, LIBLINEAR cold inside, and fairlearn if it is there. On generated
rows: seconds against rows, features, non-zeros and constraints, one convex problem each, drawn to
benchmarks/majorize.png. `--clicks` solves one target of Figure 3 at full size. Seconds are of the
processor, one core.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from common import SCOPE, fastest, in_turn, ratio_text
from scipy import sparse
from sklearn.svm import LinearSVC

from ratecli.config.dataset import DatasetSpec
from ratecli.datasets.files import fetch_files
from ratecli.datasets.registry import find_source
from ratecli.errors import FaultError
from ratecli.rates.analysis import constraint_goal, objective_goal
from ratecli.rates.parser import parse_conditions, parse_constraint, parse_expression
from ratecli.rates.resolve import constraint_differences, resolve, violation_expression
from ratecli.rates.scope import Scope
from ratecli.runner.trial import training_problem
from ratecli.runner.workers import limit_to_one_thread
from ratecli.sampling.rows import ExperimentData, TrialData, load_trial_data
from ratecli.solvers.design_matrix import DesignMatrix
from ratecli.solvers.majorize.augmented import AugmentedLagrangian
from ratecli.solvers.majorize.convex import ConvexProblem, RampProblem, StoppingRule
from ratecli.solvers.majorize.cutting_plane import CuttingPlane, liblinear_svm
from ratecli.solvers.majorize.majorization import make_ramp_problem
from ratecli.solvers.majorize.options import Majorize
from ratecli.solvers.problem import Problem

ONE = 1.25
GAP = 1e-4


def problem_at(found: TrialData, target: float) -> Problem:
    objective = objective_goal("error", resolve(parse_expression("error"), SCOPE))
    rule = parse_constraint(f"positive_rate[men] <= {target:.17g} * positive_rate[women]")
    parts = constraint_differences(rule, SCOPE)
    goal = constraint_goal("parity", str(rule), parts, violation_expression(parts))
    return training_problem(found, objective, (goal,), "1/n")


def silent(_: str) -> None:
    pass


def as_published(problem: Problem) -> None:
    """Algorithms 1 and 2 with nothing kept between convex problems, LIBLINEAR inside."""
    ramp = make_ramp_problem(Majorize(), problem)
    goal = StoppingRule(GAP, ceiling=1e4, hopeless=np.inf)
    method = CuttingPlane(goal, liblinear_svm(0), centered=True, cuts=100)
    w = np.zeros(ramp.rows.width)
    for _ in range(8):
        w = method.solve(ConvexProblem.tight_at(ramp, ramp.rows.scores(w)), w).w


def bench_a9a(found: TrialData) -> None:
    train = np.flatnonzero(found.sample.part == "train")
    X, y = found.X[train], found.sample.label[train]
    fit = partial(LinearSVC(loss="hinge", tol=1e-3, max_iter=20_000).fit, X, y)
    one = problem_at(found, ONE)
    works = {
        "fit": fit,
        "ours": partial(Majorize(gap=GAP).solve, one, np.random.default_rng(0), silent),
        "published": partial(as_published, one),
    }
    if importlib.util.find_spec("fairlearn"):
        works["fairlearn"] = partial(reduce, X, y, found.sample.columns["sex"][train])
    works["ours"]()  # compiles its loops
    times = in_turn(works)
    fits, ours = times["fit"], times["ours"]
    print(f"a9a, five runs in turn: a plain SVM fit (LIBLINEAR, tolerance 1e-3) takes "
          f"{np.median(fits):.2f} s; one target, 8 steps, cold: {np.median(ours):.2f} s = "
          f"{ratio_text(ours, fits)} fits")  # fmt: skip
    print(f"Algorithm 2 over cold LIBLINEAR: {ratio_text(times['published'], ours)} times as long")
    if "fairlearn" in times:
        print(f"fairlearn's exponentiated gradient, same goal: "
              f"{ratio_text(times['fairlearn'], ours)} times as long")  # fmt: skip


def reduce(X: object, y: object, sex: object) -> None:
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    dense = X.toarray() if hasattr(X, "toarray") else X
    constraint = DemographicParity(ratio_bound=1 / ONE)
    learner = ExponentiatedGradient(LogisticRegression(solver="liblinear"), constraint)
    learner.fit(dense, y, sensitive_features=sex)


def generated(n: int, d: int, entries: int, constraints: int) -> ConvexProblem:
    """Error under parity of `constraints` groups with the rest, on rows with `entries` ones each."""
    rng = np.random.default_rng(0)
    columns = rng.integers(0, d, (n, entries))
    starts = np.arange(0, n * entries + 1, entries)
    X = sparse.csr_array((np.ones(n * entries), columns.ravel(), starts), shape=(n, d))
    X.sum_duplicates()
    score = X @ rng.normal(size=d) + rng.normal(size=n)
    y, group = score > np.quantile(score, 0.7), rng.integers(0, constraints + 1, n)
    coefficients = [np.where(y, -1 / n, 1 / n)]
    for g in range(constraints):
        inside = group == g
        coefficients.append(np.where(inside, 1 / inside.sum(), -1 / (~inside).sum()))
    constants = np.concatenate([[y.mean()], np.full(constraints, -0.02)])
    ramp = RampProblem.of(DesignMatrix(X), np.array(coefficients), constants, 2 / n)
    return ConvexProblem.tight_at(ramp, np.zeros(n))


def one_step(problem: ConvexProblem) -> object:
    goal = StoppingRule(GAP, ceiling=1e4, hopeless=np.inf)
    return AugmentedLagrangian(goal).solve(problem, np.zeros(problem.ramp.rows.width))


def bench_growth() -> None:
    """Each size doubled three times, the others held."""
    sizes = {"rows": "n", "features": "d", "non-zeros a row": "entries", "constraints": "m"}
    base = {"n": 20_000, "d": 200, "entries": 10, "m": 1}
    curves = {}
    for name, key in sizes.items():
        values = [base[key] * 2**k for k in range(4)]
        cases = [base | {key: value} for value in values]
        times = [fastest(partial(one_step, generated(*case.values()))) for case in cases]
        slope = np.polyfit(np.log(values), np.log(times), 1)[0]
        print(f"{name} {values}: {', '.join(f'{t:.2f}' for t in times)} s, exponent {slope:.2f}")
        curves[name] = (values, times)
    draw(curves)


def draw(curves: dict[str, tuple[Sequence[int], Sequence[float]]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2.6), layout="constrained")
    for axes, (name, (values, times)) in zip(figure.subplots(1, 4), curves.items(), strict=True):
        axes.loglog(values, times, "o-", color="black", label="one convex problem")
        linear = times[0] * np.array(values) / values[0]
        axes.loglog(values, linear, ":", color="grey", label="linear")
        axes.set_xticks(values, [f"{value:,}" for value in values], fontsize=7)
        axes.set_yticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"], fontsize=7)
        axes.minorticks_off()
        axes.set(xlabel=name, ylabel="seconds")
    axes.legend(fontsize=7)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=120, metadata={"Software": None})


def bench_clicks() -> None:
    entry = {"source": "clicks", "split": {"test": 0.2, "stratify": ["set"]}}
    found = load_trial_data(
        ExperimentData.of({"clicks": DatasetSpec.model_validate(entry)}, Path.cwd()), 0, "deployed"
    )
    sets = {name: parse_conditions(f"set = {name}") for name in ("d1", "d2", "d3")}
    scope = Scope(groups=sets)
    aim = "(131840 * error[d1] + 53877 * false_positives[d2]) / 185717"
    objective = objective_goal(aim, resolve(parse_expression(aim), scope))
    goals = []
    for name, text in {"recall": "recall[d2] >= 0.67", "churn": "churn[d3] <= 0.04"}.items():
        parts = constraint_differences(parse_constraint(text), scope)
        goals.append(constraint_goal(name, text, parts, violation_expression(parts)))
    problem = training_problem(found, objective, tuple(goals), 5e-8)
    solver = Majorize(iterations=5, intercept="unregularized", gap=1e-3)
    took = fastest(partial(solver.solve, problem, np.random.default_rng(0), print))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"clicks, one target, 5 steps: {took:.0f} s, peak memory {peak:.1f} GiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", action="store_true", help="one target of Figure 3, full size")
    with limit_to_one_thread():
        if parser.parse_args().clicks:
            bench_clicks()
        else:
            try:
                fetch_files(find_source("a9a"), offline=False)
            except FaultError as fault:
                print(f"a9a is left out: {fault}")
            else:
                bench_a9a(
                    load_trial_data(
                        ExperimentData.of(
                            {"data": DatasetSpec.model_validate({"source": "a9a"})}, Path.cwd()
                        ),
                        0,
                    )
                )
            bench_growth()
