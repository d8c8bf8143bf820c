"""Constraints that have to hold on new rows: how often they do, and at what cost.

Each cell is a data set, a goal, an algorithm and a share of training rows. All other rows are the
new rows. For each cell, over splits:

answers     trials of `holds: new_rows` with a model; the others say what would help
holds       share of models that satisfy the constraint on the new rows, by `holds: train` and by
            `holds: new_rows`, and the same corrected for the noise of the new rows: parts of a
            violation are taken to be normal, with the variance over splits less the mean squared
            standard error, and their probabilities of being positive are added up
violation   mean violation on new rows, by either
cost        mean difference of the objective to `holds: train`, on splits with an answer
fixed       with `--margins`, the same cost of the smallest fixed margin of a grid with which the corrected share is
            at least the level: a margin picked by hand with knowledge of all new rows, also where
            the trials refuse to answer
p           of the hypothesis that the corrected share is at least the level (bootstrap of splits)

With `--safety`, half of the training rows are held out for a safety test at delta 0.05. Its first
candidate has a predicted probability of .9 to pass; bolder ones follow until one fails. `slack` is the
mean distance of the returned model's violation from 0 on new rows, of the first candidate alone and
with the bolder ones, on splits where the first passes.

Results are kept in the file `--results` and computed once. All cells take more than an hour of
processor time for 20 splits:

    python benchmarks/new_rows.py --splits 20 --cells adult-ratio
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy import stats

from ratecli.experiment.prepare import prepare
from ratecli.ledger.records import random_stream
from ratecli.models.base import Classifier
from ratecli.rates import expression as ex
from ratecli.rates.analysis import pieces
from ratecli.rates.matrix import build_rate_matrix
from ratecli.rates.rate_function import RateFunction
from ratecli.runner.trial import Trial, _load_rows, run_trial
from ratecli.runner.workers import limit_to_one_thread
from ratecli.sampling.safety_rows import SafetyRows
from ratecli.solvers.margin import solve_with_margin

FIRST_SEED = 3000
LEVEL = 0.9
BOOTSTRAP_SAMPLES = 4000
MARGINS = (0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.08)
DATA = {  # two groups, the column of all groups
    "adult": ("sex = Female", "sex = Male", "race"),
    "compas": ("race = African-American", "race != African-American", "race"),
    "bank": ("age < 30", "age >= 30", "marital"),
    "law": ("race = black", "race = white", "race"),
    "communities": ("black_share = high", "black_share = low", "black_share"),
}
GOALS = {  # objective, and a violation that must be at most 0
    "ratio": ("error", "max(0.8 * positive_rate[a] - positive_rate[b], 0.8 * positive_rate[b] - positive_rate[a])"),
    "tpr": ("error", "abs(tpr[a] - tpr[b]) - 0.05"),
    "odds": ("error", "max(max_gap(tpr, by={by}), max_gap(fpr, by={by})) - 0.05"),
    "f1": ("error", "abs(f1[a] - f1[b]) - 0.05"),
    "recall": ("1 - f1", "0.7 - min(tpr[a], tpr[b])"),
    "churn": ("1 - recall", "churn - 0.05"),  # against an unconstrained linear model
}  # fmt: skip
ALGORITHMS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "post_shift": ("post_shift", {}),
    "mixture": ("mixture", {}),
    "majorize": ("majorize", {"iterations": 4}),
    "boosted": ("post_shift", {"model": "lightgbm"}),
}
ALL = ("post_shift", "mixture", "boosted")


@dataclass(frozen=True)
class Cell:
    """One row of the table."""

    data: str
    goal: str
    algorithm: str
    share: float

    def __str__(self) -> str:
        return f"{self.data}-{self.goal}-{self.algorithm}-{self.share:g}"

    def text(self, seed: int, way: str) -> str:
        """The experiment file of one trial."""
        *groups, by = DATA[self.data]
        name, options = ALGORITHMS[self.algorithm]
        objective, violation = GOALS[self.goal]
        split = {"test": round(1 - self.share, 3)}
        split |= {"official": False} if self.data == "adult" else {}
        plain = {"unconstrained": {"as": "old", "safety": False}}
        return yaml.safe_dump({
            "name": "cell",
            "datasets": {self.data: {"source": self.data, "split": split}},
            "groups": dict(zip("ab", groups, strict=True)),
            "objective": objective,
            "constraints": {"rule": f"{violation.format(by=by)} <= {-fixed(way)}"},
            "holds": "new_rows" if way == "new_rows" else "train",
            "algorithms": [*([plain] if self.goal == "churn" else []), {name: dict(options)}],
            "seeds": [seed],
        } | ({"deployed": {"algorithm": "old"}} if self.goal == "churn" else {})
          | ({"safety": {"delta": 0.05, "aim": 0.9}} if way == "safety" else {}))  # fmt: skip


def fixed(way: str) -> float:
    """Return the fixed margin of a way to solve a cell, 0 for the other ways."""
    return float(way) if way[0] == "0" else 0.0


CELLS = [
    Cell(data, goal, algorithm, share)
    for data, goal, shares, algorithms in (
        ("adult", "ratio", (0.1, 0.5), ALL),
        ("adult", "tpr", (0.1, 0.5), ALL),
        ("adult", "f1", (0.5,), ALL),
        ("adult", "recall", (0.2,), ALL),
        ("adult", "churn", (0.2,), ("mixture", "majorize")),
        ("compas", "ratio", (0.3, 0.5), ALL),
        ("compas", "tpr", (0.5,), ALL),
        ("compas", "odds", (0.5,), ALL),
        ("bank", "ratio", (0.2,), ALL),
        ("bank", "tpr", (0.5,), ALL),
        ("law", "ratio", (0.5,), ("post_shift", "boosted")),
        ("law", "f1", (0.5,), ("post_shift", "boosted")),
        ("communities", "ratio", (0.5,), ("post_shift", "mixture")),
        ("communities", "tpr", (0.5,), ("post_shift", "mixture")),
    )
    for share in shares
    for algorithm in algorithms
]
UNTESTED = {"churn", "odds"}
"""Goals without a safety test: it would need other rows than the deployed model, or more rows."""
SAFETY_ALGORITHMS = ("post_shift", "mixture", "majorize")


def run(cell: Cell, seed: int, way: str, folder: Path) -> dict[str, Any]:
    """Solve one trial; return its status, and the main variant's values on new rows.

    The way is `train`, `new_rows`, `safety` or a fixed margin.
    """
    path = folder / "cell.yaml"
    path.write_text(cell.text(seed, way), "utf-8")
    *before, task = prepare(path, offline=True).plan.tasks
    results = {each.payload.key: run_trial(each.payload, {}) for each in before}
    trial = Trial(task.payload, _load_rows(task.payload, results)[0], {}, results)
    problem, case, begun = trial.problem(), task.payload.case, time.process_time()
    with limit_to_one_thread():
        rng = random_stream(seed, "solver", case.algorithm)
        solution = solve_with_margin(case.solver, case.guard, problem, rng)
    result: dict[str, Any] = {"seconds": time.process_time() - begun, "reason": solution.reason}
    if way != "safety":
        if solution.variants:
            result |= measured(trial, solution.main)
            result["violation"] -= fixed(way)  # of the constraint itself
            result["pieces"] = [(a - fixed(way), b) for a, b in result["pieces"]]
        return result
    assert problem.safety_test is not None
    test = SafetyRows(trial.rows, problem.safety_test, problem.label_ends, seed)
    predictions = trial.rows.answers(solution.variants)
    for name, path_of in (("first", ()), ("path", solution.bolder)):
        verdict = test.verdict(replace(solution, bolder=path_of), predictions, problem.constraints)
        if verdict.solution.variants:
            result[name] = measured(trial, verdict.solution.main)
    return result


def measured(trial: Trial, classifier: Classifier) -> dict[str, Any]:
    """Return a classifier's violation and objective on new rows, and parts with standard errors."""
    (goal,), objective = trial.spec.case.constraints, trial.spec.case.objective.expression
    decided = trial.rows.predictions(classifier).decisions
    leaves = ex.leaves(objective, goal.expression)
    new = trial.rows.sample.part == "test"
    matrix = build_rate_matrix(leaves, trial.rows.sample, "test").on(np.flatnonzero(new))
    decided = decided[new]
    function = RateFunction.of([objective, *pieces(goal.expression)], matrix.index())
    found = function.tangents(matrix.rates(decided))
    errors = matrix.standard_error(found.slopes[1:], {"decision": decided})
    parts = list(zip(found.value[1:].tolist(), errors.tolist(), strict=True))
    return {
        "violation": max(value for value, _ in parts),
        "pieces": parts,
        "objective": float(found.value[0]),
    }


