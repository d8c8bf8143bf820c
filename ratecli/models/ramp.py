"""The ramp and its convex bounds (Goh et al. 2016, equation 2 and section 2.1)."""

from __future__ import annotations

import numpy as np

from ratecli.models.base import Array

HALF = 0.5


def ramp(z: Array) -> Array:
    """sigma(z) = max(0, min(1, 1/2 + z)): chance of a yes at score z, in the paper's units."""
    return np.clip(HALF + z, 0.0, 1.0)


def hinge(z: Array) -> Array:
    """max(0, 1/2 + z): the convex bound of the ramp that is tight for z <= 1/2."""
    return np.maximum(0.0, HALF + z)
