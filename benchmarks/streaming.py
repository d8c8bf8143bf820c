"""What rows larger than memory cost: `python benchmarks/streaming.py --full` for all 20 million.

A generated table of 40 columns, of 20 thousand rows and ten times as many until 20 million: 24 numbers, 14
words of 4 to 20 levels, a group and a label, which is logistic in some of them. Each size runs through
`ratecli` as a user would have it, in processes of their own with `limits: {memory: 1 GiB}`: records
written (`ratecli plan`), then logistic regression (`unconstrained`) and a parity constraint in batches
(`three_player`), with all that is measured of them on training and test rows. Seconds are of the processor, of the
whole process, one core.

The peer reads the same Parquet file batch by batch: StandardScaler, OneHotEncoder and
SGDClassifier.partial_fit of scikit-learn, one pass to learn scales and levels, one to train, as many as asked
for with `--epochs`. Up to 2 million rows LogisticRegression is given the whole table. Peak memory is that of each process (ru_maxrss). Drawn to docs/streaming.png.

Seconds and MiB, measured in November 2026 (20 million rows are 2.9 GB of Parquet):

    rows                         20 thousand   200 thousand     2 million     20 million
    records                       2.4 s  304     3.1 s  383     6.0 s  369     35 s  374
    unconstrained                 4.3 s  360     5.9 s  360     8.8 s  369     47 s  374
    three_player                  6.4 s  379      12 s  408      28 s  408    172 s  408
    scikit-learn, partial_fit     1.8 s  245     2.6 s  332      10 s  369     76 s  374
    scikit-learn, in memory       1.8 s  244     3.0 s  392      14 s 1176
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

NUMBERS, WORDS = 24, 14
CHUNK = 2**18
SIZES = (20_000, 200_000, 2_000_000, 20_000_000)
BOUND = "1 GiB"
FITS = 2_000_000
"""Rows that scikit-learn is given at once."""
HERE = Path(__file__).parent
EXPERIMENT = """
name: {name}
datasets: {{big: {{path: big.parquet, stream: true, label: label}}}}
groups: {{a: group = a, b: group = b}}
objective: error
constraints: {{parity: 'positive_rate[b] >= 0.9 * positive_rate[a]'}}
algorithms: [{algorithm}]
limits: {{memory: {bound}}}
metrics: {{error: error, loss: log_loss, gap: 'max_gap(positive_rate, by=group)'}}
"""
ALGORITHMS = {
    "unconstrained": "unconstrained: {loss: logistic}",
    "three_player": "three_player: {batch: 1000, steps: 5000, every: 50, learning_rate: 0.01}",
}


def table(rows: int, path: Path) -> None:
    """The table, written chunk by chunk."""
    levels = np.random.default_rng(0).integers(4, 21, WORDS)
    truth = np.random.default_rng(1)
    slopes = truth.normal(size=NUMBERS) * (truth.random(NUMBERS) < 0.5) * 0.5
    effects = [truth.normal(size=n) * 0.4 * (k < WORDS // 2) for k, n in enumerate(levels)]
    words = [pa.array([f"w{k}_{j}" for j in range(n)]) for k, n in enumerate(levels)]
    writer = None
    for chunk, start in enumerate(range(0, rows, CHUNK)):
        rng = np.random.default_rng([7, chunk])
        n = min(CHUNK, rows - start)
        X = rng.standard_normal((NUMBERS, n), dtype=np.float32)
        codes = [rng.integers(0, top, n, dtype=np.int8) for top in levels]
        group = (rng.random(n) < 0.3).astype(np.int8)
        X[0] += 0.5 * (group == 0)
        score = slopes @ X + sum(each[code] for each, code in zip(effects, codes, strict=True))
        label = (rng.random(n) < 1 / (1 + np.exp(-score - 0.4 * (group == 0) + 0.5))).astype(
            np.int8
        )
        columns = {f"x{k}": pa.array(X[k]) for k in range(NUMBERS)}
        for k, code in enumerate(codes):
            columns[f"w{k}"] = pa.DictionaryArray.from_arrays(code, words[k])
        columns["group"] = pa.DictionaryArray.from_arrays(group, pa.array(["a", "b"]))
        columns["label"] = pa.array(label)
        batch = pa.table(columns)
        writer = writer or pa.parquet.ParquetWriter(path, batch.schema)
        writer.write_table(batch, row_group_size=2**17)
    assert writer is not None
    writer.close()


@dataclass(frozen=True)
class Cost:
    """Seconds of the processor, MiB at the peak of the process, and what it found."""

    rows: int
    what: str
    seconds: float
    peak: float
    found: dict[str, float]


def child(command: list[str], folder: Path) -> tuple[float, float, str]:
    """Seconds of the processor, MiB at the peak and output of a process."""
    environment = os.environ | {"RATECLI_DATA": str(folder / "data"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command}: {output}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output


def ours(rows: int, folder: Path) -> list[Cost]:
    found = []
    ratecli = [sys.executable, "-m", "ratecli"]
    for name, algorithm in ALGORITHMS.items():
        text = EXPERIMENT.format(name=f"{name}-{rows}", algorithm=algorithm, bound=BOUND)
        (folder / "exp.yaml").write_text(text, "utf-8")
        if not found:
            seconds, peak, _ = child([*ratecli, "plan", "exp.yaml"], folder)
            found.append(Cost(rows, "records", seconds, peak, {}))
        command = [*ratecli, "run", "exp.yaml", "--executor", "serial", "--quiet", "--fresh"]
        seconds, peak, _ = child(command, folder)
        found.append(Cost(rows, name, seconds, peak, values(rows, name, folder)))
    return found


def values(rows: int, name: str, folder: Path) -> dict[str, float]:
    """Of the trial's main classifier."""
    from ratecli.runner.run import LEDGER
    from ratecli.runner.store import Store

    with Store(folder / "results" / f"{name}-{rows}" / LEDGER, readonly=True) as store:
        (planned,) = store.plan()
        result = store.result(planned.key)
    metrics = {text: metric for metric, text in planned.metrics.items()}
    main = next(iter(result.models))
    return {
        f"{metrics[value.metric]}@{value.split}": value.value
        for value in result.values
        if value.variant == main
    }