@dataclass(frozen=True)
class Violations:
    """Violations on new rows over n splits, their J parts with standard errors, and objectives."""

    violation: np.ndarray
    pieces: np.ndarray
    objective: np.ndarray

    @classmethod
    def of(cls, found: list[dict[str, Any]]) -> Violations:
        return cls(*(np.array([row[key] for row in found]) for key in cls.__annotations__))

    def share(self) -> float:
        return float((self.violation <= 0).mean())

    def corrected(self, rows: np.ndarray | slice = slice(None)) -> float:
        """Return the share that holds, without the noise of the new rows."""
        value, error = np.moveaxis(self.pieces[rows], -1, 0)
        spread = np.sqrt(np.maximum(value.var(axis=0, ddof=1) - (error**2).mean(axis=0), 1e-8))
        return max(0.0, 1 - float(stats.norm.cdf(value.mean(axis=0) / spread).sum()))

    def p_value(self) -> float:
        """Return how often the corrected share is at least the level in samples of the splits."""
        rng, n = np.random.default_rng(0), len(self.violation)
        samples = (self.corrected(rng.integers(n, size=n)) for _ in range(BOOTSTRAP_SAMPLES))
        return float(np.mean([each >= LEVEL for each in samples]))


class Log:
    """Results of trials, kept in a file."""

    def __init__(self, path: Path, folder: Path, *, margins: bool) -> None:
        self.margins = margins
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.folder, self.known = path, folder, dict[tuple, dict]()
        if path.exists():
            rows = map(json.loads, path.read_text("utf-8").splitlines())
            self.known = {tuple(key): result for key, result in rows}

    def results(self, cell: Cell, way: str, splits: int) -> list[dict]:
        """Return the results of all splits; compute those that are not known."""
        for seed in range(FIRST_SEED, FIRST_SEED + splits):
            key = (str(cell), way, seed)
            if key not in self.known:
                self.known[key] = run(cell, seed, way, self.folder)
                with self.path.open("a", encoding="utf-8") as log:
                    log.write(json.dumps([key, self.known[key]]) + "\n")
        return [self.known[str(cell), way, seed] for seed in range(FIRST_SEED, FIRST_SEED + splits)]


