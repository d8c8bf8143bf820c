"""Limits of one binomial rate."""

from __future__ import annotations

import numpy as np
from scipy import special

from ratecli.models.base import Array


def clopper_pearson_upper(
    counts: Array | float, rows: Array | float, delta: Array | float
) -> Array:
    """Return upper limits of rates, wrong with a probability of delta (Clopper and Pearson 1934).

    Counts may be fractions. The lower limit is 1 minus the upper limit for rows - counts.
    """
    counts, rows = np.asarray(counts, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    full = counts >= rows
    missing = np.where(full, 1.0, rows - counts)
    return np.where(full, 1.0, special.betainccinv(counts + 1.0, missing, delta))
