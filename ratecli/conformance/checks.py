"""Checks of a plugin, their results, and the side effects that they look for."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from ratecli.errors import exception_line


@dataclass(frozen=True)
class CheckResult:
    """The result of one check: `reason` says what was found unless `ok`, `mend` how to fix it."""

    name: str
    state: Literal["ok", "failed", "warning", "skipped"]
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
        the constraints by at most as much.
    """

    problem: str
    status: str
    objective: float
    violation: float
    best: float
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
        lines = [f"{each.name}: {each.reason} ({each.mend})" for each in self.failed]
        assert self.holds, "\n".join([f"the {self.kind} '{self.name}' fails:", *lines])


class CheckSkippedError(Exception):
    """A check does not apply; the message is the reason."""


class Caution(str):
    """A reason that makes a check a warning instead of a failure."""

    __slots__ = ()


Check = Callable[[Any], Iterable[str]]
"""Yields why a subject fails, and nothing if it passes.

The name of the function says what is checked, and its docstring how to fix what it finds.
"""


def run_checks(
    subject: object, required: Sequence[Check], others: Sequence[Check]
) -> tuple[CheckResult, ...]:
    """Run checks in their order; if a required one fails, those after it are skipped."""
    results, is_broken = list[CheckResult](), False
    for check in (*required, *others):
        skipped = CheckResult(_name(check), "skipped", "an earlier check failed")
        results.append(skipped if is_broken else run_check(check, subject))
        is_broken |= check in required and results[-1].state == "failed"
    return tuple(results)


def _name(check: Check) -> str:
    return check.__name__.replace("_", " ")


def run_check(check: Check, subject: object) -> CheckResult:
    """Run a check. The first failure counts; an exception fails a check, too."""
    name, mend, reasons = _name(check), check.__doc__ or "", list[str]()
    try:
        for reason in check(subject):  # keeps those before an exception
            reasons.append(reason)
    except CheckSkippedError as error:
        return CheckResult(name, "skipped", str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  plugins may raise anything
        reasons.append(exception_line(error))
    if not reasons:
        return CheckResult(name, "ok")
    failures = [reason for reason in reasons if not isinstance(reason, Caution)]
    state: Literal["failed", "warning"] = "failed" if failures else "warning"
    return CheckResult(name, state, str([*failures, *reasons][0]), mend)


@contextmanager
def watch_side_effects() -> Iterator[list[str]]:
    """Run the block in an empty folder; add a sentence for each of its side effects to the list."""
    effects: list[str] = []
    with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(io.StringIO()) as output:
        yield effects
        effects += [f"it writes to '{each.name}'" for each in Path(folder).iterdir()]
    if printed := output.getvalue().strip():
        effects.append(f"it prints '{printed[:40]}'")
