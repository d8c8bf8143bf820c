"""Run a trial in any process: in a single thread, with every exception turned into a result."""

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
"""Runs one trial: (payload, results of the trials it depends on by key) -> its result."""
TrialRun = Callable[[], TrialResult]
"""Runs a trial whose arguments are known."""

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
    """Run a trial and check that its result can be stored, so that only this trial may fail."""
    result = function(payload, given)
    result_documents(result)
    return result


def run_guarded(key: str, run: TrialRun) -> TrialResult:
    """Run a trial and convert any exception except KeyboardInterrupt into an error result."""
    begun = time.perf_counter()
    try:
        return run()
    except (Exception, SystemExit) as error:  # noqa: BLE001  one trial must not end the others
        return failure_result(key, error, time.perf_counter() - begun)


def failure_result(key: str, error: BaseException, seconds: float = 0.0) -> TrialResult:
    """Return the result of a trial that raised `error`."""
    if isinstance(error, FaultError):
        reason = "; ".join(map(_failure_reason, error.faults))
    else:
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
    info = {"traceback": "".join(traceback.format_exception(error))}
    return TrialResult(key, "error", " ".join(reason.split()), seconds, info)


def _failure_reason(fault: Diagnostic) -> str:
    """Return the message, with its code unless that is E501, which every failed trial has."""
    return fault.message if fault.code == "E501" else f"{fault.code}: {fault.message}"


@contextmanager
def limit_to_one_thread() -> Iterator[None]:
    """Limit numerical libraries to one thread, so that results do not depend on the thread count.

    The environment variables apply to libraries loaded later, `threadpool_limits` to loaded ones.
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
    """Run a worker process: answer requests until the other end of the pipe closes.

    An empty message precedes each answer, after everything that the trial needs has been imported.
    """
    # Ctrl-C reaches every process of the terminal; the parent decides how to handle it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(environment)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    with limit_to_one_thread(), suppress(EOFError, ConnectionError):
        while True:
            key, content = pipe.recv()
            try:  # imports everything that the trial needs; the bytes come from the parent
                run = pickle.loads(content)  # noqa: S301
            except Exception as error:  # noqa: BLE001  unpickling may raise anything
                run = partial(failure_result, key, error)
            pipe.send_bytes(b"")
            result = run_guarded(key, run)
            try:
                answer = pickle.dumps(result)
            except Exception as error:  # noqa: BLE001  pickling may raise anything
                answer = pickle.dumps(failure_result(key, error))
            pipe.send_bytes(answer)


def _exit_with_parent(parent: int) -> None:
    """End this process soon after its parent ended, even during a trial."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_SECONDS)
    os._exit(1)
