"""A cache of fits that trials share, in memory and in a folder."""

from __future__ import annotations

import os
import struct
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from ratecli.errors import FaultError
from ratecli.files import atomic_write

if sys.platform != "win32":
    import fcntl
    import resource

T = TypeVar("T")
MAX_FOLDER_BYTES = 2**30
"""Size of a folder of fits above which the ones not used for longest are deleted."""
CACHED_FITS = 8
"""Number of recent fits that a process caches: sweep points and algorithms share them."""
SUFFIX = ".fit"
LOCKS = 64
_HEADER = struct.Struct("<d")
_saved_seconds = 0.0
_counted: set[tuple[int, bytes]] | None = None
_folder: Path | None = None


def cache_adjusted_time() -> float:
    """Return the processor seconds of this process and its ended children, with cached fits.

    A cached fit counts as long as it took. A trial's time therefore depends neither on what else
    runs nor on which trials ran before it. It counts each of its fits once. Trials that are solved
    together each count the common work.
    """
    seconds = time.process_time() + _saved_seconds
    if sys.platform != "win32":
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds += children.ru_utime + children.ru_stime
    return seconds


@contextmanager
def shared_fits(folder: Path | None) -> Iterator[None]:
    """Share fits with other processes and runs through a folder, unless its parent is missing.

    The clock counts each fit once within this context.
    """
    global _folder, _counted
    before = _folder, _counted
    _folder, _counted = folder if folder and folder.parent.is_dir() else None, set()
    try:
        yield
    finally:
        _folder, _counted = before


@dataclass(frozen=True)
class Codec(Generic[T]):
    """How results are stored; `load` raises ValueError for bytes that `dump` did not write."""

    dump: Callable[[T], bytes]
    load: Callable[[bytes], T]


class FitCache(Generic[T]):
    """LRU cache of the last `most` results, each with the seconds it took to compute.

    With a codec, results are also stored in the folder of `shared_fits`, and computed by one
    process at a time.
    """

    def __init__(self, most: int, codec: Codec[T] | None = None) -> None:
        self._most, self._codec = most, codec
        self._known: OrderedDict[bytes, tuple[T, float]] = OrderedDict()

    def get(self, key: bytes, make: Callable[[], T]) -> T:
        """Return the cached result for `key`, or that of `make`, which must be deterministic."""
        global _saved_seconds  # noqa: PLW0603  one clock per process, like the cache
        known = self._known.pop(key, None)
        if known is None:
            begun = cache_adjusted_time()  # `make` may use caches, too
            known = self._shared(key, make)
            _saved_seconds -= cache_adjusted_time() - begun
        if _counted is None or (id(self), key) not in _counted:
            _saved_seconds += known[1]
        if _counted is not None:
            _counted.add((id(self), key))
        self._known[key] = known
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return known[0]

    def _shared(self, key: bytes, make: Callable[[], T]) -> tuple[T, float]:
        """Return the stored result and its seconds, or compute and store them."""
        if _folder is None or self._codec is None:
            return _timed(make)
        path, part = _folder / f"{key.hex()[:40]}{SUFFIX}", key[0] % LOCKS
        with _locked(_folder, part):
            with suppress(OSError, ValueError, struct.error):
                content = path.read_bytes()
                found = self._codec.load(content[_HEADER.size :]), *_HEADER.unpack_from(content)
                os.utime(path)
                return found
            result, seconds = _timed(make)
            with suppress(OSError, FaultError):  # sharing is not worth an error
                atomic_write(path, _HEADER.pack(seconds) + self._codec.dump(result), lasting=False)
                if not part:  # listing thousands of fits can take longer than a fit
                    _delete_oldest(_folder)
        return result, seconds


def _timed(make: Callable[[], T]) -> tuple[T, float]:
    begun = cache_adjusted_time()
    return make(), cache_adjusted_time() - begun


@contextmanager
def _locked(folder: Path, number: int) -> Iterator[None]:
    """Lock a part of the folder, which is created if missing, as far as the system can."""
    with ExitStack() as stack:
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
            file = stack.enter_context((folder / f".lock{number}").open("ab"))
            if sys.platform != "win32":
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _delete_oldest(folder: Path) -> None:
    """Delete the fits that were not used for longest until the folder is small enough."""
    states = [(path, path.stat()) for path in folder.glob(f"*{SUFFIX}")]
    total = sum(state.st_size for _, state in states)
    for path, state in sorted(states, key=lambda each: each[1].st_mtime):
        if total <= MAX_FOLDER_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= state.st_size
