"""Constraints that have to hold on new rows of generated populations, whose truth is known.

Each cell is a population, a rule, an algorithm and a number of training rows. For each cell, over
training sets, the violation and the error of models on 200,000 fresh rows:

answers     models of `holds: new_rows`; the others say what would help
holds       share of models that satisfy the rule, by `holds: train` and by `holds: new_rows`
error       mean error of either
fixed       the smallest margin of a grid with which nine of ten models hold, picked by an oracle
            that knows the truth, and by how much `holds: new_rows` has a larger error
time        median of the processor time as a multiple of that of `holds: train`

    python benchmarks/populations.py --sets 60 --cells mimic
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import ratecli
from ratecli.runner.workers import limit_to_one_thread

FRESH_ROWS, LEVEL = 200_000, 0.9
MARGINS = (0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16, 0.19, 0.22, 0.26)
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # features, labels 0 or 1, groups


def draw_labels(rng: np.random.Generator, score: np.ndarray) -> np.ndarray:
    return (rng.random(len(score)) < 1 / (1 + np.exp(-score))).astype(int)


def mimic(rng: np.random.Generator, n: int, features: int = 60, share: float = 0.3) -> Rows:
    """Normal features; the first is lower in the group `a`, the others are like it by chance."""
    a, X = rng.random(n) < share, rng.normal(size=(n, features))
    X[a, 0] -= 0.7
    score = X[:, 0] + 0.8 * X[:, 1] - 0.6 * X[:, 2] + 0.4 * X[:, 3]
    return X, draw_labels(rng, score), np.where(a, "a", "b")


def heavy_tails(rng: np.random.Generator, n: int) -> Rows:
    """The same with ten features that have Student's t distribution with 2.5 degrees of freedom."""
    a, X = rng.random(n) < 0.3, rng.standard_t(2.5, size=(n, 10))
    X[a, 0] -= 0.7
    score = X[:, 0] + 0.8 * X[:, 1] - 0.6 * X[:, 2] + 0.4 * X[:, 3]
    return X, draw_labels(rng, score), np.where(a, "a", "b")


def noisy_labels(rng: np.random.Generator, n: int) -> Rows:
    """Of ten features' labels, 30 % are wrong."""
    X, y, group = mimic(rng, n, 10)
    return X, np.where(rng.random(n) < 0.3, 1 - y, y), group


def categories(rng: np.random.Generator, n: int) -> Rows:
    """Indicators of 20 columns with 12 values, the rarest in one of a hundred rows."""
    a, score, columns = rng.random(n) < 0.3, np.zeros(n), list[np.ndarray]()
    chances = 1 / np.arange(1, 13) ** 1.5
    for k in range(20):
        value = rng.choice(12, size=n, p=chances / chances.sum())
        if k == 0:
            value = np.where(a & (rng.random(n) < 0.4), 3, value)
        effect = np.random.default_rng(k).normal(size=12) * (0.6 if k < 6 else 0.0)
        effect[3] -= 2.0 * (k == 0)
        score += effect[value]
        columns.append(np.eye(12)[value])
    return np.hstack(columns), draw_labels(rng, score), np.where(a, "a", "b")


def interactions(rng: np.random.Generator, n: int) -> Rows:
    """Labels depend on the product of two of eight features."""
    a, X = rng.random(n) < 0.3, rng.normal(size=(n, 8))
    X[a, 0] -= 0.7
    score = X[:, 0] + 1.2 * X[:, 1] * X[:, 2] - 0.6 * X[:, 3]
    return X, draw_labels(rng, score), np.where(a, "a", "b")


def regions(rng: np.random.Generator, n: int) -> Rows:
    """Three groups, the smallest of which has slightly fewer positive labels."""
    group, X = rng.choice(["a", "b", "c"], size=n, p=[0.5, 0.3, 0.2]), rng.normal(size=(n, 5))
    X[group == "c", 0] -= 0.3
    return X, draw_labels(rng, 1.5 * X[:, 0] + 1.2 * X[:, 1] - 0.9 * X[:, 2]), group


def rate(p: np.ndarray, of: np.ndarray) -> float:
    return float(p[of].mean())


