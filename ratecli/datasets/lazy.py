"""NumPy, pandas and SciPy, imported when first used.

`ratecli ls datasets` reads the modules of `sources/`, and must not wait for these libraries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["columns", "np", "pd", "sparse", "special"]


class LazyModule:
    """Stands for a module, and imports it when one of its attributes is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from scipy import sparse, special

    from ratecli.datasets import columns
else:
    np, pd = LazyModule("numpy"), LazyModule("pandas")
    sparse, special = LazyModule("scipy.sparse"), LazyModule("scipy.special")
    columns = LazyModule("ratecli.datasets.columns")
