"""What rows larger than memory cost: `python benchmarks/streaming.py --full` for all 20 million.

A generated table of 40 columns, of 20 thousand rows and ten times as many until 20 million: 24 numbers, 14
words of 4 to 20 levels, a group and a label, which is logistic in some of them; one more says which two rows of
three are to train on. Each size runs through `ratecli` as a user would have it: records written (`ratecli plan`
with `limits: {memory: 1 GiB}`), then logistic regression (`unconstrained`) and a parity constraint in batches
(`three_player`), with all that is measured of them on training and test rows. Seconds are of the processor, one
core, of the whole process, which takes 2 of them to begin. Peak memory is that of each process, told by
itself (VmHWM); one above the bound ends the benchmark.

The peer reads the same Parquet file batch by batch: StandardScaler and SGDClassifier.partial_fit of
scikit-learn, words as 0 and 1 by the codes that they have in the file, one pass to learn scales, `--epochs` to
train. Up to 2 million rows LogisticRegression is given the whole table. Drawn to docs/streaming.png.

Seconds and MiB, measured in November 2026 (20 million rows are 2.9 GB of Parquet):

    rows                         20 thousand   200 thousand     2 million     20 million
    records                       1.8 s  306     2.0 s  376     4.5 s  367     32 s  381
    unconstrained                 3.1 s  362     3.8 s  362     6.5 s  364     24 s  363
    three_player                  4.7 s  385     9.0 s  414      15 s  413     66 s  414
    scikit-learn, partial_fit     1.6 s  244     1.5 s  346     5.0 s  340     33 s  345
    scikit-learn, in memory       1.2 s  248     2.6 s  437      12 s 1586

Then the training loss that each pass of the peer reaches, and when ours was known to be there. Of 20 million rows:

    passes of partial_fit         loss - .54669   scales, then passes   passes   records, ours   ours
    1                                .000004185                33 s      20 s            47 s   16 s
    2                                .000003797                53 s      40 s            47 s   16 s
    3                                .000003603                72 s      59 s            47 s   16 s

Ours is .000002691 there, and .000002597 after one more pass, which is the least. Of 2 million rows partial_fit
takes 2.3 s for its first pass, ours 5.5 s, 4 of which are for the process to begin and to solve a sample.
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
BOUND = 1024
"""MiB."""
FITS = 2_000_000
"""Rows that scikit-learn is given at once."""
HERE = Path(__file__).parent
EXPERIMENT = """
name: {name}
datasets: {{big: {{path: big.parquet, stream: true, label: label, split: {{by: part}}}}}}
groups: {{a: group = a, b: group = b}}
objective: error
constraints: {{parity: 'positive_rate[b] >= 0.9 * positive_rate[a]'}}
algorithms: [{algorithm}]
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
        part = (np.arange(start, start + n) % 3 == 2).astype(np.int8)
        columns["part"] = pa.DictionaryArray.from_arrays(part, pa.array(["train", "test"]))
        batch = pa.table(columns)
        writer = writer or pa.parquet.ParquetWriter(path, batch.schema)
        writer.write_table(batch, row_group_size=2**17)
    assert writer is not None
    writer.close()


@dataclass(frozen=True)
class Cost:
    """Seconds of the processor, MiB at the peak of the process, and what it found.

    `losses` are training losses, and the seconds of the process after which each was known.
    """

    rows: int
    what: str
    seconds: float
    peak: float
    found: dict[str, float]
    losses: list[tuple[float, float]]