def ratio_violation(p: np.ndarray, _: np.ndarray, g: np.ndarray) -> float:
    return 0.8 * rate(p, g == "b") - rate(p, g == "a")


def tpr_violation(p: np.ndarray, y: np.ndarray, g: np.ndarray) -> float:
    return abs(rate(p, (g == "a") & (y > 0)) - rate(p, (g == "b") & (y > 0))) - 0.05


def recall_violation(p: np.ndarray, y: np.ndarray, g: np.ndarray) -> float:
    return 0.9 - min(rate(p, (g == each) & (y > 0)) for each in np.unique(g))


RULES = {
    "ratio": ("0.8 * positive_rate[g = b] - positive_rate[g = a]", ratio_violation),
    "tpr": ("abs(tpr[g = a] - tpr[g = b]) - 0.05", tpr_violation),
    "recall": ("0.9 - min(recall, by=g)", recall_violation),
}
"""Texts and values of violations, which must be at most 0."""
ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "mixture": ("mixture", {}),
    "majorize": ("majorize", {}),
    "three_player": ("three_player", {}),
    "post_shift": ("post_shift", {}),
    "post_boosted": ("post_shift", {"model": {"lightgbm": {"n_estimators": 50}}}),
    "mix_boosted": ("mixture", {"model": {"lightgbm": {"n_estimators": 50}}}),
}
LINEAR = ("mixture", "majorize", "post_shift")


class Cell(NamedTuple):
    """One row of the table."""

    population: str
    draw: Callable[[np.random.Generator, int], Rows]
    rule: str
    algorithm: str
    rows: int

    def __str__(self) -> str:
        return f"{self.population}-{self.rule}-{self.algorithm}-{self.rows}"


def mimics(features: int, share: float = 0.3) -> Callable[[np.random.Generator, int], Rows]:
    return lambda rng, n: mimic(rng, n, features, share)


FAMILIES = (  # population, its rows, rule, algorithms, numbers of rows
    ("mimic10", mimics(10), "ratio", ("mixture", "majorize"), (4000,)),
    ("mimic30", mimics(30), "ratio", ("mixture", "majorize"), (1500, 4000)),
    ("mimic60", mimics(60), "ratio", ("mixture", "majorize"), (1500, 4000, 12000)),
    ("mimic60", mimics(60), "ratio", ("three_player",), (4000,)),
    ("mimic100", mimics(100), "ratio", ("mixture", "majorize"), (4000,)),
    ("rare", mimics(6, 0.03), "ratio", LINEAR, (4000, 12000)),
    ("heavy", heavy_tails, "ratio", LINEAR, (1500, 4000)),
    ("noisy", noisy_labels, "ratio", LINEAR, (1500, 4000)),
    ("categories", categories, "ratio", LINEAR, (1500, 4000)),
    ("interactions", interactions, "ratio", LINEAR, (1500, 4000)),
    ("regions", regions, "recall", LINEAR, (4000,)),
    ("mimic10", mimics(10), "tpr", ("mixture", "post_shift"), (4000,)),
    ("mimic30", mimics(30), "ratio", ("post_boosted", "mix_boosted"), (4000,)),
    ("interactions", interactions, "ratio", ("post_boosted", "mix_boosted"), (4000,)),
)


def cells() -> Iterator[Cell]:
    """Yield all cells, family by family."""
    for population, draw, rule, algorithms, sizes in FAMILIES:
        for n, algorithm in itertools.product(sizes, algorithms):
            yield Cell(population, draw, rule, algorithm, n)


def solve(cell: Cell, seed: int, way: str, fresh: Rows) -> dict[str, Any]:
    """Train on one set; the way is `train`, `new_rows` or a fixed margin."""
    X, y, group = cell.draw(np.random.default_rng(seed), cell.rows)
    (text, violation), (name, options) = RULES[cell.rule], ALGORITHMS[cell.algorithm]
    margin = float(way) if way[0].isdigit() else 0.0
    model = ratecli.RateConstrainedClassifier(
        constraints=f"{text} <= {-margin}",
        solver=name,
        solver_options=options,
        holds="new_rows" if way == "new_rows" else "train",
        random_state=seed,
    )
    begun = time.process_time()
    try:
        model.fit(X, y, sensitive_features={"g": group})
    except ratecli.NoSolutionFoundError as refusal:
        return {"seconds": time.process_time() - begun, "reason": str(refusal)}
    seconds = time.process_time() - begun
    decided = model.predict_proba(fresh[0], sensitive_features={"g": fresh[2]})[:, 1]
    error = np.where(fresh[1] > 0, 1 - decided, decided).mean()
    found = {"violation": violation(decided, fresh[1], fresh[2]), "error": float(error)}
    return {"seconds": seconds, "solved": model.status_ == "ok"} | found


