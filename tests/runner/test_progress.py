import io
import time
from contextlib import redirect_stderr

import pytest

from ratecli.experiment.forecast import TimeLeft
from ratecli.ledger.records import PlannedTrial, TrialResult
from ratecli.runner import run
from ratecli.runner.run import RunProgress

BAD = TrialResult("b", "error", "ValueError: [bold]no[/bold]")
STARTED = " 3/12 (3 stored before)  started"
FAILURE = "error[E501]: trial b: ValueError: [bold]no[/bold]"


def name(key):
    return f"trial {key}"


def left(*keys, **seconds):
    """Return the time left of trials of one algorithm, with the times that the file states."""
    trials = [PlannedTrial(key, "m", "majorize", {}, {}, 0, {}) for key in [*keys, *seconds]]
    return TimeLeft(trials, seconds, jobs=1)


def shown(*results, total=12, cached=3, quiet=False, **seconds):
    """Return the lines of trials that run one after the other."""
    out, time_left = io.StringIO(), left(*(result.key for result in results), **seconds)
    begun, passed = time.monotonic(), 0.0
    with redirect_stderr(out), RunProgress(total, cached, name, time_left, quiet=quiet) as display:
        for result in results:
            passed += result.seconds
            display._begun = min(time.monotonic(), begun) - passed
            display.done(result)
    return out.getvalue().splitlines()


OK = [TrialResult(str(i), "ok", seconds=0.25) for i in range(8)]
SLOW = TrialResult("t", "timeout", "after 60 s")


@pytest.mark.parametrize(
    ("results", "quiet", "lines"),
    [
        (
            [BAD, *OK],
            False,
            [STARTED, FAILURE, "12/12 (3 stored before, 1 failed)  trial 7: ok, 0.2 s"],
        ),
        ([*OK, BAD, SLOW], True, [FAILURE, "error[E501]: trial t: after 60 s"]),
    ],
)
def test_quick_trials_give_a_first_and_a_last_line_and_every_failure(results, quiet, lines):
    assert shown(*results, quiet=quiet) == lines


def test_nothing_is_printed_without_trials_to_run():
    assert shown(total=3) == []


def test_slow_trials_give_a_line_each(monkeypatch):
    monkeypatch.setattr(run, "LINE_SECONDS", 0.0)
    results = [TrialResult("a", "ok", seconds=40), TrialResult("c", "infeasible", seconds=60), BAD]
    assert shown(*results, total=4, cached=0, later=70) == [
        "0/4  started; about 5 min left",
        "1/4  trial a: ok, 40.0 s; about 2 min left",
        "2/4  trial c: infeasible, 60.0 s; about 2 min left",
        FAILURE,
        "3/4 (1 failed)  trial b: error, 0.0 s; about 50 s left",
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_line_that_changes(monkeypatch):
    monkeypatch.setenv("COLUMNS", "42")
    monkeypatch.setattr(run, "TERMINAL_SECONDS", 0.0)
    time_left = left("a", a=600, b=600, c=600)
    with redirect_stderr(Terminal()) as out, RunProgress(4, 1, name, time_left) as display:
        for result in (TrialResult("a", "ok"), BAD):
            display.done(result)
    assert out.getvalue().split("\r\x1b[K") == [
        "",
        "1/4 (1 stored before)  started; about 30 ",
        "2/4 (1 stored before)  trial a: ok, 0.0 s",
        f"{FAILURE}\n",
        "3/4 (1 stored before, 1 failed)  trial b:",
        "",
    ]
