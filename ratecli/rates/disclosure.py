"""How much what a proxy says of a row tells of its group (Deng, Diana, Kearns, Roth 2023)."""

from __future__ import annotations

import numpy as np

from ratecli.rates.sample import Floats

MIN_PROXY_SHARE = 1e-12
"""What a proxy says of less than this share of the rows, it does not say."""


def disclosivity(proxy: Floats, groups: Floats, weight: Floats) -> float:
    """Largest `|P(group k | proxy says j) - P(group k)|` over all j and k, from 0 to 1.

    Of rows with a group: rows without one are left out, and so is what the proxy never says.

    Parameters
    ----------
    proxy
        (n, L) chances that it says j of a row, adding up to 1.
    groups
        (n, K) 1 in a row's group and 0 elsewhere; all 0 where it has none.
    weight
        (n,) of rows.

    Returns
    -------
    float
        NaN where no row has a group.
    """
    inside = groups.sum(axis=1) > 0
    share = weight[inside]
    if not share.sum():
        return float("nan")
    share = share / share.sum()
    base = share @ groups[inside]
    both = (proxy[inside] * share[:, None]).T @ groups[inside]  # (L, K): says j, and is of k
    said = both.sum(axis=1)
    kept = said > MIN_PROXY_SHARE
    return float(np.abs(both[kept] / said[kept, None] - base).max())
