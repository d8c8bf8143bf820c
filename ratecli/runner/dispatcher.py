"""A schedule worked off by workers: who gets what, and what becomes of a trial whose worker died."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from ratecli.ledger.records import TrialResult
from ratecli.runner.messages import TaskMessage, WorkerAnswer, WorkerDeath, WorkerGroup
from ratecli.runner.schedule import ReadyTask, RecallResult, Schedule
from ratecli.runner.worker import TrialFunction, failure_result

MAX_WORKER_DEATHS = 2
"""How many workers may die of a trial."""

OnDone = Callable[[TrialResult], object]
OnStart = Callable[[str], object]
IsWanted = Callable[[str], bool]


@dataclass(frozen=True)
class Hooks:
    """What an executor may call beside a trial's function.

    `recall` gives the result of a trial that is needed but not among the tasks; `on_start` hears the
    key of each that starts; `wanted` says, when a trial's turn has come, whether to run it at all.
    """

    recall: RecallResult | None = None
    on_start: OnStart | None = None
    wanted: IsWanted | None = None

    def started(self, key: str) -> None:
        if self.on_start is not None:
            self.on_start(key)


NO_HOOKS = Hooks()


@dataclass
class TrialQueue:
    """Gives out the trials that are to be run, and hears how they end."""

    schedule: Schedule
    on_done: OnDone
    hooks: Hooks

    def take(self) -> ReadyTask | None:
        """The next trial to run; those that cannot be run, or need not, end here."""
        while ready := self.schedule.take():
            key = ready.task.key
            if self.hooks.wanted is not None and not self.hooks.wanted(key):
                self.schedule.finish(TrialResult(key, "error", "it is not wanted any more"))
            elif (blocked := ready.blocked()) is not None:
                self.end(blocked)
            else:
                return ready
        return None

    def end(self, result: TrialResult) -> None:
        self.on_done(result)
        self.schedule.finish(result)


class Dispatcher:
    """One run of some workers."""

    def __init__(self, desk: TrialQueue, workers: WorkerGroup, function: TrialFunction) -> None:
        self._desk = desk
        self._workers = workers
        self._function = function
        self._deaths: Counter[str] = Counter()
        self._out: dict[str, TaskMessage] = {}
        self._again: deque[TaskMessage] = deque()

    def work(self) -> None:
        """Until all is done. Whatever ends it early, an interrupt say, ends the workers as well."""
        try:
            while self._hand_out():
                for answer in self._workers.collect():
                    self._hear(answer)
        except BaseException:
            self._workers.kill()
            raise
        self._workers.dismiss()

    def _hand_out(self) -> bool:
        """Give work to whoever is free; False when all is done."""
        while self._workers.has_room() and (parcel := self._next()):
            self._out[parcel.key] = parcel
            self._workers.hand(parcel)
        return self._workers.is_busy()

    def _next(self) -> TaskMessage | None:
        if self._again:
            return self._again.popleft()
        while ready := self._desk.take():
            try:
                parcel = TaskMessage.of(ready, self._function)
            except Exception as error:  # noqa: BLE001  pickling raises what it likes
                self._desk.end(failure_result(ready.task.key, error))
                continue
            self._desk.hooks.started(parcel.key)
            return parcel
        return None

    def _hear(self, answer: WorkerAnswer) -> None:
        parcel = self._out.pop(answer.key)
        if isinstance(answer, WorkerDeath):
            self._deaths[answer.key] += answer.times
            if self._deaths[answer.key] < MAX_WORKER_DEATHS:
                self._again.append(parcel)
                return
            answer = answer.result()
        self._desk.end(answer)
