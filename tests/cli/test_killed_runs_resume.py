"""Runs that are killed at any moment, and started again until they end."""

from __future__ import annotations

import csv
import random
import sqlite3
import subprocess
import time

import pytest
from small import command, stored

from ratecli.cli.app import main
from ratecli.files import LEDGER_FILE

TRIALS = 40
MANY = f"""\
name: many
datasets: {{loans: {{source: loans, rows: 200}}}}
algorithms: [unconstrained]
seeds: {TRIALS}
metrics: {{error: error, gap: 'max_gap(positive_rate, by=sex)'}}
"""


def killed_at(folder, jobs, trials, seconds):
    """A run that is killed some time after so many trials are stored; how many were, then."""
    ledger = folder / "results" / "many" / LEDGER_FILE
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
    """The numbers of a run to the end, in this process."""
    results = folder / "results"
    said = [folder / "many.yaml", "-o", results, "--jobs", jobs, "-q"]
    assert main(["run", *map(str, said)]) == 0
    return (results / "many" / "metrics.csv").read_bytes()


def assert_each_once(folder):
    results = folder / "results" / "many"
    with (results / "trials.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["seed"]) for row in rows] == list(range(TRIALS))
    assert {row["status"] for row in rows} == {"ok"}
    with sqlite3.connect(results / LEDGER_FILE) as db:
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


@pytest.fixture
def kill_and_finish(folder, undisturbed, capsys):
    """Kill runs, let one end, and look at what it says and leaves."""
    (folder / "many.yaml").write_text(MANY)

    def check(*jobs):
        """The last of the jobs are those of the run that ends, all others are killed."""
        *killed, last = jobs
        counts = sorted(random.randrange(TRIALS - 20) for _ in killed)
        for trials, many in zip(counts, killed, strict=True):
            assert killed_at(folder, many, trials, random.uniform(0, 0.02)) >= trials
        capsys.readouterr()
        assert finished(folder, last) == undisturbed
        assert capsys.readouterr() == ("", "")
        assert_each_once(folder)

    return check


def test_a_killed_run_ends_as_if_undisturbed(kill_and_finish):
    """The workers of a killed run are those of runner/test_killed_runs.py."""
    kill_and_finish(1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("time_over", range(10))
@pytest.mark.parametrize("jobs", [(1, 1, 1), (2, 2, 2), (2, 1, 1)])
def test_ten_times_over(kill_and_finish, jobs, time_over):
    kill_and_finish(*(jobs * 2)[: 2 + time_over % 3])
