"""Where the partitions of a sum are added up: one after the other, or on the workers of a Dask cluster.

A cluster is asked where the trial itself runs on one: its other workers then share the passes over the
rows. They must see the data folder under the same name. Sums of partitions come back in their order, so
that numbers are those of a single process, bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

from ratecli.models.stream import Sums

_CLIENTS: list[Any] = []
"""The client that `on_cluster` names, if any."""
AHEAD = 64
"""Partitions that are asked for at once."""


def over(function: Callable[[int], Sums], starts: Sequence[int]) -> Iterable[Sums]:
    """The function of each start, in their order."""
    if len(starts) > 1 and _CLIENTS:
        return _on(_CLIENTS[-1], function, starts)
    if len(starts) > 1 and asks_its_cluster():
        return _from_worker(function, starts)
    return map(function, starts)


@contextmanager
def on_cluster(client: Any) -> Iterator[None]:
    """Sums inside are taken on the workers of a Dask client."""
    _CLIENTS.append(client)
    try:
        yield
    finally:
        _CLIENTS.pop()


def asks_its_cluster() -> bool:
    """Whether this runs as a task of a Dask worker that has others beside it."""
    if "distributed" not in sys.modules:
        return False
    from distributed import get_worker  # noqa: PLC0415  an optional extra

    try:
        get_worker()
    except ValueError:
        return False
    return True


def _from_worker(function: Callable[[int], Sums], starts: Sequence[int]) -> Iterator[Sums]:
    from distributed import worker_client  # noqa: PLC0415  an optional extra

    with worker_client() as client:
        yield from _on(client, function, starts)


def _on(client: Any, function: Callable[[int], Sums], starts: Sequence[int]) -> Iterator[Sums]:
    whole = client.scatter(function, broadcast=True, hash=False)
    for k in range(0, len(starts), AHEAD):
        asked = [client.submit(_one, whole, start, pure=False) for start in starts[k : k + AHEAD]]
        for future in asked:
            yield future.result()


def _one(function: Callable[[int], Sums], start: int) -> Sums:
    with threadpool_limits(limits=1):  # numbers do not hang on how many threads a worker has
        return function(start)
