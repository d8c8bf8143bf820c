from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from synthetic_ledger import store

from ratecli.errors import FaultError
from ratecli.ledger.store import REPORT_LOCK_FILE
from ratecli.report.write import write_report

FILES = (
    "metrics.csv",
    "trials.csv",
    "summary.csv",
    "summary.md",
    "tables/errors.md",
    "figures/tradeoff-ratio-error.svg",
    "figures/tradeoff-ratio-error.png",
    "figures/tradeoff-ratio-error-2.svg",
    "figures/tradeoff-ratio-error-2.png",
    "report.html",
)


def contents(folder):
    return {name: (folder / name).read_bytes() for name in FILES}


def test_the_files_are_written_and_nothing_else(reported):
    found = {str(path.relative_to(reported)) for path in reported.rglob("*") if path.is_file()}
    assert found == {*FILES, "trials.sqlite", REPORT_LOCK_FILE}


def test_the_order_in_which_trials_ended_has_no_effect(reported, example, tmp_path):
    other = store(tmp_path / "other", example, reversed(example.plan))
    assert write_report(other) == [other / name for name in FILES]
    assert contents(other) == contents(reported)


KILLED = """
import os, signal, sys
from pathlib import Path
from ratecli.report.write import write_report
from ratecli import files
synced, before = os.fsync, int(sys.argv[2])

def sync(file):
    global before
    before -= 1
    if before < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    synced(file)

files.os.fsync = sync
write_report(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("written", [0, len(FILES) - 3])
def test_the_next_report_removes_remains_of_a_killed_one(reported, tmp_path, written):
    shutil.copy(reported / "trials.sqlite", tmp_path)
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path, str(written)], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.rglob("*.tmp")
    assert left.parent == tmp_path / ("figures" if written else "")
    unwritten = tmp_path / "models" / left.name
    unwritten.parent.mkdir()
    shutil.copy(left, unwritten)
    alive = left.with_name(f".unfinished-{socket.gethostname()}-{os.getpid()}-0.tmp")
    elsewhere = left.with_name(".unfinished-other-1-0.tmp")
    ended = left.name.rsplit("-", 2)[1]  # of a machine that is called like this one and that number
    namesake = left.with_name(f".unfinished-{socket.gethostname()}-{ended}-77-0.tmp")
    old = left.with_name(".unfinished-other-1-1.tmp")
    for path in (alive, elsewhere, namesake, old):
        path.touch()
    os.utime(old, (0, 0))
    write_report(tmp_path)
    assert set(tmp_path.rglob("*.tmp")) == {alive, elsewhere, namesake}
    assert contents(tmp_path) == contents(reported)


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(reported, tmp_path):
    shutil.copy(reported / "trials.sqlite", tmp_path)
    code = (
        "from pathlib import Path; from ratecli.report.write import write_report;"
        f"write_report(Path({str(tmp_path)!r}))"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
    assert contents(tmp_path) == contents(reported)


def test_texts_of_the_summary(reported):
    text = (reported / "summary.md").read_text(encoding="utf-8")
    assert text.startswith(
        "# quickstart\n\nMean ± half the width of the 95 % Student-t interval over n seeds."
    )
    assert "\n## Table 1 (test)\n" in text
    assert "\n## errors (train)\n" in text
    assert "\n## Satisfied constraints\n" in text


def test_without_a_ledger_nothing_is_written(tmp_path):
    with pytest.raises(FaultError):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []
