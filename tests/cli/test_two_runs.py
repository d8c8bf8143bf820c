"""Two commands on one results folder at the same time."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager
from threading import Thread

import pytest
from small import PLAIN, TRIALS, command, stored

from ratecli.errors import FaultError
from ratecli.files import LEDGER_FILE
from ratecli.ledger import locks as lock
from ratecli.ledger.locks import lock_report
from ratecli.report.write import write_report

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")

BUSY = "error[E504]: {}another command is writing to results/small"
ONCE = ("--set", "seeds=1", "-j", 1)
SEEDS = 100
"""More than end while this process waits for its turn on a busy machine."""


@pytest.fixture
def small(folder):
    """Two files of which the first is called small."""
    for name in ("small", "other"):
        (folder / f"{name}.yaml").write_text(PLAIN.replace("name: small", f"name: {name}"))
    return "small.yaml"


@contextmanager
def running(folder):
    """A long run that takes a rest some trials after its start; killed at the end."""
    arguments = ["small.yaml", "-q", "--set", f"seeds={SEEDS}", "--executor", "serial"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command("run", *arguments), cwd=folder, **pipes) as run:
        try:
            while stored(folder / "results" / "small" / LEDGER_FILE) < 3:
                assert run.poll() is None
                time.sleep(0.02)
            pause(run, folder / "results" / "small" / LEDGER_FILE)
            yield run
        finally:
            run.kill()


def pause(run, ledger):
    """Stop a run between two transactions: a process that is stopped in one keeps its lock."""
    while True:
        run.send_signal(signal.SIGSTOP)
        os.waitpid(run.pid, os.WUNTRACED)  # until it has stopped
        database = sqlite3.connect(ledger, timeout=0)
        try:
            database.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            run.send_signal(signal.SIGCONT)
            time.sleep(0.01)
        else:
            return
        finally:
            database.close()


def files(folder):
    """All that the first run has left so far."""
    found = (folder / "results" / "small").rglob("*")
    return {path: path.read_bytes() for path in found if path.is_file()}


def ended(folder):
    """The lines of a report's trials that have run."""
    lines = (folder / "results" / "small" / "trials.csv").read_text().splitlines()
    return [line for line in lines[1:] if ",not_run," not in line]


def test_a_second_run_is_refused_and_changes_nothing(folder, cli, small):
    """Reports have what is stored so far, and a killed run resumes with the same numbers."""
    with running(folder):
        before = files(folder)
        for options in ([], ["--fresh"]):
            second = cli("run", small, *ONCE, *options)
            assert second.code == 2
            assert second.err.startswith(BUSY.format(""))
            assert second.err.count("error[") == 1
            assert second.out == ""
        both = cli("run", small, "other.yaml", "-q", *ONCE)
        assert both.code == 2
        assert BUSY.format("small.yaml: ") in both.err
        assert (folder / "results" / "other" / "report.html").is_file()
        assert files(folder) == before
        assert cli("report", small).code == 0
        assert 3 <= len(ended(folder)) < SEEDS * TRIALS // 2
    for place in ("results", "undisturbed"):  # no lock is left behind
        assert cli("run", small, "-q", "-o", place, *ONCE).code == 0
    assert len(ended(folder)) == TRIALS // 2
    kept, whole = (folder / place / "small" / "metrics.csv" for place in ("results", "undisturbed"))
    assert kept.read_bytes() == whole.read_bytes()


def test_one_command_at_a_time_writes_a_report(folder, cli, small, monkeypatch):
    assert cli("run", small, "-q", *ONCE).code == 0
    results = folder / "results" / "small"
    (results / "report.html").unlink()
    monkeypatch.setattr(lock, "PAUSE", 0.01)
    with lock_report(results):
        said = "E504: another command is writing to"
        with pytest.raises(FaultError, match=said), lock_report(results, timeout=0.05):
            pass
        waiting = Thread(target=write_report, args=[results])
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        assert not (results / "report.html").exists()
    waiting.join()
    assert (results / "report.html").is_file()