def peer(path: Path, epochs: int, whole: bool) -> dict[str, float]:
    """Of scikit-learn on the first two thirds of each batch: seconds, and losses there."""
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.metrics import log_loss

    names = [f"x{k}" for k in range(NUMBERS)]
    texts = [f"w{k}" for k in range(WORDS)] + ["group"]
    encode = encoder(path, names, texts)
    if whole:
        parts = list(encode())
        X, y = sparse.vstack([X for X, _ in parts]), np.concatenate([y for _, y in parts])
        least = LogisticRegression(C=1.0, tol=1e-4, max_iter=1000).fit(X, y)
        return {"loss": float(log_loss(y, least.predict_proba(X)[:, 1]))}
    model = SGDClassifier(loss="log_loss", alpha=1e-6, learning_rate="invscaling", eta0=0.05,
                          power_t=0.25, average=True, random_state=0)  # fmt: skip
    for _ in range(epochs):
        for X, y in encode():
            model.partial_fit(X, y, classes=[0, 1])
    begun = time.process_time()
    losses = [(log_loss(y, model.predict_proba(X)[:, 1]), len(y)) for X, y in encode()]
    values, counts = zip(*losses, strict=True)
    judged = time.process_time() - begun
    return {"loss": float(np.average(values, weights=counts)), "judged": judged}