class Log:
    """Results of training sets, kept in a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        self.path, self.known = path, {tuple(key): result for key, result in map(json.loads, lines)}

    def results(self, cell: Cell, way: str, sets: int, fresh: Rows) -> list[dict[str, Any]]:
        """Return the results of all sets; compute those that are not known."""
        for seed in range(sets):
            key = (str(cell), way, seed)
            if key not in self.known:
                self.known[key] = solve(cell, seed, way, fresh)
                with self.path.open("a", encoding="utf-8") as log:
                    log.write(json.dumps([key, self.known[key]]) + "\n")
        return [self.known[str(cell), way, seed] for seed in range(sets)]


def held(results: list[dict[str, Any]]) -> list[bool]:
    return [each["violation"] <= 0 for each in results if "violation" in each]


def mean_error(results: list[dict[str, Any]]) -> float:
    return float(np.mean([each["error"] for each in results if "error" in each] or [np.nan]))


def fixed_margin(cell: Cell, sets: int, log: Log, fresh: Rows) -> tuple[str, float]:
    """Return the smallest fixed margin with which nine of ten models hold, and its mean error."""
    for margin in MARGINS:
        found = log.results(cell, str(margin), sets, fresh)
        solved = [each for each in found if each.get("solved")]
        if sum(held(solved)) >= LEVEL * sets:
            return f"{margin:g}", mean_error(solved)
    return "none", np.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=60, help="training sets of each cell")
    parser.add_argument("--cells", default="", help="only cells whose names start like this")
    parser.add_argument("--margins", action="store_true", help="fixed margins, too")
    parser.add_argument("--results", type=Path, default=Path("results/populations.jsonl"))
    asked, families, costs = parser.parse_args(), dict[str, list[bool]](), list[float]()
    log = Log(asked.results)
    print(f"{'cell':34} answers   holds train/new   error train/new   fixed: extra   time")
    for cell in cells():
        if not str(cell).startswith(asked.cells):
            continue
        fresh = cell.draw(np.random.default_rng(10**6), FRESH_ROWS)
        with limit_to_one_thread():
            plain, promised = (
                log.results(cell, way, asked.sets, fresh) for way in ("train", "new_rows")
            )
            fixed = fixed_margin(cell, asked.sets, log, fresh) if asked.margins else ("", np.nan)
        own = held(promised)
        families.setdefault(cell.population.rstrip("0123456789"), []).extend(own)
        extra = mean_error(promised) - fixed[1]
        costs += [] if np.isnan(extra) else [extra]
        ratio = np.median(
            [a["seconds"] / max(b["seconds"], 1e-3) for a, b in zip(promised, plain, strict=True)]
        )
        shares = f"{np.mean(held(plain)):.2f} / {np.mean(own) if own else np.nan:.2f}"
        errors = f"{mean_error(plain):.4f} / {mean_error(promised):.4f}"
        print(f"{cell!s:34} {len(own):3}/{asked.sets:<4} {shares:>15} {errors:>18}   "
              f"{fixed[0]:>5}: {extra:+.4f} {ratio:5.1f}", flush=True)  # fmt: skip
    for family, own in families.items():
        p = stats.binomtest(sum(own), len(own), LEVEL, "less").pvalue if own else np.nan
        print(f"{family:12} {np.mean(own or [np.nan]):.3f} of {len(own)} hold (p {p:.3f})")
    if costs:
        print(
            f"error above the oracle's: median {np.median(costs):+.4f}, largest {max(costs):+.4f}"
        )


if __name__ == "__main__":
    main()
