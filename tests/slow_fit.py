"""A slow fit that processes share, in a module that imports little: each process imports it."""

import time
from pathlib import Path

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.fit_cache import Codec, FitCache, shared_fits

NUMBERS = Codec[Array](lambda array: array.tobytes(), np.frombuffer)


def spend(seconds: float) -> None:
    """Use the processor for so many seconds."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def fit_slowly(folder: Path) -> list[float]:
    """Return a stored fit; otherwise compute it in 0.2 s and note that in a file."""

    def make() -> Array:
        with (folder.parent / "calls").open("a") as file:
            file.write("x")
        spend(0.2)
        return np.array([1.0, 2.0])

    with shared_fits(folder):
        return FitCache(2, NUMBERS).get(b"key", make).tolist()
