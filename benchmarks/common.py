"""What the benchmarks share: timing, and Adult with its groups."""

from __future__ import annotations

import time
from collections.abc import Callable

from ratecli.rates.parser import parse_conditions
from ratecli.rates.resolve import Scope

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
