import io
import os
import pty
import select
from contextlib import redirect_stderr

import pytest

from ratecli.ledger.records import TrialResult
from ratecli.runner import run
from ratecli.runner.run import RunProgress

BAD = TrialResult("b", "error", "ValueError: [bold]no[/bold]")
FAILURE = "error[E501]: trial b: ValueError: [bold]no[/bold]"


def name(key):
    return f"trial {key}"


def shown(*results, total=12, cached=3, quiet=False):
    out = io.StringIO()
    with redirect_stderr(out), RunProgress(total, cached, name, quiet=quiet) as display:
        for result in results:
            display.start(result.key)
            display.done(result)
    return out.getvalue().splitlines()


OK = [TrialResult(str(i), "ok", seconds=0.25) for i in range(8)]
SLOW = TrialResult("t", "timeout", "after 60 s")


@pytest.mark.parametrize(
    ("results", "quiet", "lines"),
    [
        ([BAD, *OK], False, [FAILURE, "12/12 (3 stored before, 1 failed)  trial 7: ok, 0.2 s"]),
        ([*OK, BAD, SLOW], True, [FAILURE, "error[E501]: trial t: after 60 s"]),
        ([], False, []),
    ],
)
def test_quick_trials_give_one_last_line_and_every_failure(results, quiet, lines):
    assert shown(*results, quiet=quiet) == lines


def test_slow_trials_give_a_line_each(monkeypatch):
    monkeypatch.setattr(run, "LINE_SECONDS", 0.0)
    results = [TrialResult("a", "ok"), TrialResult("c", "infeasible")]
    assert shown(*results, total=2, cached=0) == [
        "1/2  trial a: ok, 0.0 s",
        "2/2  trial c: infeasible, 0.0 s",
    ]


@pytest.fixture
def terminal(monkeypatch):
    """A terminal to write to, and a function that closes it and tells all that came out."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    here, there = pty.openpty()

    def screen():
        out.flush()
        text = b""
        while select.select([here], [], [], 0.2)[0]:
            text += os.read(here, 4096)
        return text.decode()

    with os.fdopen(there, "w") as out:
        yield out, screen
    os.close(here)


def test_a_terminal_gets_a_bar(terminal):
    out, screen = terminal
    with redirect_stderr(out), RunProgress(4, 1, name) as display:
        display._bar.refresh()
        for result in (TrialResult("a", "ok"), BAD):
            display.start(result.key)
            display._bar.refresh()
            display.done(result)
    text = screen()
    assert "1/4 (1 stored before)" in text
    assert "3/4 (1 stored before, 1 failed)" in text
    assert "trial a" in text
    assert FAILURE in text
