"""Runs that are killed at random moments and started again."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import time

import pytest
from small import command, read_rows, stored

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
    """Kill a run after `trials` are stored and some seconds; return how many are stored."""
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
    """Run to the end in this process; return metrics.csv."""
    results = folder / "results"
    said = [folder / "many.yaml", "-o", results, "--jobs", jobs, "-q"]
    assert main(["run", *map(str, said)]) == 0
    return (results / "many" / "metrics.csv").read_bytes()


def assert_each_once(folder):
    results = folder / "results" / "many"
    rows = read_rows(results / "trials.csv")
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


@pytest.mark.parametrize(
    "jobs",
    [
        (1, 1),
        *(
            pytest.param(jobs, marks=pytest.mark.slow)
            for jobs in [(1,) * 4, (2,) * 4, (2, 1, 2, 1)]
        ),
    ],
)
def test_a_killed_run_resumes_with_the_same_numbers(folder, undisturbed, capsys, jobs):
    """All runs but the last are killed at random moments."""
    (folder / "many.yaml").write_text(MANY)
    *killed, last = jobs
    counts = sorted(random.randrange(TRIALS - 20) for _ in killed)
    for trials, many in zip(counts, killed, strict=True):
        assert killed_at(folder, many, trials, random.uniform(0, 0.02)) >= trials
    capsys.readouterr()
    assert finished(folder, last) == undisturbed
    assert capsys.readouterr() == ("", "")
    assert_each_once(folder)
