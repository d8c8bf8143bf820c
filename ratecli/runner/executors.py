"""Where trials run: in this process or in several. The numbers are the same."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ratecli.runner.crew import Crew, Death, pack
from ratecli.runner.records import TrialResult
from ratecli.runner.schedule import Ready, Recall, Schedule, Task
from ratecli.runner.worker import Function, attempt, failure, one_thread, run_checked

TRIES = 2
"""How many workers may die of a trial."""

OnDone = Callable[[TrialResult], object]
OnStart = Callable[[str], object]


@dataclass(frozen=True)
class Hooks:
    """What an executor may call beside a trial's function.

    `recall` gives the result of a trial that is needed but not among the tasks; `on_start` hears the
    key of each that starts.
    """

    recall: Recall | None = None
    on_start: OnStart | None = None


NO_HOOKS = Hooks()


class Executor(Protocol):
    """Runs tasks in an order in which each finds the results that it needs."""

    def run(
        self, tasks: Iterable[Task], function: Function, on_done: OnDone, hooks: Hooks = NO_HOOKS
    ) -> None:
        """Call `on_done` with each task's result, in this thread, as soon as it is there.

        Exceptions of a trial become its result; those of `on_done` and interrupts end the run.
        """


@dataclass(frozen=True)
class Serial:
    """One trial after the other, here."""

    def run(
        self, tasks: Iterable[Task], function: Function, on_done: OnDone, hooks: Hooks = NO_HOOKS
    ) -> None:
        schedule = Schedule(tasks, hooks.recall)
        with one_thread():
            while ready := schedule.take():
                result = ready.blocked()
                if result is None:
                    _tell(hooks.on_start, ready)
                    run = partial(run_checked, function, ready.task.payload, ready.given)
                    result = attempt(ready.task.key, run)
                on_done(result)
                schedule.finish(result)


@dataclass(frozen=True)
class Processes:
    """Up to `jobs` trials at once, each in a process that runs many.

    A trial whose worker dies is tried once more; no other trial is touched by the death.
    """

    jobs: int

    def run(
        self, tasks: Iterable[Task], function: Function, on_done: OnDone, hooks: Hooks = NO_HOOKS
    ) -> None:
        schedule = Schedule(tasks, hooks.recall)
        crew = Crew(self.jobs, function)
        try:
            _Shift(schedule, crew, on_done, hooks.on_start).work()
        except BaseException:
            crew.kill()
            raise
        crew.dismiss()


class _Shift:
    """One run of a crew."""

    def __init__(
        self, schedule: Schedule, crew: Crew, on_done: OnDone, on_start: OnStart | None
    ) -> None:
        self._schedule = schedule
        self._crew = crew
        self._on_done = on_done
        self._on_start = on_start
        self._deaths: Counter[str] = Counter()
        self._again: deque[Ready] = deque()

    def work(self) -> None:
        while self._hand_out():
            for ready, answer in self._crew.collect():
                if isinstance(answer, TrialResult):
                    self._end(answer)
                else:
                    self._mourn(ready, answer)

    def _hand_out(self) -> bool:
        """Give work to whoever is free; False when all is done."""
        while self._crew.has_room() and (ready := self._next()):
            result = ready.blocked()
            if result is None:
                result = self._start(ready)
            if result is not None:
                self._end(result)
        return self._crew.is_busy()

    def _next(self) -> Ready | None:
        return self._again.popleft() if self._again else self._schedule.take()

    def _start(self, ready: Ready) -> TrialResult | None:
        """Hand a task over; a result if it cannot be sent."""
        try:
            blob = pack(ready)
        except Exception as error:  # noqa: BLE001  pickling raises what it likes
            return failure(ready.task.key, error)
        self._crew.hand(ready, blob)
        _tell(self._on_start, ready)
        return None

    def _mourn(self, ready: Ready, death: Death) -> None:
        self._deaths[ready.task.key] += 1
        if self._deaths[ready.task.key] < TRIES:
            self._again.append(ready)
        else:
            self._end(death.result())

    def _end(self, result: TrialResult) -> None:
        self._on_done(result)
        self._schedule.finish(result)


def _tell(on_start: OnStart | None, ready: Ready) -> None:
    if on_start is not None:
        on_start(ready.task.key)
