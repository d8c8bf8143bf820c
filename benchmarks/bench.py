"""Speed as ratios against a peer in the same run: `make bench`.

Seconds on a shared machine say little; how many plain SVM fits a constrained solve costs, and how
often a peer's time it takes to measure rates, say more. Uses a9a where it is at hand, else `loans`.
A peer that is not installed is left out.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.metrics import accuracy_score, recall_score
from sklearn.svm import LinearSVC

from ratecli.datasets.download import ensure
from ratecli.datasets.registry import find
from ratecli.faults import FaultError
from ratecli.rates.analysis import objective_goal, rule_goal
from ratecli.rates.matrix import Predictions, measure
from ratecli.rates.parser import parse_conditions, parse_rule, parse_value
from ratecli.rates.resolve import Scope, differences, resolve, violation
from ratecli.runner.trial import training_problem
from ratecli.runner.worker import one_thread
from ratecli.runner.world import Data, World, world
from ratecli.solvers.majorize.solver import Majorize

REPEATS = 3
TARGET = 1.25
SCOPE = Scope(groups={name: parse_conditions(f"sex = {value}")
                      for name, value in (("women", "Female"), ("men", "Male"))})  # fmt: skip


def fastest(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Least seconds of several runs: what the work takes when nothing is in its way."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def rows() -> tuple[str, World]:
    try:
        ensure(find("a9a"), offline=not os.environ.get("RATECLI_DATA_MIRROR"))
    except FaultError:
        return "loans", world(Data.of({"data": {"source": "loans"}}, Path.cwd()), 0)
    return "a9a", world(Data.of({"data": {"source": "a9a"}}, Path.cwd()), 0)


def bench_majorize(name: str, found: World) -> None:
    """One target of the 80% rule, in plain SVM fits."""
    objective = objective_goal("error", resolve(parse_value("error"), SCOPE))
    rule = parse_rule(f"positive_rate[men] <= {TARGET} * positive_rate[women]")
    parts = differences(rule, SCOPE)
    goal = rule_goal("parity", str(rule), parts, violation(parts))
    problem = training_problem(found, objective, (goal,), "1/n")
    train = found.sample.part == "train"
    X, y = found.X[np.flatnonzero(train)], found.sample.label[train]

    plain = fastest(lambda: LinearSVC(loss="hinge", tol=1e-3, max_iter=20_000).fit(X, y))
    for solver in (Majorize(inner="liblinear"), Majorize()):
        ours = fastest(partial(solver.solve, problem, np.random.default_rng(0), lambda _: None), 1)
        print(f"majorize ({solver.inner}), {name}, one target, T=8: {ours:.2f} s "
              f"= {ours / plain:.0f} plain SVM fits of {plain:.2f} s")  # fmt: skip
    if importlib.util.find_spec("fairlearn"):
        bench_fairlearn(X, y, found.sample.columns["sex"][train], ours)


def bench_fairlearn(X: object, y: object, sex: object, ours: float) -> None:
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    def reduce() -> None:
        dense = X.toarray() if hasattr(X, "toarray") else X
        constraint = DemographicParity(ratio_bound=1 / TARGET)
        learner = ExponentiatedGradient(LogisticRegression(solver="liblinear"), constraint)
        learner.fit(dense, y, sensitive_features=sex)

    theirs = fastest(reduce, 1)
    print(f"fairlearn's exponentiated gradient, same goal: {theirs:.2f} s, "
          f"{theirs / ours:.1f} times majorize")  # fmt: skip


def bench_measure(name: str, found: World) -> None:
    """Accuracy and recall of two groups, against scikit-learn's on masked arrays."""
    texts = [f"{rate}[{group}]" for rate in ("accuracy", "tpr") for group in ("women", "men")]
    expressions = [resolve(parse_value(text), SCOPE) for text in texts]
    decisions = (np.random.default_rng(0).random(len(found.sample)) > 0.7).astype(float)
    predictions = Predictions(decisions, decisions, decisions)
    sample = found.sample

    def theirs() -> None:
        test = sample.part == "test"
        for measure_of in (accuracy_score, recall_score):
            for value in ("Female", "Male"):
                mask = test & (sample.columns["sex"] == value)
                measure_of(sample.label[mask], decisions[mask])

    ours = fastest(lambda: measure(expressions, sample, "test", predictions), 20)
    peer = fastest(theirs, 20)
    print(f"measuring 4 rates, {name}: {1e3 * ours:.1f} ms, scikit-learn takes {peer / ours:.1f} "
          "times as long")  # fmt: skip


if __name__ == "__main__":
    data_name, found_rows = rows()
    with one_thread():
        bench_measure(data_name, found_rows)
        bench_majorize(data_name, found_rows)
