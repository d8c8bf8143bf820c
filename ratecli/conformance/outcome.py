"""What checks find: each holds, fails with a reason and a way to mend it, or is passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from ratecli.errors import FaultError

CheckState = Literal["ok", "failed", "warning", "skipped"]
S = TypeVar("S")


@dataclass(frozen=True)
class CheckResult:
    """One check. `reason` says what was found unless it is `ok`, `mend` what would be right."""

    name: str
    state: CheckState
    reason: str = ""
    mend: str = ""


@dataclass(frozen=True)
class OptimalityGap:
    """How near a solver's main classifier comes to the optimum of a tiny problem.

    Attributes
    ----------
    objective, violation
        Of its decisions on training rows.
    best
        The least objective of any rule, randomized or not, that sees what it sees, and breaks no constraint
        by more than it does.
    line
        The least of a linear threshold that meets the constraints; NaN where none does.
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
    """All that was found of one plugin; `origin` is its package, or where it stands."""

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
        """For tests: raises AssertionError that lists what fails."""
        if not self.holds:
            lines = [f"{each.name}: {each.reason} ({each.mend})" for each in self.failed]
            raise AssertionError(
                "\n".join([f"the {self.kind} '{self.name}' does not fit:", *lines])
            )


class CheckFailedError(Exception):
    """A check does not hold, and why."""


class CheckWarningError(Exception):
    """A check need not hold, and does not: why that may matter."""


class CheckSkippedError(Exception):
    """A check cannot be made, and why that is no fault."""


@dataclass(frozen=True)
class PluginCheck(Generic[S]):
    """A check to be made: `look` returns where all is well, else raises one of the above."""

    name: str
    mend: str
    look: Callable[[S], None]


def run_checks(trials: Iterable[PluginCheck[S]], subject: S) -> tuple[CheckResult, ...]:
    """Make all checks; an exception that is none of ours fails the check, too."""
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
    except (Exception, SystemExit) as error:  # noqa: BLE001  what is looked at is code of others
        return CheckResult(trial.name, "failed", exception_line(error), trial.mend)
    return CheckResult(trial.name, "ok")


def exception_line(error: BaseException) -> str:
    """An exception on one line."""
    if isinstance(error, FaultError):
        return "; ".join(f"{fault.code}: {fault.message}" for fault in error.faults)
    return " ".join(f"{type(error).__name__}: {error}".rstrip(": ").split())
