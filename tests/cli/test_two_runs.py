"""Two runs on one folder of results: the second is sent away and touches nothing."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

import pytest
from small import SMALL, command, process
from test_run_command import wait_for_trials

from ratecli.faults import FaultError
from ratecli.runner.lock import LOCK, locked
from ratecli.runner.run import LEDGER

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")

BUSY = "error[E504]: {}another run is writing to results/small"


@pytest.fixture
def small(folder):
    path = folder / "small.yaml"
    path.write_text(SMALL)
    return path


@contextmanager
def running(folder):
    """A long run, some trials after its start; killed at the end."""
    arguments = ["small.yaml", "--set", "seeds=400", "--executor", "serial", "-q"]
    with subprocess.Popen(command("run", *arguments), cwd=folder) as run:
        try:
            wait_for_trials(folder / "results" / "small" / LEDGER, 3)
            yield run
        finally:
            run.kill()


def planned(folder):
    return (folder / "results" / "small" / "resolved.yaml").read_bytes()


@pytest.mark.parametrize("options", [[], ["--fresh"]])
@pytest.mark.usefixtures("small")
def test_the_second_run_is_sent_away(folder, options):
    with running(folder) as first:
        before = planned(folder)
        second = process("run", "small.yaml", "--set", "seeds=1", *options, cwd=folder)
        assert second.returncode == 2
        assert second.stderr.startswith(BUSY.format(""))
        assert second.stderr.count("error[") == 1
        assert second.stdout == ""
        assert planned(folder) == before
        assert first.poll() is None
    # a kill leaves no lock behind
    third = process("run", "small.yaml", "--set", "seeds=1", "-q", cwd=folder)
    assert third.returncode == 0


@pytest.mark.usefixtures("small")
def test_other_experiments_still_run(folder):
    (folder / "other.yaml").write_text(SMALL.replace("name: small", "name: other"))
    with running(folder):
        files = ["small.yaml", "other.yaml"]
        second = process("run", *files, "--set", "seeds=1", "-q", "-j", 1, cwd=folder)
    assert second.returncode == 2
    assert BUSY.format("small.yaml: ") in second.stderr
    assert (folder / "results" / "other" / "report.html").is_file()


def test_a_ledger_that_cannot_be_used_stops_no_other_experiment(folder, cli, small):
    (folder / "other.yaml").write_text(SMALL.replace("name: small", "name: other"))
    ledger = folder / "results" / "small" / LEDGER
    ledger.parent.mkdir(parents=True)
    ledger.write_text("not a ledger " * 100)
    answer = cli("run", small, "other.yaml", "--set", "seeds=1", "-q", "-j", 1)
    assert answer.code == 2
    assert f"error[E502]: {small}: " in answer.err
    assert (folder / "results" / "other" / "report.html").is_file()


def test_a_folder_is_free_again_after_use(folder):
    with (
        locked(folder / "a" / "b"),
        pytest.raises(FaultError, match="E504"),
        locked(folder / "a/b"),
    ):
        pass
    with locked(folder / "a" / "b"):
        assert (folder / "a" / "b" / LOCK).read_bytes() == b""