def fixed_margin(cell: Cell, plain: list[dict], log: Log) -> str:
    """Return the smallest fixed margin that is enough, and its cost; "" unless asked for."""
    if not log.margins:
        return ""
    for margin in MARGINS:
        found = log.results(cell, str(margin), len(plain))
        pairs = [
            (a, b)
            for a, b in zip(found, plain, strict=True)
            if {"violation"} <= a.keys() & b.keys()
        ]
        if len(pairs) > len(plain) / 2:
            own = Violations.of([a for a, _ in pairs])
            if own.corrected() >= LEVEL:
                cost = np.mean([a["objective"] - b["objective"] for a, b in pairs])
                return f"{margin:.4g}: {cost:+.4f}"
    return f"not even {MARGINS[-1]}"


def compare(cells: list[Cell], splits: int, log: Log) -> None:
    """Print a line for each cell, and a summary."""
    print(
        f"{'cell':30} answers  holds        corrected    violation       {'cost':>7}  "
        f"{'fixed margin: cost':19} {'p':>5} {'seconds':>7}"
    )
    held, costs, p_values = list[bool](), list[float](), list[float]()
    for cell in cells:
        plain, promised = (log.results(cell, way, splits) for way in ("train", "new_rows"))
        before = Violations.of([each for each in plain if "violation" in each])
        seconds = np.mean([each["seconds"] for each in promised])
        pairs = [(a, b) for a, b in zip(promised, plain, strict=True) if "violation" in a]
        head = f"{cell!s:30} {len(pairs):3}/{splits:<3} "
        if len(pairs) < 2:
            print(f"{head} {before.share():5.2f}   -   {before.corrected():5.2f}   -    "
                  f"{before.violation.mean():+.3f}   -       -     {fixed_margin(cell, plain, log):19}"
                  f"       {seconds:7.2f}\n{'':12}{promised[0]['reason']}", flush=True)  # fmt: skip
            continue
        after = Violations.of([a for a, _ in pairs])
        costs.append(float(np.mean([a["objective"] - b["objective"] for a, b in pairs])))
        p_values.append(after.p_value() if len(pairs) > 4 else 1.0)
        held += (after.violation <= 0).tolist()
        print(f"{head} {before.share():5.2f} {after.share():5.2f}  {before.corrected():5.2f} "
              f"{after.corrected():5.2f}  {before.violation.mean():+.3f} {after.violation.mean():+.3f}  "
              f"{costs[-1]:+.4f}  {fixed_margin(cell, plain, log):19} {p_values[-1]:5.3f} {seconds:7.2f}",
              flush=True)  # fmt: skip
    if held:
        least = stats.binomtest(sum(held), len(held)).proportion_ci(0.95).low
        print(f"all answers: {np.mean(held):.3f} hold (at least {least:.3f}), level {LEVEL}")
        print(f"cost: median {np.median(costs):+.4f}, largest {max(costs):+.4f}")
        steps = np.sort(p_values) * (len(p_values) - np.arange(len(p_values)))
        print(f"smallest p by Holm: {min(np.maximum.accumulate(steps).min(), 1):.3f}")


