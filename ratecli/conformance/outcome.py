"""Checks of a plugin, their results, and the side effects that they look for."""

from __future__ import annotations

import io
import os
import pickle
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NoReturn

import numpy as np

from ratecli.errors import exception_line

CheckState = Literal["ok", "failed", "warning", "skipped"]

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND
CHANGE_EVENTS = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"}
IGNORED_PATHS = ("__pycache__", "/dev/", "/proc/")
"""Parts of paths that are ignored: caches of imports, and devices."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one check: `reason` says what was found unless `ok`, `mend` how to fix it."""

    name: str
    state: CheckState
    reason: str = ""
    mend: str = ""


@dataclass(frozen=True)
class OptimalityGap:
    """How close a solver's main classifier comes to the optimum of a tiny problem.

    Attributes
    ----------
    objective, violation
        Of its decisions on training rows.
    best
        The least objective of any rule, randomized or not, that uses the same inputs and violates
        the constraints by no more.
    line
        The least objective of a linear threshold that satisfies the constraints; NaN if none does.
    """

    problem: str
    status: str
    objective: float
    violation: float
    best: float
    line: float
    seconds: float


@dataclass(frozen=True)
class PluginReport:
    """All results for one plugin; `origin` is its package or module."""

    kind: str
    name: str
    origin: str
    checks: tuple[CheckResult, ...]
    gaps: tuple[OptimalityGap, ...] = ()

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        return tuple(check for check in self.checks if check.state == "failed")

    @property
    def holds(self) -> bool:
        return not self.failed

    def require(self) -> None:
        """Raise AssertionError with a list of the failed checks; for tests."""
        if not self.holds:
            lines = [f"{each.name}: {each.reason} ({each.mend})" for each in self.failed]
            raise AssertionError("\n".join([f"the {self.kind} '{self.name}' fails:", *lines]))


class CheckFailedError(Exception):
    """A check failed; the message is the reason."""


class CheckSkippedError(Exception):
    """A check does not apply; the message is the reason."""


class Caution(str):
    """A reason that makes a check a warning instead of a failure."""

    __slots__ = ()


@dataclass(frozen=True)
class PluginCheck:
    """A check: `reasons(subject)` yields why it fails, and nothing if it passes."""

    name: str
    mend: str
    reasons: Callable[[Any], Iterable[str]]

    def run(self, subject: object) -> CheckResult:
        """Run the check. The first failure counts; an exception fails a check, too."""
        try:
            reasons = list(self.reasons(subject))
        except CheckSkippedError as error:
            return CheckResult(self.name, "skipped", str(error))
        except CheckFailedError as error:
            reasons = [str(error)]
        except (Exception, SystemExit) as error:  # noqa: BLE001  plugins may raise anything
            reasons = [exception_line(error)]
        if not reasons:
            return CheckResult(self.name, "ok")
        failures = [reason for reason in reasons if not isinstance(reason, Caution)]
        reason = str([*failures, *reasons][0])
        return CheckResult(self.name, "failed" if failures else "warning", reason, self.mend)


def skip(reason: str) -> NoReturn:
    raise CheckSkippedError(reason)


def run_checks(subject: object, *stages: Iterable[PluginCheck]) -> tuple[CheckResult, ...]:
    """Run all checks of each stage; skip the stages after one with a failure."""
    results: list[CheckResult] = []
    for stage in stages:
        if any(result.state == "failed" for result in results):
            results += [
                CheckResult(each.name, "skipped", "an earlier check failed") for each in stage
            ]
        else:
            results += [check.run(subject) for check in stage]
    return tuple(results)


@dataclass
class SideEffects:
    """Side effects of some code.

    `written` has paths; `random` is whether the global random state of NumPy or Python changed.
    """

    printed: str = ""
    written: list[str] = field(default_factory=list)
    random: bool = False


_watching: list[SideEffects] = []


@contextmanager
def watch_side_effects() -> Iterator[SideEffects]:
    """Record the side effects of the block; may be nested."""
    _install_audit_hook()
    effects, output, before = SideEffects(), io.StringIO(), _global_random_state()
    _watching.append(effects)
    try:
        with redirect_stdout(output):
            yield effects
    finally:
        _watching.remove(effects)
        effects.printed, effects.random = output.getvalue(), _global_random_state() != before


def _global_random_state() -> bytes:
    return pickle.dumps((np.random.get_state(), random.getstate()))  # noqa: NPY002  global state


@cache
def _install_audit_hook() -> None:
    """Install the audit hook once: it cannot be removed, and does nothing unless watching."""
    sys.addaudithook(_on_audit_event)


def _on_audit_event(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching or (event != "open" and event not in CHANGE_EVENTS):
        return
    if not isinstance(arguments[0], str | bytes | os.PathLike):  # a file descriptor
        return
    path = os.fsdecode(arguments[0])
    reads = event == "open" and not (arguments[2] & WRITE_FLAGS)
    if not reads and not any(part in path for part in IGNORED_PATHS):
        _watching[-1].written.append(path)
