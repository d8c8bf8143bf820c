"""Checks of a plugin and their results."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
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
"""Yields why a case fails, and nothing if it passes.

The name of the function says what is checked, and its docstring how to fix what it finds.
"""
Cases = Callable[[Any], Iterable[tuple[str, Any]]]
"""Returns the cases of a subject that a check is called with, each with its name for messages."""
CheckTable = Mapping[Check, Cases]
"""Checks in their order, with the cases of each."""


def itself(subject: object) -> list[tuple[str, object]]:
    """Return the subject as the only case."""
    return [("", subject)]


def run_checks(
    subject: object, checks: CheckTable, required: Container[Check] = ()
) -> tuple[CheckResult, ...]:
    """Run checks on their cases, in order; if a required one fails, those after it are skipped."""
    results, is_broken = list[CheckResult](), False
    for check, cases in checks.items():
        name, mend = check.__name__.replace("_", " "), check.__doc__ or ""
        if is_broken:
            results.append(CheckResult(name, "skipped", "an earlier check failed"))
            continue
        state, reason = _run_check(check, cases, subject)
        results.append(CheckResult(name, state, reason, mend * (state in {"failed", "warning"})))
        is_broken = check in required and state == "failed"
    return tuple(results)


def _run_check(
    check: Check, cases: Cases, subject: object
) -> tuple[Literal["ok", "failed", "warning", "skipped"], str]:
    """Return the state and the first failure, else the first caution; an exception is a failure."""
    caution, where = "", ""
    try:
        for where, case in cases(subject):
            for reason in check(case):
                text = f"{where}: {reason}" if where else str(reason)
                if not isinstance(reason, Caution):
                    return "failed", text
                caution = caution or text
    except CheckSkippedError as error:
        return "skipped", str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  plugins may raise anything
        return "failed", f"{where}: {exception_line(error)}" if where else exception_line(error)
    return ("warning" if caution else "ok"), caution
