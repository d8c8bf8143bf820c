"""Where the partitions of a sum are added up: one after the other, or on idle workers of a Dask cluster.

A trial that runs for a cluster is told its scheduler's address (`SCHEDULER`), and shares its passes over
the rows with those workers that have nothing to do. Only with those: one at a trial of its own would
keep a partition waiting, and two trials could then wait for each other. What was idle when it was asked
can only be at a trial that began later, so that nobody waits in a circle.

Workers must see the data folder under the same name. Sums of partitions come back in their order, so that
numbers are those of a single process, bit for bit; a partition that a worker fails at is added up here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from threadpoolctl import threadpool_limits

from ratecli.streaming.stream_protocol import Sums

SCHEDULER = "RATECLI_SCHEDULER"
"""The variable that holds the scheduler's address in the process of a trial on a cluster."""
AHEAD = 4
"""Partitions that are asked of each worker at once."""


def over(function: Callable[[int], Sums], starts: Sequence[int]) -> Iterable[Sums]:
    """The function of each start, in their order."""
    address = os.environ.get(SCHEDULER)
    if address is None or len(starts) < 2:
        return map(function, starts)
    client = cluster_client(address)
    idle = [worker for worker, tasks in client.processing().items() if not tasks]
    return _shared(client, idle, function, starts) if idle else map(function, starts)


@lru_cache(maxsize=1)
def cluster_client(address: str) -> Any:
    """Kept for the many passes of a trial, and those of the next."""
    from distributed import Client  # noqa: PLC0415  an optional extra

    return Client(address, set_as_default=False)


def _shared(
    client: Any, idle: list[str], function: Callable[[int], Sums], starts: Sequence[int]
) -> Iterator[Sums]:
    """Every so manieth partition is added up here meanwhile."""
    whole = client.scatter(function, workers=idle, broadcast=True, hash=False)
    hands = len(idle) + 1
    for k in range(0, len(starts), AHEAD * hands):
        some = starts[k : k + AHEAD * hands]
        asked = {
            start: client.submit(_one, whole, start, workers=idle, pure=False)
            for at, start in enumerate(some)
            if at % hands
        }
        own = {start: function(start) for start in some if start not in asked}
        for start in some:
            yield own[start] if start in own else _fetched(asked[start], function, start)


def _fetched(future: Any, function: Callable[[int], Sums], start: int) -> Sums:
    try:
        found: Sums = future.result()
    except Exception:  # noqa: BLE001  a worker that died, or does not see the rows: they are here as well
        return function(start)
    return found


def _one(function: Callable[[int], Sums], start: int) -> Sums:
    with threadpool_limits(limits=1):  # numbers do not hang on how many threads a worker has
        return function(start)
