"""A trial's run, in whichever process: one thread, and every exception becomes a result."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from threadpoolctl import threadpool_limits

from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.records import TrialResult
from ratecli.ledger.store import result_documents

TrialFunction = Callable[[Any, Mapping[str, TrialResult]], TrialResult]
"""Runs one trial: (payload, results of the trials it needs by key) -> its result."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
ORPHAN_SECONDS = 0.5


def run_checked(
    function: TrialFunction, payload: Any, given: Mapping[str, TrialResult]
) -> TrialResult:
    """Run a trial; what cannot be stored fails here, where only this trial does."""
    result = function(payload, given)
    result_documents(result)
    return result


def run_guarded(key: str, run: Callable[[], TrialResult]) -> TrialResult:
    """Run a trial; whatever it raises, save an interrupt, is its result."""
    begun = time.perf_counter()
    try:
        return run()
    except (Exception, SystemExit) as error:  # noqa: BLE001  one trial must not end the others
        return failure_result(key, error, time.perf_counter() - begun)


def failure_result(key: str, error: BaseException, seconds: float = 0.0) -> TrialResult:
    """The result of a trial that raised `error`."""
    if isinstance(error, FaultError):
        reason = "; ".join(map(_failure_reason, error.faults))
    else:
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
    info = {"traceback": "".join(traceback.format_exception(error))}
    return TrialResult(key, "error", " ".join(reason.split()), seconds, info)


def _failure_reason(fault: Diagnostic) -> str:
    """A failed trial is an E501 itself: only other codes add something."""
    return fault.message if fault.code == "E501" else f"{fault.code}: {fault.message}"


@contextmanager
def limit_to_one_thread() -> Iterator[None]:
    """Numbers that do not depend on the number of workers: sums are added up by one thread.

    The variables are for libraries loaded later, the limits for those already there.
    """
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def serve_trials(pipe: Connection, parent: int, environment: Mapping[str, str]) -> None:
    """The life of a worker process: answer until the other end of the pipe is gone.

    Before each answer it sends nothing once, when all is imported that the trial needs.
    """
    # Ctrl-C reaches every process of the terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(environment)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    with limit_to_one_thread(), suppress(EOFError, ConnectionError):
        while True:
            key, content = pipe.recv()
            run = _read(key, content)
            pipe.send_bytes(b"")
            pipe.send_bytes(_run_and_answer(key, run))


def _read(key: str, content: bytes) -> Callable[[], TrialResult]:
    """A trial, with all imported that it needs."""
    try:
        # The bytes come from the parent, through a pipe that nobody else has.
        function, payload, given = pickle.loads(content)  # noqa: S301
    except Exception as error:  # noqa: BLE001  unpickling raises what it likes
        return partial(failure_result, key, error)
    return partial(run_checked, function, payload, given)


def _run_and_answer(key: str, run: Callable[[], TrialResult]) -> bytes:
    result = run_guarded(key, run)
    try:
        return pickle.dumps(result)
    except Exception as error:  # noqa: BLE001  pickling raises what it likes
        return pickle.dumps(failure_result(key, error))


def _exit_with_parent(parent: int) -> None:
    """End this process soon after its parent did, even in the middle of a trial."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_SECONDS)
    os._exit(1)
