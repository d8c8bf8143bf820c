"""What the benchmarks share: timing, and Adult with its groups."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ratecli.rates.parser import parse_conditions
from ratecli.rates.scope import Scope

SCOPE = Scope(groups={name: parse_conditions(f"sex = {value}")
                      for name, value in (("women", "Female"), ("men", "Male"))})  # fmt: skip


def fastest(work: Callable[[], object], repeats: int = 1) -> float:
    """Least processor seconds of several runs: what the work takes when nothing is in its way."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def in_turn(works: dict[str, Callable[[], object]], repeats: int = 5) -> dict[str, np.ndarray]:
    """Processor seconds (repeats,) of each, run in turn: a machine's speed changes with time."""
    times = {name: np.zeros(repeats) for name in works}
    for k in range(repeats):
        for name, work in works.items():
            times[name][k] = fastest(work)
    return times


def ratio_text(times: np.ndarray, of: np.ndarray) -> str:
    """The median of ratios of runs in turn, and their range."""
    ratios = times / of
    return f"{np.median(ratios):.1f} ({ratios.min():.1f} to {ratios.max():.1f})"
