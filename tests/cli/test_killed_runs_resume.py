"""Runs that are killed at any moment, and started again until they end."""

from __future__ import annotations

import csv
import random
import sqlite3
import subprocess
import time

import pytest
from small import command, process

from ratecli.faults import FaultError
from ratecli.runner.run import LEDGER
from ratecli.runner.store import Store

TRIALS = 200
MANY = f"""\
name: many
datasets: {{loans: {{source: loans, rows: 200}}}}
algorithms: [unconstrained]
seeds: {TRIALS}
metrics: {{error: error, gap: 'max_gap(positive_rate, by=sex)'}}
"""


def stored(ledger):
    if not ledger.is_file():
        return 0
    try:
        with Store(ledger, readonly=True) as store:
            return len(store.known())
    except FaultError:  # it is only being made
        return 0


def killed_at(folder, jobs, trials, seconds):
    """A run that is killed some time after so many trials are stored; how many were, then."""
    ledger = folder / "results" / "many" / LEDGER
    with subprocess.Popen(
        command("run", "many.yaml", "--jobs", jobs, "-q"), stderr=subprocess.PIPE, cwd=folder
    ) as run:
        deadline = time.monotonic() + 60
        while stored(ledger) < trials:
            assert run.poll() is None, run.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(seconds)
        run.kill()
    return stored(ledger)


def finished(folder, jobs):
    done = process("run", "many.yaml", "--jobs", jobs, "-q", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return (folder / "results" / "many" / "metrics.csv").read_bytes()


def assert_each_once(folder):
    results = folder / "results" / "many"
    with (results / "trials.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["seed"]) for row in rows] == list(range(TRIALS))
    assert {row["status"] for row in rows} == {"ok"}
    with sqlite3.connect(results / LEDGER) as db:
        counts = db.execute("SELECT count(*), count(DISTINCT key) FROM trials").fetchone()
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    assert counts == (TRIALS, TRIALS)
    assert not [path for path in results.rglob("*") if "journal" in path.name]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "many.yaml").write_text(MANY)
    numbers = finished(folder, 1)
    assert_each_once(folder)
    return numbers


def kill_and_finish(folder, jobs, undisturbed, kills):
    (folder / "many.yaml").write_text(MANY)
    for trials in sorted(random.randrange(TRIALS - 20) for _ in range(kills)):
        assert killed_at(folder, jobs, trials, random.uniform(0, 0.02)) >= trials
    assert finished(folder, jobs) == undisturbed
    assert_each_once(folder)


@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_runs_end_as_if_undisturbed(folder, jobs, undisturbed):
    kill_and_finish(folder, jobs, undisturbed, kills=1)


@pytest.mark.slow
@pytest.mark.parametrize("time_over", range(10))
@pytest.mark.parametrize("jobs", [1, 2])
def test_ten_times_over(folder, jobs, time_over, undisturbed):
    kill_and_finish(folder, jobs, undisturbed, kills=1 + time_over % 3)
