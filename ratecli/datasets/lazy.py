"""NumPy, pandas, SciPy and what imports them, loaded on first use.

`ratecli ls datasets` reads the modules of `sources/`, and must not wait for these libraries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["NDArray", "Table", "columns", "deployed_model", "np", "pd", "sparse", "special"]


class LazyModule:
    """Stands for a module, and imports it when one of its attributes is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from scipy import sparse, special

    from ratecli.datasets import columns, deployed_model
    from ratecli.datasets.table import Table
else:
    np, pd = LazyModule("numpy"), LazyModule("pandas")
    sparse, special = LazyModule("scipy.sparse"), LazyModule("scipy.special")
    columns = LazyModule("ratecli.datasets.columns")
    deployed_model = LazyModule("ratecli.datasets.deployed_model")
    NDArray = Table = object  # used in annotations only, which are not evaluated