def encoder(path: Path, names: list[str], texts: list[str]) -> Callable[[], Iterator[Any]]:
    """Batches of features and labels, scales and levels known from a pass over all of them."""
    from scipy import sparse
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    def batches() -> Iterator[Any]:
        with pa.parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**18) as file:
            for batch in file.iter_batches(batch_size=2**15, use_threads=False):
                yield batch.slice(0, batch.num_rows * 2 // 3).to_pandas()

    scaler, levels = StandardScaler(), [set() for _ in texts]
    for frame in batches():
        scaler.partial_fit(frame[names].to_numpy())
        for known, name in zip(levels, texts, strict=True):
            known.update(frame[name].cat.categories)
    onehot = OneHotEncoder(categories=[sorted(known) for known in levels], dtype=np.float32)
    onehot.fit(np.array([[min(known) for known in levels]], dtype=object))

    def encoded() -> Iterator[Any]:
        for frame in batches():
            X = scaler.transform(frame[names].to_numpy())
            words = onehot.transform(frame[texts].astype(object).to_numpy())
            yield (
                sparse.hstack([sparse.csr_matrix(X), words], format="csr"),
                frame["label"].to_numpy(),
            )

    return encoded


def theirs(rows: int, folder: Path, epochs: int) -> list[Cost]:
    script, costs = str(HERE / "streaming.py"), []
    for name, more in (("partial_fit", []), ("in memory", ["--whole"])):
        if not more or rows <= FITS:
            command = [
                sys.executable,
                script,
                "--peer",
                "big.parquet",
                "--epochs",
                str(epochs),
                *more,
            ]
            seconds, peak, output = child(command, folder)
            found = json.loads(output.splitlines()[-1])
            seconds -= found.pop("judged", 0.0)
            costs.append(Cost(rows, f"scikit-learn, {name}", seconds, peak, found))
    return costs


def measured(sizes: tuple[int, ...], epochs: int, scratch: Path | None) -> list[Cost]:
    costs = []
    for rows in sizes:
        with tempfile.TemporaryDirectory(dir=scratch) as name:
            folder = Path(name)
            begun = time.perf_counter()
            table(rows, folder / "big.parquet")
            size = (folder / "big.parquet").stat().st_size / 2**20
            print(
                f"{rows:>10,} rows: {size:,.0f} MiB of Parquet in {time.perf_counter() - begun:.0f} s"
            )
            for cost in (*ours(rows, folder), *theirs(rows, folder, epochs)):
                costs.append(cost)
                told = "  ".join(f"{key} {value:.5g}" for key, value in cost.found.items())
                print(
                    f"  {cost.what:25} {cost.seconds:8.1f} s {cost.peak:7.0f} MiB  {told}",
                    flush=True,
                )
    return costs


def draw(costs: list[Cost], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(cost.what for cost in costs))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    for k, name in enumerate(names):
        own = [cost for cost in costs if cost.what == name]
        rows = [cost.rows for cost in own]
        style = {"marker": "os^Dv"[k % 5], "color": f"C{k}", "label": name}
        left.plot(rows, [cost.seconds for cost in own], **style)
        right.plot(rows, [cost.peak for cost in own], **style)
    left.set(xscale="log", yscale="log", xlabel="rows of 40 columns", ylabel="seconds of one core")
    right.axhline(1024, color="0.4", linestyle="--", linewidth=1)
    right.annotate("limits: {memory: 1 GiB}", (costs[0].rows, 1040), fontsize=8, color="0.4")
    right.set(xscale="log", ylim=(0, 1200), xlabel="rows of 40 columns", ylabel="MiB at the peak")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="up to 20 million rows")
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--costs", type=Path)
    given = parser.parse_args()
    if given.peer:
        print(json.dumps(peer(given.peer, given.epochs, given.whole)))
        return
    costs = measured(SIZES if given.full else SIZES[:2], given.epochs, given.scratch)
    if given.costs:
        given.costs.write_text(json.dumps([asdict(cost) for cost in costs], indent=1), "utf-8")
    draw(costs, HERE.parent / "docs" / "streaming.png" if given.full else Path("streaming.png"))


if __name__ == "__main__":
    main()
