"""The checks of a plugin, their results, and the report of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from ratecli.errors import FaultError

CheckState = Literal["ok", "failed", "warning", "skipped"]
S = TypeVar("S")


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
            raise AssertionError(
                "\n".join([f"the {self.kind} '{self.name}' does not fit:", *lines])
            )


class CheckFailedError(Exception):
    """A check failed; the message is the reason."""


class CheckWarningError(Exception):
    """A check failed that a plugin need not pass; the message explains why it may matter."""


class CheckSkippedError(Exception):
    """A check does not apply; the message is the reason."""


@dataclass(frozen=True)
class PluginCheck(Generic[S]):
    """A check: `look` returns if it passes, else raises one of the exceptions above."""

    name: str
    mend: str
    look: Callable[[S], None]


def run_checks(trials: Iterable[PluginCheck[S]], subject: S) -> tuple[CheckResult, ...]:
    """Run all checks; any other exception fails a check, too."""
    return tuple(_run_check(trial, subject) for trial in trials)


def _run_check(trial: PluginCheck[S], subject: S) -> CheckResult:
    try:
        trial.look(subject)
    except CheckSkippedError as error:
        return CheckResult(trial.name, "skipped", str(error))
    except CheckWarningError as error:
        return CheckResult(trial.name, "warning", str(error), trial.mend)
    except CheckFailedError as error:
        return CheckResult(trial.name, "failed", str(error), trial.mend)
    except (Exception, SystemExit) as error:  # noqa: BLE001  plugins may raise anything
        return CheckResult(trial.name, "failed", exception_line(error), trial.mend)
    return CheckResult(trial.name, "ok")


def exception_line(error: BaseException) -> str:
    """Return an exception as one line of text."""
    if isinstance(error, FaultError):
        return "; ".join(f"{fault.code}: {fault.message}" for fault in error.faults)
    return " ".join(f"{type(error).__name__}: {error}".rstrip(": ").split())
