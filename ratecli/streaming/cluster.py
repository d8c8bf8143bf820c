"""Where the partitions of a sum are added up: one after the other, or on idle workers of a Dask cluster.

A trial that runs for a cluster is told its scheduler's address (`SCHEDULER_VARIABLE`), and shares its passes over
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

from ratecli.streaming.stream_protocol import SumArrays

SCHEDULER_VARIABLE = "RATECLI_SCHEDULER"
"""The variable that holds the scheduler's address in the process of a trial on a cluster."""
PARTITIONS_AHEAD = 4
"""Partitions that are asked of each worker at once."""


def map_partitions(
    function: Callable[[int], SumArrays], starts: Sequence[int]
) -> Iterable[SumArrays]:
    """The function of each start, in their order."""
    address = os.environ.get(SCHEDULER_VARIABLE)
    if address is None or len(starts) < 2:
        return map(function, starts)
    client = cluster_client(address)
    idle = [worker for worker, tasks in client.processing().items() if not tasks]
    return _map_on_cluster(client, idle, function, starts) if idle else map(function, starts)


@lru_cache(maxsize=1)
def cluster_client(address: str) -> Any:
    """Kept for the many passes of a trial, and those of the next."""
    from distributed import Client  # noqa: PLC0415  an optional extra

    return Client(address, set_as_default=False)


def _map_on_cluster(
    client: Any, idle: list[str], function: Callable[[int], SumArrays], starts: Sequence[int]
) -> Iterator[SumArrays]:
    """Every so manieth partition is added up here meanwhile."""
    whole = client.scatter(function, workers=idle, broadcast=True, hash=False)
    hands = len(idle) + 1
    for k in range(0, len(starts), PARTITIONS_AHEAD * hands):
        some = starts[k : k + PARTITIONS_AHEAD * hands]
        asked = {
            start: client.submit(_sum_partition, whole, start, workers=idle, pure=False)
            for at, start in enumerate(some)
            if at % hands
        }
        own = {start: function(start) for start in some if start not in asked}
        for start in some:
            yield own[start] if start in own else _fetch_sums(asked[start], function, start)


def _fetch_sums(future: Any, function: Callable[[int], SumArrays], start: int) -> SumArrays:
    try:
        found: SumArrays = future.result()
    except Exception:  # noqa: BLE001  a worker that died, or does not see the rows: they are here as well
        return function(start)
    return found


def _sum_partition(function: Callable[[int], SumArrays], start: int) -> SumArrays:
    with threadpool_limits(limits=1):  # numbers do not hang on how many threads a worker has
        return function(start)
