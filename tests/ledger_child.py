"""A run to be killed: `python ledger_child.py LEDGER JOBS TRIALS SECONDS`; with no jobs, two on Dask.

As `runner.run` does, it stores from a thread. It writes a dot for each trial that ended. Worker
processes import this file, too: what only the driver needs, which takes a second, it imports later.
"""

import os
import sys
from functools import partial
from pathlib import Path

from small_trials import numbers

from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.store import LedgerStore, LedgerWriter


def tasks(trials, seconds):
    """Every tenth trial is needed by the nine that follow it."""
    from ratecli.experiment.plan import Task  # noqa: PLC0415

    keys = [f"k{number:04}" for number in range(trials)]
    return [
        Task(key, (keys[at - at % 10],) if at % 10 else (), (key, seconds))
        for at, key in enumerate(keys)
    ]


def run(ledger, jobs, trials, seconds, tell=lambda: None):
    from ratecli.runner.executors import Executor, run_tasks  # noqa: PLC0415

    todo = tasks(trials, seconds)
    plan = [PlannedTrial(task.key, "a", "a", {}, {"at": task.key}, 0, {"m": "m0"}) for task in todo]
    executor = {0: Executor("dask", 2), 1: Executor()}.get(jobs, Executor("processes", jobs))
    with LedgerStore(ledger) as store:
        store.begin(plan, {"trials": trials})
        known = store.known()
        left = [task for task in todo if task.key not in known]

        writer = LedgerWriter(store)

        def keep(result):
            writer.put(result)
            tell()

        def recall(key):
            writer.flush()
            return store.result(key)

        try:
            with executor.open_pool(left) as pool:
                run_tasks(pool, left, numbers, keep, recall)
            writer.flush()
        finally:
            writer.close()


if __name__ == "__main__":
    try:
        ledger, jobs, trials, seconds = sys.argv[1:]
        tell = partial(os.write, 1, b".")
        run(Path(ledger), int(jobs), int(trials), float(seconds), tell)
    except KeyboardInterrupt:
        sys.exit(130)
