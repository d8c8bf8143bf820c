"""What constrained training costs in memory, against the number of rows: `python benchmarks/scale.py`.

Two generated tables with three groups: 45 numbers a row (dense), and 100 of 10,000 features a row
(sparse), so that a million rows have 10^8 entries. `mixture` and `majorize` satisfy
`min_ratio(positive_rate, by=g) >= 0.8`; the peer is scikit-learn's LogisticRegression on the same
features. Each fit is a process of its own with one thread: processor seconds of the fit alone, and
the peak memory of the process. Drawn to docs/scale.png.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

HERE = Path(__file__).parent
RULE = "min_ratio(positive_rate, by=g) >= 0.8"
FITS = ("LogisticRegression", "mixture", "majorize")
KINDS = ("dense", "sparse")
Curves = dict[tuple[str, str], list[tuple[int, dict[str, float]]]]
DENSE, STORED, WIDTH = 45, 100, 10_000
"""Features of a dense row; entries and features of a sparse one."""
SECONDS = 3600
"""A fit that takes longer is left out, and larger ones with it."""


def table(kind: str, rows: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Features, groups and labels: a logistic model, in which groups differ in three features."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, rows)
    if kind == "dense":
        X = rng.normal(size=(rows, DENSE))
        X[:, :2] += 1.5 * group[:, None]
        scores = 0.3 * X @ rng.normal(size=DENSE)
    else:
        columns = rng.integers(0, WIDTH // STORED, (rows, STORED), dtype=np.int32)
        columns += np.arange(0, WIDTH, WIDTH // STORED, dtype=np.int32)
        columns[:, 0] = group
        starts = np.arange(0, rows * STORED + 1, STORED)
        X = sparse.csr_array((np.ones(rows * STORED), columns.ravel(), starts), (rows, WIDTH))
        scores = 0.2 * X @ rng.normal(size=WIDTH)
    label = scores + 0.4 * group + rng.logistic(size=rows) > np.median(scores) + 0.4
    return X, np.array(["a", "b", "c"], dtype=object)[group], label.astype(int)


def fit(name: str, kind: str, rows: int) -> dict[str, float]:
    """Fit once in this process; return processor seconds, peak GiB and the objective."""
    from sklearn.linear_model import LogisticRegression

    from ratecli import RateConstrainedClassifier
    from ratecli.runner.workers import limit_to_one_thread

    X, group, label = table(kind, rows)
    sensitive, model = {"sensitive_features": {"g": group}}, None
    if name == "LogisticRegression":
        model, sensitive = LogisticRegression(max_iter=1000), {}
    else:
        model = RateConstrainedClassifier(constraints=RULE, solver=name, random_state=0)
    warnings.simplefilter("ignore")
    with limit_to_one_thread():
        begun = time.process_time()
        model.fit(X, label, **sensitive)
        seconds = time.process_time() - begun
    peak = next(row for row in Path("/proc/self/status").read_text().split("\n") if "VmHWM" in row)
    found = {"seconds": seconds, "GiB": int(peak.split()[1]) / 2**20}
    return found | ({"violation": max(model.violations_.values())} if sensitive else {})


def measured(kind: str, sizes: list[int]) -> Iterator[tuple[str, int, dict[str, float]]]:
    """Yield the name of a fit, its rows and its measurements."""
    for name in FITS:
        for rows in sizes:
            command = [sys.executable, __file__, "--one", name, kind, str(rows)]
            try:
                ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True,
                                       timeout=SECONDS)  # fmt: skip
            except subprocess.TimeoutExpired:
                break
            yield name, rows, json.loads(ended.stdout.splitlines()[-1])


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--one", nargs=3, help="fit, kind and rows of one measurement")
    reading.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    given = reading.parse_args()
    if given.one:
        print(json.dumps(fit(*given.one[:2], int(given.one[2]))))
        return
    curves: Curves = {}
    for kind in KINDS:
        for name, rows, found in measured(kind, given.rows):
            rounded = {key: round(value, 4) for key, value in found.items()}
            print(f"{kind:7} {name:19} {rows:9,}", json.dumps(rounded), flush=True)
            curves.setdefault((kind, name), []).append((rows, found))
    draw(curves)


def draw(curves: Curves) -> None:
    """Draw seconds and memory against rows to docs/scale.png."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(8, 6), sharex=True, layout="constrained")
    for (kind, name), points in curves.items():
        for row, unit in enumerate(("seconds", "GiB")):
            numbers = [(rows, found[unit]) for rows, found in points]
            axes[row, KINDS.index(kind)].loglog(*zip(*numbers, strict=True), "o-", label=name)
    for k, title in enumerate((f"{DENSE} features a row", f"{STORED} of {WIDTH:,} features a row")):
        axes[0, k].set_title(f"{KINDS[k]}: {title}")
        axes[1, k].set_xlabel("rows")
    axes[0, 0].set_ylabel("processor seconds")
    axes[1, 0].set_ylabel("peak memory, GiB")
    axes[0, 0].legend(loc="lower right")
    figure.savefig(HERE.parent / "docs" / "scale.png", dpi=100)


if __name__ == "__main__":
    main()