def child(folder: Path, *command: object) -> dict[str, Any]:
    """What one of the commands below says at its end, in a process of its own."""
    environment = os.environ | {"RATECLI_DATA": str(folder / "data"), "OMP_NUM_THREADS": "1"}
    asked = [sys.executable, str(Path(__file__).resolve()), *map(str, command)]
    done = subprocess.run(
        asked, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def ended(**found: Any) -> None:
    """What a child says: its own peak, too, for ru_maxrss begins at what its parent held."""
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    used = {"seconds": time.process_time(), "peak": int(line.split()[1]) / 1024}
    print("\n" + json.dumps(used | found))


def ours(rows: int, folder: Path) -> list[Cost]:
    found = []
    for name, algorithm in ALGORITHMS.items():
        text = EXPERIMENT.format(name=f"{name}-{rows}", algorithm=algorithm)
        (folder / "exp.yaml").write_text(text, "utf-8")
        if not found:
            bound = f"limits.memory={BOUND} MiB"
            said = child(folder, "--ratecli", "plan", "exp.yaml", "--set", bound)
            found.append(Cost(rows, "records", said["seconds"], said["peak"], {}, []))
        said = child(folder, "--ratecli", "run", "exp.yaml", "--executor", "serial", "--quiet")
        if said["peak"] > BOUND:
            raise RuntimeError(f"{name} took {said['peak']:.0f} MiB")
        told = values(rows, name, folder)
        found.append(Cost(rows, name, said["seconds"], said["peak"], told, said["losses"]))
    return found


def ratecli(command: list[str]) -> None:
    """A command of ratecli, and when Newton's method knew which loss (without the penalty)."""
    from ratecli.cli.app import main
    from ratecli.solvers.baselines.streamed import StreamedNewton

    losses, at = [], StreamedNewton.at

    def watched(self: Any, w: Any, width: float, curved: float) -> Any:
        found = at(self, w, width, curved)
        if self.every == 1:  # a sample is easier to fit than all rows
            losses.append((time.process_time(), found.value - 0.5 * self.l2 * float(w @ w)))
        return found

    StreamedNewton.at = watched  # type: ignore[method-assign]
    sys.argv = ["ratecli", *command]
    if code := main():
        sys.exit(code)
    ended(losses=losses)


def values(rows: int, name: str, folder: Path) -> dict[str, float]:
    """Of the trial's main classifier."""
    from ratecli.files import LEDGER_FILE
    from ratecli.ledger.store import LedgerStore

    with LedgerStore(folder / "results" / f"{name}-{rows}" / LEDGER_FILE, readonly=True) as store:
        (planned,) = store.plan()
        result = store.result(planned.key)
    metrics = {text: metric for metric, text in planned.metrics.items()}
    main = next(iter(result.models))
    return {
        f"{metrics[value.metric]}@{value.split}": value.value
        for value in result.values
        if value.variant == main
    }


def peer(path: Path, epochs: int, whole: bool) -> None:
    """scikit-learn on the training rows: what it finds, and its loss after each pass."""
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.metrics import log_loss

    encoded = encoder(path)
    known = time.process_time()

    def judged(model: Any) -> dict[str, float]:
        sums = np.zeros((2, 2))
        for X, y, train in encoded():
            estimates = model.predict_proba(X)[:, 1]
            for k, rows in enumerate((train, ~train)):
                sums[k] += log_loss(y[rows], estimates[rows], normalize=False), rows.sum()
        return dict(zip(("loss@train", "loss@test"), sums[:, 0] / sums[:, 1], strict=True))

    if whole:
        parts = [(X[train], y[train]) for X, y, train in encoded()]
        X, y = sparse.vstack([X for X, _ in parts]), np.concatenate([y for _, y in parts])
        least = LogisticRegression(C=1.0, tol=1e-4, max_iter=1000).fit(X, y)
        ended(seconds=time.process_time(), found=judged(least), losses=[])
        return
    model = SGDClassifier(loss="log_loss", alpha=1e-6, learning_rate="invscaling", eta0=0.05,
                          power_t=0.25, average=True, random_state=0)  # fmt: skip
    seconds, losses = 0.0, []
    for _ in range(epochs):
        begun = time.process_time()
        for X, y, train in encoded():
            model.partial_fit(X[train], y[train], classes=[0, 1])
        seconds += time.process_time() - begun
        found = judged(model)
        losses.append((known + seconds, found["loss@train"]))
    ended(seconds=losses[0][0], found={"scales": known, **found}, losses=losses)


def encoder(path: Path) -> Callable[[], Iterator[Any]]:
    """Batches of features, labels and which rows are to train on, scales known from a pass over those.

    Words are numbered as their dictionary has them, which is that of every batch: as fast as can be.
    """
    from scipy import sparse
    from sklearn.preprocessing import StandardScaler

    texts = [f"w{k}" for k in range(WORDS)] + ["group"]

    def batches() -> Iterator[Any]:
        with pa.parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**18) as file:
            for batch in file.iter_batches(batch_size=2**15, use_threads=False):
                numbers = np.column_stack([batch[f"x{k}"].to_numpy() for k in range(NUMBERS)])
                part = batch["part"]
                train = part.indices.to_numpy() == part.dictionary.to_pylist().index("train")
                yield batch, numbers, train

    scaler, levels = StandardScaler(), list[list[str]]()
    for batch, numbers, train in batches():
        scaler.partial_fit(numbers[train])
        levels = levels or [batch[name].dictionary.to_pylist() for name in texts]
        if levels != [batch[name].dictionary.to_pylist() for name in texts]:
            raise RuntimeError("a batch has another dictionary")
    first = NUMBERS + np.cumsum([0, *map(len, levels)])

    def encoded() -> Iterator[Any]:
        for batch, numbers, train in batches():
            m = len(numbers)
            words = [batch[name].indices.to_numpy() for name in texts]
            values = np.ones((m, NUMBERS + len(texts)))
            values[:, :NUMBERS] = scaler.transform(numbers)
            columns = np.empty(values.shape, np.int32)
            columns[:, :NUMBERS] = np.arange(NUMBERS)
            columns[:, NUMBERS:] = np.column_stack(words) + first[:-1]
            starts = np.arange(0, values.size + 1, values.shape[1])
            X = sparse.csr_matrix(
                (values.ravel(), columns.ravel(), starts), shape=(m, int(first[-1]))
            )
            yield X, batch["label"].to_numpy(), train

    return encoded


