"""Runs that are killed, interrupted or orphaned, in real processes."""

import fcntl
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import ledger_child
import psutil
import pytest
from thinned import one_in

from ratecli.ledger.store import LedgerStore

CHILD = Path(__file__).parents[1] / "ledger_child.py"
TRIALS = 200


@contextmanager
def child(ledger, jobs, trials=TRIALS, seconds=0.002):
    command = [sys.executable, str(CHILD), str(ledger), str(jobs), str(trials), str(seconds)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


PATIENCE = 600
"""Seconds after which something hangs, also on a slow and busy machine."""


def wait_for(condition):
    """Wait until the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def contents(ledger):
    """Return everything in a ledger that does not depend on the clock."""
    with LedgerStore(ledger, readonly=True) as store:
        results = {key: replace(store.result(key), seconds=0.0) for key in store.results()}
        return dict(sorted(results.items())), store.plan(), store.meta()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    ledger = tmp_path_factory.mktemp("uninterrupted") / "trials.sqlite"
    ledger_child.run(ledger, 1, TRIALS, 0)
    return contents(ledger)


def kill_at_random(ledger, jobs, kills):
    """Kill the driver or a worker at random moments; restart the driver if it was killed."""
    while kills:
        with child(ledger, jobs, seconds=0.04) as process:
            process.stdout.read(random.randint(0, 8))
            while kills:
                time.sleep(random.uniform(0, 0.1))
                assert process.poll() is None, process.stderr.read()
                kills -= 1
                workers = workers_of(process.pid)
                if not workers or random.random() < 0.5:
                    break
                with suppress(psutil.NoSuchProcess):
                    random.choice(workers).kill()


def import_paths():
    """Return the environment of a process that imports functions of trials."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(CHILD.parent), *sys.path])}


def workers_of(pid):
    family = psutil.Process(pid).children(recursive=True)
    with suppress(psutil.NoSuchProcess):
        return [each for each in family if "spawn_main" in " ".join(each.cmdline())]
    return []


def assert_complete(ledger, jobs, uninterrupted):
    """Complete the run; the ledger must equal that of an uninterrupted run."""
    with child(ledger, jobs) as process:
        dots, errors = process.communicate()
    assert (process.returncode, errors) == (0, b"")
    assert len(dots) <= TRIALS
    assert contents(ledger) == uninterrupted
    with sqlite3.connect(ledger) as db:
        counts = db.execute("SELECT count(*), count(DISTINCT key) FROM trials").fetchone()
        values = (json.loads(row[0])["values"] for row in db.execute("SELECT content FROM trials"))
        numbers = sum(map(len, values))
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    assert counts == (TRIALS, TRIALS)
    assert numbers == TRIALS * 32
    assert [path.name for path in ledger.parent.iterdir()] == ["trials.sqlite"]


@pytest.mark.parametrize(
    ("jobs", "kills"),
    [(2, 1), *(pytest.param(jobs, 20, marks=pytest.mark.slow) for jobs in (1, 2, 0))],
)
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(tmp_path, jobs, kills, uninterrupted):
    ledger = tmp_path / "trials.sqlite"
    kill_at_random(ledger, jobs, kills)
    assert_complete(ledger, jobs, uninterrupted)


@pytest.mark.parametrize(("jobs", "whole_group"), one_in(2, [(2, True), (1, False)]))
def test_an_interrupted_run_keeps_finished_trials(tmp_path, jobs, whole_group):
    ledger = tmp_path / "trials.sqlite"
    with child(ledger, jobs, 1000, 0.02) as process:
        process.stdout.read(3)
        # Ctrl-C in a terminal reaches the workers too.
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert errors == b""
    with pytest.raises(ProcessLookupError):
        wait_for(lambda: os.killpg(process.pid, 0) and False)
    results, plan, _ = contents(ledger)
    assert 3 <= len(results) < 1000
    assert len(plan) == 1000
    assert {len(result.values) for result in results.values()} == {32}


def test_workers_do_not_outlive_a_killed_parent(tmp_path):
    locks = [tmp_path / "a", tmp_path / "b"]
    program = (
        "import sys\n"
        "from small_trials import act\n"
        "from ratecli.runner.executors import Executor, run_tasks\n"
        "from ratecli.experiment.plan import Task\n"
        "tasks = [Task(path, (), (path, 'lock', path)) for path in sys.argv[1:]]\n"
        "with Executor('processes', 2).open_pool(tasks) as pool:\n"
        "    run_tasks(pool, tasks, act, print, None)\n"
    )
    command = [sys.executable, "-c", program, *map(str, locks)]
    with subprocess.Popen(command, env=import_paths()) as parent:
        wait_for(lambda: all(Path(f"{lock}.held").exists() for lock in locks))
        assert not any(map(is_free, locks))
        parent.kill()
    wait_for(lambda: all(map(is_free, locks)))


def is_free(lock):
    """Return whether no living process holds the lock."""
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
