"""Functions that worker processes import: trials that behave in different ways."""

import fcntl
import hashlib
import itertools
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.records import MeasuredValue, TrialResult

KEPT = []


def numbers(payload, given):
    """Return numbers that depend on the key and the dependencies only."""
    key, seconds = payload
    time.sleep(seconds)
    seen = "".join(str(value.value) for need in given for value in given[need].values)
    digest = hashlib.sha256(f"{key}{seen}".encode()).digest()
    values = tuple(
        MeasuredValue("last", "test", f"m{i}", byte / 7) for i, byte in enumerate(digest)
    )
    return TrialResult(key, "ok", values=values, models={"last": digest})


def act(payload, given):
    """Do what `payload` names: [key, what, detail]."""
    key, what, detail = payload
    return globals()[f"_{what}"](key, detail, given)


def _fine(key, detail, given):
    info = {"needs": {need: given[need].info["detail"] for need in given}, "detail": detail}
    return TrialResult(key, "ok", info=info)


def _raise(_key, detail, _given):
    raise ValueError(detail)


def _fault(_key, _detail, _given):
    raise FaultError([Diagnostic("E402", "cannot fetch\nadult"), Diagnostic("E403", "wrong hash")])


def _leave(_key, _detail, _given):
    sys.exit("enough")


def _vanish(_key, detail, _given):
    os._exit(detail)


def _killed(_key, _detail, _given):
    os.kill(os.getpid(), signal.SIGKILL)


def _vanish_once(key, detail, given):
    marker = Path(detail)
    if not marker.exists():
        marker.touch()
        os._exit(3)
    return _fine(key, detail, given)


def _unstorable(key, _detail, _given):
    return TrialResult(key, "ok", info={"what": object()})


def _process(key, _detail, _given):
    begun = time.monotonic()
    time.sleep(0.02)
    return TrialResult(key, "ok", info={"pid": os.getpid(), "span": [begun, time.monotonic()]})


def _lock(key, detail, _given):
    """Hold a lock while this process lives."""
    with Path(detail).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        Path(f"{detail}.held").touch()
        time.sleep(600)
    return TrialResult(key, "ok")


def _spin(_key, _detail, _given):
    """Loop in C without releasing the global interpreter lock."""
    sum(itertools.repeat(0))


def _hoard(key, detail, _given):
    """Hold this many MiB while this process lives; with 200 MiB in all, wait to be killed."""
    KEPT.extend(b"x" * 2**20 for _ in range(detail))
    time.sleep(600 if len(KEPT) > 200 else 0.1)  # so that the memory is measured
    return TrialResult(key, "ok", info={"pid": os.getpid()})


def _fell(key, detail, _given):
    """Kill the parent process; detail: [how many times, log file]."""
    times, file = detail
    with Path(file).open("a") as log:
        log.write(f"{os.getppid()}\n")
    if len(Path(file).read_text().split()) <= times:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return TrialResult(key, "ok")


def _threads(key, _detail, _given):
    # Imported here, as solvers do: libraries loaded after the limits are set must obey them too.
    import numpy as np  # noqa: PLC0415
    import scipy.linalg  # noqa: PLC0415
    from threadpoolctl import threadpool_info  # noqa: PLC0415

    A = np.random.default_rng(0).standard_normal((700, 700))
    value = float(np.sum(scipy.linalg.inv(A @ A.T + np.eye(700))))
    threads = [library["num_threads"] for library in threadpool_info()]
    return TrialResult(
        key, "ok", info={"threads": threads}, values=(MeasuredValue("a", "b", "c", value),)
    )


def reading(job, given):
    """Run a real trial; return how often its process has read and stacked tables so far."""
    from ratecli.runner.trial import run_trial  # noqa: PLC0415  slow
    from ratecli.sampling import rows  # noqa: PLC0415

    result = run_trial(job, given)
    counts = [cached.cache_info().misses for cached in (rows._read_table, rows._stack_tables)]
    return replace(result, info={"pid": os.getpid(), "reads": counts})
