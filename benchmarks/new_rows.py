"""Constraints that have to hold on new rows: how often they do, and at what cost.

Each cell is a data set, a goal, an algorithm and a share of training rows. All other rows are the
new rows. `holds` is the share of the answers whose constraint holds on them; `corrected` removes
the noise of the new rows from it: violations are taken to be normal, with the variance over splits
less the mean squared standard error on new rows. `cost` is the mean difference of the objective to
the same algorithm with `holds: train`, on splits with an answer.

Results are kept in the folder `--results` and computed once:

    python benchmarks/new_rows.py --splits 20 --cells adult-ratio
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from scipy import stats

from ratecli.experiment.prepare import prepare
from ratecli.rates import expression as ex
from ratecli.rates.matrix import build_rate_matrix
from ratecli.rates.tangent import tangent, values
from ratecli.runner.trial import Trial
from ratecli.runner.workers import limit_to_one_thread
from ratecli.sampling.rows import load_trial_data

FIRST_SEED = 3000
LEVEL = 0.9
DATA = {  # source, its keys, two groups, the column of all groups
    "adult": ({"source": "adult"}, "sex = Female", "sex = Male", "race"),
    "compas": (
        {"source": "compas"},
        "race = African-American",
        "race != African-American",
        "race",
    ),
    "bank": ({"source": "bank"}, "age < 30", "age >= 30", "marital"),
    "law": ({"source": "law"}, "race = black", "race = white", "race"),
    "communities": ({"source": "communities"}, "race = black", "race = other", "race"),
}
GOALS = {
    "ratio": ("error", "min(positive_rate[a], positive_rate[b]) >= 0.8 * max(positive_rate[a], positive_rate[b])"),
    "tpr": ("error", "abs(tpr[a] - tpr[b]) <= 0.05"),
    "odds": ("error", "max(max_gap(tpr, by={by}), max_gap(fpr, by={by})) <= 0.05"),
    "f1": ("error", "abs(f1[a] - f1[b]) <= 0.05"),
    "recall": ("1 - f1", "min(tpr[a], tpr[b]) >= 0.7"),
}  # fmt: skip
ALGORITHMS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "post_shift": ("post_shift", {}),
    "mixture": ("mixture", {}),
    "majorize": ("majorize", {"iterations": 4}),
    "boosted": ("post_shift", {"model": "lightgbm"}),
}


@dataclass(frozen=True)
class Cell:
    """One row of the table."""

    data: str
    goal: str
    algorithm: str
    share: float

    def __str__(self) -> str:
        return f"{self.data}-{self.goal}-{self.algorithm}-{self.share:g}"

    def text(self, seed: int, holds: str) -> str:
        """The experiment file of one trial."""
        source, *groups, by = DATA[self.data]
        name, options = ALGORITHMS[self.algorithm]
        objective, rule = GOALS[self.goal]
        split = {"test": round(1 - self.share, 3)}
        split |= {"official": False} if self.data == "adult" else {}
        return yaml.safe_dump({
            "name": "cell",
            "datasets": {self.data: {**source, "split": split}},
            "groups": dict(zip("ab", groups, strict=True)),
            "objective": objective,
            "constraints": {"rule": rule.format(by=by)},
            "holds": holds,
            "algorithms": [{name: dict(options)}],
            "seeds": [seed],
        })  # fmt: skip


CELLS = [
    Cell(data, goal, algorithm, share)
    for data, goal, shares in (
        ("adult", "ratio", (0.1, 0.5)),
        ("adult", "tpr", (0.1, 0.5)),
        ("adult", "f1", (0.5,)),
        ("adult", "recall", (0.2,)),
        ("compas", "ratio", (0.3, 0.5)),
        ("compas", "tpr", (0.5,)),
        ("compas", "odds", (0.5,)),
        ("bank", "ratio", (0.2,)),
        ("bank", "tpr", (0.5,)),
    )
    for share in shares
    for algorithm in ("post_shift", "mixture", "boosted")
]


def run(cell: Cell, seed: int, holds: str, folder: Path) -> dict[str, object]:
    """Solve one trial; return its status, and the main variant's values on new rows."""
    path = folder / "cell.yaml"
    path.write_text(cell.text(seed, holds), "utf-8")
    (task,) = prepare(path, offline=True).plan.tasks
    case = task.payload.case
    trial = Trial(task.payload, load_trial_data(task.payload.data, seed, None, case.sampling), {})
    begun = time.process_time()
    with limit_to_one_thread():
        found = trial.solve(trial.problem())
    result: dict[str, object] = {"seconds": time.process_time() - begun, "status": found.status}
    if not found.solution.variants:
        return result | {"reason": found.reason}
    (goal,), objective = case.constraints, case.objective.expression
    decided = trial.rows.predictions(next(iter(found.solution.variants.values()))).decisions
    leaves = ex.leaves(objective, *goal.pieces)
    new = trial.rows.sample.part == "test"
    matrix = build_rate_matrix(leaves, trial.rows.sample, "test").on(np.flatnonzero(new))
    decided, index = decided[new], matrix.index()
    rates = matrix.rates(decided)
    pieces = [float(values(piece, rates[:, None], index)[0]) for piece in goal.pieces]
    worst = int(np.argmax(pieces))
    slopes = tangent(goal.pieces[worst], rates, index).slopes
    constants = [
        float(values(objective, matrix.rates(np.full(len(decided), each))[:, None], index)[0])
        for each in (0.0, 1.0)
    ]
    return result | {
        "violation": pieces[worst],
        "error": matrix.standard_error(slopes, decided),
        "objective": float(values(objective, rates[:, None], index)[0]),
        "constant": float(np.nanmin(constants)),
    }


