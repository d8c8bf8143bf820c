"""Numbers of all lanes (settings) in blocks as wide as a SIMD vector of compiled loops."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array

Floats32 = NDArray[np.float32]
WIDTH = 16


def pack_lanes(lanes: Array) -> Floats32:
    """Convert (n, B) to blocks (L, n, WIDTH)."""
    n, count = lanes.shape
    blocks = -(-count // WIDTH)
    filled = np.zeros((n, blocks * WIDTH), np.float32)
    filled[:, :count] = lanes
    return np.ascontiguousarray(filled.reshape(n, blocks, WIDTH).swapaxes(0, 1))


def unpack_lanes(blocks: Array | Floats32, count: int) -> Array:
    """Convert blocks (L, n, WIDTH) to (n, B) in double precision."""
    n = blocks.shape[1]
    return np.asarray(blocks.swapaxes(0, 1).reshape(n, -1)[:, :count], dtype=float)
