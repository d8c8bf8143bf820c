"""Per-process cache of recent fits, because trials with the same seed repeat some of them."""

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
    """Return a clock in seconds that counts the original duration of cached fits.

    A trial's time therefore does not depend on the work of other trials.
    """
    return time.perf_counter() + _saved_seconds


class FitCache(Generic[T]):
    """LRU cache of the last `most` results, each with the seconds it took to compute."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[bytes, tuple[T, float]] = OrderedDict()

    def get(self, key: bytes, make: Callable[[], T]) -> T:
        """Return the cached result for `key`, or that of `make`, which must be deterministic."""
        global _saved_seconds  # noqa: PLW0603  one clock per process, like the cache
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
    """Return a cache key for features, arrays and other parameters (`said`, hashed by its repr)."""
    rows = [X] if isinstance(X, np.ndarray) else [X.data, X.indices, X.indptr]
    found = blake2b(repr((said, X.shape)).encode())
    for array in (*rows, *arrays):
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.digest()