def summarize(found: list[dict[str, float]]) -> tuple[float, float, float]:
    """Return the share that holds, the same corrected for noise, and the mean violation."""
    broken = np.array([each["violation"] for each in found])
    noise = float(np.mean([each["error"] ** 2 for each in found]))
    spread = np.sqrt(max(broken.var(ddof=1) - noise, 1e-12))
    return (
        float((broken <= 0).mean()),
        float(stats.norm.cdf(-broken.mean() / spread)),
        broken.mean(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--cells", default="", help="only cells whose names start like this")
    parser.add_argument("--results", type=Path, default=Path("results/new-rows.jsonl"))
    asked = parser.parse_args()
    asked.results.parent.mkdir(parents=True, exist_ok=True)
    known = {}
    if asked.results.exists():
        rows = map(json.loads, asked.results.read_text("utf-8").splitlines())
        known = {tuple(key): result for key, result in rows}
    print(
        f"{'cell':28} answers  holds train/new_rows  corrected     violation       cost   seconds"
    )
    held: list[bool] = []
    with tempfile.TemporaryDirectory() as name, asked.results.open("a", encoding="utf-8") as log:
        for cell in (each for each in CELLS if str(each).startswith(asked.cells)):
            results: dict[str, list[dict]] = {"train": [], "new_rows": []}
            for holds, found in results.items():
                for seed in range(FIRST_SEED, FIRST_SEED + asked.splits):
                    key = (str(cell), holds, seed)
                    if key not in known:
                        known[key] = run(cell, seed, holds, Path(name))
                        log.write(json.dumps([key, known[key]]) + "\n")
                        log.flush()
                    found.append(known[key])
            show(cell, results, held)
            sys.stdout.flush()
    if held:
        least = stats.binomtest(sum(held), len(held)).proportion_ci(0.95).low
        print(f"all answers: {np.mean(held):.3f} hold (at least {least:.3f}), level {LEVEL}")


def show(cell: Cell, results: dict[str, list[dict]], held: list[bool]) -> None:
    """Print a line for the cell; add to `held` which answers hold."""
    plain, promised = results["train"], results["new_rows"]
    answered = [k for k, each in enumerate(promised) if "violation" in each]
    parts = [f"{cell!s:28} {len(answered):3}/{len(promised):<3} "]
    before = summarize([each for each in plain if "violation" in each])
    if len(answered) > 1:
        own = [promised[k] for k in answered]
        after = summarize(own)
        held += [each["violation"] <= 0 for each in own]
        costs = [promised[k]["objective"] - plain[k]["objective"] for k in answered]
        parts += [f"{a:6.2f} /{b:5.2f} " for a, b in zip(before, after, strict=True)]
        parts += [f"  {np.mean(costs):+.4f}"]
    else:
        parts += [
            f"{before[0]:6.2f} /  -  ",
            f"{before[2]:+.3f}  ",
            *{str(each.get("reason")) for each in promised[:1]},
        ]
    parts += [f"  {np.mean([each['seconds'] for each in promised]):6.2f}"]
    print("".join(parts))


if __name__ == "__main__":
    main()
