"""The decisions that a column of a deployed model holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ratecli.errors import Diagnostic, FaultError
from ratecli.rates.sample import Floats


def read_decisions(column: Any, name: str) -> Floats:
    """The deployed model's decisions; raises E406 unless the column holds 0, 1 and gaps only."""
    decisions = column if column.dtype.kind == "f" else pd.to_numeric(column, errors="coerce")
    strange = pd.notna(column) & ~np.isin(decisions, (0.0, 1.0))
    if strange.any():
        shown = column[np.flatnonzero(strange)[0]]
        raise FaultError(
            Diagnostic("E406", f"'{shown}' in the column '{name}' is no decision of a deployed model",
                  "decisions are 0 and 1; leave the cell empty where there is none")
        )  # fmt: skip
    return np.asarray(decisions, dtype=np.float64)
