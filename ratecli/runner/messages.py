"""What goes to a worker and what may come back."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Protocol

from ratecli.experiment.limits import TrialLimits
from ratecli.ledger.records import TrialResult
from ratecli.runner.schedule import ReadyTask
from ratecli.runner.worker import TrialFunction


@dataclass(frozen=True)
class TaskMessage:
    """A trial as it goes to a worker: its key, how it is run (pickled), and what it may take."""

    key: str
    content: bytes
    limits: TrialLimits

    @classmethod
    def of(cls, ready: ReadyTask, function: TrialFunction) -> TaskMessage:
        """Raises what pickling raises."""
        content = pickle.dumps((function, ready.task.payload, dict(ready.given)))
        return cls(ready.task.key, content, ready.task.limits)


@dataclass(frozen=True)
class WorkerDeath:
    """A worker ended before it answered; `times` is how many did that the trial was given to."""

    key: str
    how: str
    times: int = 1

    @classmethod
    def by(cls, key: str, exit_code: int | None) -> WorkerDeath:
        """Of a process: it was killed where the exit code is negative."""
        killed = exit_code is not None and exit_code < 0
        return cls(key, f"signal {-(exit_code or 0)}" if killed else f"exit code {exit_code}")

    def result(self) -> TrialResult:
        """How a trial ends whose workers died."""
        hint = "out of memory, or a crash in a compiled library?"
        reason = f"the worker process died each time it was tried ({self.how}); {hint}"
        return TrialResult(self.key, "error", reason)


WorkerAnswer = TrialResult | WorkerDeath


class WorkerGroup(Protocol):
    """Those who run trials side by side, wherever they are."""

    def has_room(self) -> bool:
        """Whether one more trial would begin at once."""

    def is_busy(self) -> bool:
        """Whether an answer is still to come."""

    def hand(self, parcel: TaskMessage) -> None:
        """Give a trial to a free worker."""

    def collect(self) -> list[WorkerAnswer]:
        """Wait for some answers, at least one."""

    def dismiss(self) -> None:
        """All is done."""

    def kill(self) -> None:
        """End at once what runs."""
