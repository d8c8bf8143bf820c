"""What a process has made lately: trials of one seed ask for the same fits."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Features

T = TypeVar("T")
_saved_seconds = 0.0


def cache_adjusted_time() -> float:
    """Seconds, with those that what is remembered had taken: no trial is quicker for another's work."""
    return time.perf_counter() + _saved_seconds


class FitCache(Generic[T]):
    """Of what was made for a key, the `most` that were asked for last, with the seconds that each took."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[bytes, tuple[T, float]] = OrderedDict()

    def get(self, key: bytes, make: Callable[[], T]) -> T:
        """The same whether it was made before or is made now, as long as `make` draws nothing."""
        global _saved_seconds  # noqa: PLW0603  of the process, as what is remembered is
        known = self._known.pop(key, None)
        if known is None:
            begun = time.perf_counter()
            known = make(), time.perf_counter() - begun
        else:
            _saved_seconds += known[1]
        self._known[key] = known
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return known[0]


def array_digest(said: object, X: Features, *arrays: NDArray[Any]) -> bytes:
    """A key for what is made of rows and arrays, the rest in words."""
    rows = [X] if isinstance(X, np.ndarray) else [X.data, X.indices, X.indptr]
    found = blake2b(repr((said, X.shape)).encode())
    for array in (*rows, *arrays):
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.digest()