def compare_tests(cells: list[Cell], splits: int, log: Log) -> None:
    """Print the slack of models that passed, of the first candidate alone and with bolder ones."""
    print(f"{'cell':30} passed first/path   slack first   path  ratio   objective")
    ratios = list[float]()
    for cell in cells:
        found = log.results(cell, "safety", splits)
        both = [(each["first"], each["path"]) for each in found if "first" in each]
        passed = [sum(name in each for each in found) for name in ("first", "path")]
        line = f"{cell!s:30} {passed[0]:8} / {passed[1]:<8}"
        if both:
            first, path = (Violations.of(list(each)) for each in zip(*both, strict=True))
            slack = [-each.violation.mean() for each in (first, path)]
            ratios.append(slack[1] / slack[0])
            gain = first.objective.mean() - path.objective.mean()
            line += f"{slack[0]:+9.4f} {slack[1]:+9.4f} {ratios[-1]:6.2f}   {-gain:+.4f}"
        print(line, flush=True)
    if ratios:
        print(f"slack, path / first: mean of cells {np.mean(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--cells", default="", help="only cells whose names start like this")
    parser.add_argument("--safety", action="store_true", help="safety tests instead")
    parser.add_argument("--margins", action="store_true", help="fixed margins, too")
    parser.add_argument("--results", type=Path, default=Path("results/new-rows.jsonl"))
    asked = parser.parse_args()
    cells = [each for each in CELLS if str(each).startswith(asked.cells)]
    with tempfile.TemporaryDirectory() as name:
        log = Log(asked.results, Path(name), margins=asked.margins)
        if asked.safety:
            cells = [
                each
                for each in cells
                if each.algorithm in SAFETY_ALGORITHMS and each.goal not in UNTESTED
            ]
            compare_tests(cells, asked.splits, log)
        else:
            compare(cells, asked.splits, log)


if __name__ == "__main__":
    main()
