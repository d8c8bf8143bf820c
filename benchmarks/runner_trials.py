"""Trials of known length, for `runner.py`: functions that worker processes import."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ratecli.ledger.records import MeasuredValue, TrialResult

SPLITS = ("train", "validation", "test")
METRICS = ("objective", "violation.parity", "error", "ratio")
VALUES = tuple(
    MeasuredValue(variant, split, metric, 0.25)
    for variant in ("deterministic", "stochastic")
    for split in SPLITS
    for metric in METRICS
)
MODELS = {"deterministic": bytes(2000), "stochastic": bytes(4000)}


def spin(seconds: float) -> float:
    """So many seconds of processor time."""
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        pass
    return seconds


def trial(payload: tuple[str, float], given: Mapping[str, TrialResult]) -> TrialResult:
    """A trial of (key, seconds), with as many numbers and models as `majorize` leaves."""
    del given
    key, seconds = payload
    begun = time.perf_counter()
    spin(seconds)
    took = time.perf_counter() - begun
    info = {"rows": dict.fromkeys(SPLITS, 1000)}
    return TrialResult(key, "ok", "", took, info, values=VALUES, models=MODELS, encoding="{}")
