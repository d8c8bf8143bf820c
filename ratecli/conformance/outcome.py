"""What checks find: each holds, fails with a reason and a way to mend it, or is passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from ratecli.errors import FaultError

State = Literal["ok", "failed", "warning", "skipped"]
S = TypeVar("S")


@dataclass(frozen=True)
class Check:
    """One check. `reason` says what was found unless it is `ok`, `mend` what would be right."""

    name: str
    state: State
    reason: str = ""
    mend: str = ""


@dataclass(frozen=True)
class Gap:
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
class Report:
    """All that was found of one plugin; `origin` is its package, or where it stands."""

    kind: str
    name: str
    origin: str
    checks: tuple[Check, ...]
    gaps: tuple[Gap, ...] = ()

    @property
    def failed(self) -> tuple[Check, ...]:
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


class FailsError(Exception):
    """A check does not hold, and why."""


class DoubtError(Exception):
    """A check need not hold, and does not: why that may matter."""


class SkipsError(Exception):
    """A check cannot be made, and why that is no fault."""


@dataclass(frozen=True)
class Trial(Generic[S]):
    """A check to be made: `look` returns where all is well, else raises one of the above."""

    name: str
    mend: str
    look: Callable[[S], None]


def looked(trials: Iterable[Trial[S]], subject: S) -> tuple[Check, ...]:
    """Make all checks; an exception that is none of ours fails the check, too."""
    return tuple(_look(trial, subject) for trial in trials)


def _look(trial: Trial[S], subject: S) -> Check:
    try:
        trial.look(subject)
    except SkipsError as error:
        return Check(trial.name, "skipped", str(error))
    except DoubtError as error:
        return Check(trial.name, "warning", str(error), trial.mend)
    except FailsError as error:
        return Check(trial.name, "failed", str(error), trial.mend)
    except (Exception, SystemExit) as error:  # noqa: BLE001  what is looked at is code of others
        return Check(trial.name, "failed", said(error), trial.mend)
    return Check(trial.name, "ok")


def said(error: BaseException) -> str:
    """An exception on one line."""
    if isinstance(error, FaultError):
        return "; ".join(f"{fault.code}: {fault.message}" for fault in error.faults)
    return " ".join(f"{type(error).__name__}: {error}".rstrip(": ").split())
