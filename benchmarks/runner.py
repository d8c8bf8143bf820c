"""What the runner and its ledger add to trials, and how much two workers save: `make bench`.

Trials of known length run and are stored as those of `ratecli run` are; the rest of the time is ours. Beside
them in the same run: joblib's processes on the same function, and a bare `map` of Dask on the same cluster.
At last a whole `ratecli run` of 1,000 trials, from the command to the report.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from distributed import Client
from joblib import Parallel, delayed
from runner_trials import spin, trial

from ratecli.experiment.plan import Task
from ratecli.ledger.records import PlannedTrial, TrialResult
from ratecli.ledger.store import LedgerStore, LedgerWriter
from ratecli.runner.dask_pool import start_local_cluster
from ratecli.runner.executors import Executor, run_tasks

SHORT, MANY = 0.01, 1000
LONG, FEW = 0.5, 16
WHOLE = """\
name: whole
datasets: {loans: {source: loans, rows: 200}}
algorithms: [unconstrained]
seeds: 1000
metrics: {error: error, gap: 'max_gap(positive_rate, by=sex)'}
"""


def stored(executor: Executor, count: int, seconds: float) -> tuple[float, float, float]:
    """Seconds of a run whose trials are stored, of the trials themselves, and of this processor."""
    keys = [f"{number:064}" for number in range(count)]
    tasks = [Task(key, (), (key, seconds)) for key in keys]
    plan = [PlannedTrial(key, "a", "a", {}, {}, 0, {"m": "m"}) for key in keys]
    took = [0.0]
    with (
        tempfile.TemporaryDirectory() as folder,
        LedgerStore(Path(folder, "trials.sqlite")) as store,
    ):

        def done(result: TrialResult) -> None:
            took[0] += result.seconds
            writer.put(result)

        begun, worked = time.perf_counter(), time.process_time()
        store.begin(plan, {})
        writer = LedgerWriter(store)
        with executor.open_pool(tasks) as pool:
            run_tasks(pool, tasks, trial, done, store.result)
        writer.flush()
        writer.close()
        return time.perf_counter() - begun, took[0], time.process_time() - worked


def seconds_of(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def overhead() -> None:
    print(f"{MANY} trials of {1000 * SHORT:g} ms: ms that are added to each")
    wall, work, worked = stored(Executor(), MANY, SHORT)
    print(f"  serial         {1000 * (wall - work) / MANY:6.2f}")
    print(
        f"    of processor {1000 * (worked / MANY - SHORT):6.2f}  (also beside a trial, in its time)"
    )
    wall, work, worked = stored(Executor("processes"), MANY, SHORT)
    print(f"  one process    {1000 * (wall - work) / MANY:6.2f}")
    print(f"    of processor {1000 * worked / MANY:6.2f}  (here)")
    with start_local_cluster(1) as address:
        wall, work, _ = stored(Executor("dask", None, address), MANY, SHORT)
        print(f"  Dask           {1000 * (wall - work) / MANY:6.2f}")
        with Client(address, set_as_default=False) as client:
            todo = [SHORT] * MANY
            wall = seconds_of(lambda: client.gather(client.map(spin, todo, pure=False)))
        print(f"  Dask, bare map {1000 * (wall / MANY - SHORT):6.2f}  (nothing is stored)")
    wall = seconds_of(lambda: Parallel(n_jobs=1)(delayed(spin)(SHORT) for _ in range(MANY)))
    print(f"  joblib, serial {1000 * (wall / MANY - SHORT):6.2f}  (nothing is stored)")


def speedup() -> None:
    print(f"{FEW} trials of {LONG:g} s: seconds with one worker, with two, ratio")
    one, two = (stored(Executor("processes", jobs), FEW, LONG)[0] for jobs in (1, 2))
    print(f"  processes      {one:6.2f} {two:6.2f} {one / two:6.2f}")
    one, two = (
        seconds_of(lambda: Parallel(n_jobs=jobs)(delayed(spin)(LONG) for _ in range(FEW)))  # noqa: B023
        for jobs in (1, 2)
    )
    print(f"  joblib         {one:6.2f} {two:6.2f} {one / two:6.2f}")


def whole() -> None:
    print(f"ratecli run of {MANY} trials, with its report: seconds; ms a trial")
    for jobs in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "whole.yaml").write_text(WHOLE, "utf-8")
            command = [sys.executable, "-m", "ratecli", "run", "whole.yaml", "-q", "-j", str(jobs)]
            wall = seconds_of(lambda: subprocess.run(command, cwd=folder, check=True))  # noqa: B023
        print(f"  --jobs {jobs}       {wall:6.1f} {1000 * wall / MANY:6.2f}")


if __name__ == "__main__":
    overhead()
    speedup()
    whole()