def theirs(rows: int, folder: Path, epochs: int) -> list[Cost]:
    costs = []
    for name, more in (("partial_fit", []), ("in memory", ["--whole"])):
        if not more or rows <= FITS:
            said = child(folder, "--peer", "big.parquet", "--epochs", epochs, *more)
            what = f"scikit-learn, {name}"
            costs.append(
                Cost(rows, what, said["seconds"], said["peak"], said["found"], said["losses"])
            )
    return costs


def raced(costs: list[Cost]) -> Iterator[str]:
    """After how many seconds we knew a loss at most that of each pass of the peer."""
    of = {cost.what: cost for cost in costs}
    written, mine, peers = (
        of[name] for name in ("records", "unconstrained", "scikit-learn, partial_fit")
    )
    scales = peers.found["scales"]
    for epoch, (seconds, loss) in enumerate(peers.losses, 1):
        when = [each for each, own in mine.losses if own <= loss]
        ours = f"{written.seconds + when[0]:.1f} s, {when[0]:.1f} s" if when else "never"
        yield (
            f"{epoch} of partial_fit: {loss:.6f} after {seconds:.1f} s, {seconds - scales:.1f} s "
            f"with known scales; ours {ours} with known records"
        )


def measured(sizes: tuple[int, ...], epochs: int, scratch: Path | None) -> list[Cost]:
    costs = []
    for rows in sizes:
        with tempfile.TemporaryDirectory(dir=scratch) as name:
            folder = Path(name)
            said = child(folder, "--table", rows)
            size = (folder / "big.parquet").stat().st_size / 2**20
            print(f"{rows:>10,} rows: {size:,.0f} MiB of Parquet in {said['seconds']:.0f} s")
            own = [*ours(rows, folder), *theirs(rows, folder, epochs)]
            costs += own
            for cost in own:
                told = "  ".join(f"{key} {value:.5g}" for key, value in cost.found.items())
                print(
                    f"  {cost.what:25} {cost.seconds:8.1f} s {cost.peak:7.0f} MiB  {told}",
                    flush=True,
                )
            for line in raced(own):
                print(f"  {line}", flush=True)
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
    ticks = [1, 2, 5, 10, 20, 50, 100]
    left.set_yticks(ticks, labels=map(str, ticks))
    left.minorticks_off()
    right.axhline(BOUND, color="0.4", linestyle="--", linewidth=1)
    right.annotate("limits: {memory: 1 GiB}", (costs[0].rows, 1045), fontsize=8, color="0.4")
    right.set(xscale="log", ylim=(0, 1700), xlabel="rows of 40 columns", ylabel="MiB at the peak")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="up to 20 million rows")
    parser.add_argument("--epochs", type=int, default=3, help="passes of partial_fit")
    parser.add_argument("--scratch", type=Path, help="where 7 GB fit")
    parser.add_argument("--costs", type=Path, help="what was measured, as JSON")
    parser.add_argument("--table", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--whole", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=int, nargs="+", help="rows instead of the usual")
    if sys.argv[1:2] == ["--ratecli"]:
        ratecli(sys.argv[2:])
        return
    given = parser.parse_args()
    if given.table:
        table(given.table, Path("big.parquet"))
        ended()
        return
    if given.peer:
        peer(given.peer, given.epochs, given.whole)
        return
    costs = measured(
        given.sizes or (SIZES if given.full else SIZES[:2]), given.epochs, given.scratch
    )
    if given.costs:
        given.costs.write_text(json.dumps([asdict(cost) for cost in costs], indent=1), "utf-8")
    draw(costs, HERE.parent / "docs" / "streaming.png" if given.full else Path("streaming.png"))


if __name__ == "__main__":
    main()
