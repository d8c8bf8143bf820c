"""ProPublica's two-year file on COMPAS, filtered as ProPublica did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from ratecli.datasets import columns
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

FEATURES = tuple(
    "sex age race juv_fel_count juv_misd_count juv_other_count priors_count c_charge_degree".split()
)
OTHER_COLUMNS = tuple(
    "age_cat days_b_screening_arrest decile_score score_text two_year_recid".split()
)

NARASIMHAN2019_CATEGORIES = ("c_charge_degree", "race", "score_text", "sex")
NARASIMHAN2019_AGE_BINS = (0, 24, 29, 35, 45, 52.9, 96)
NARASIMHAN2019_STEPS: dict[str, tuple[float, ...]] = {
    "decile_score": (0, 1, 3, 5, 7, 9, 10),
    "priors_count": (0, 1, 3, 5, 9, 38),
}


def prepare(raw: Raw) -> Table:
    # Only an empty field is missing: "N/A" is a value that the filter looks for.
    read = pd.read_csv(
        raw.paths["compas-scores-two-years.csv"],
        keep_default_na=False,
        na_values=[""],
        low_memory=False,
    )
    kept = read[
        read["days_b_screening_arrest"].between(-30, 30)
        & (read["is_recid"] != -1)
        & (read["c_charge_degree"] != "O")
        & (read["score_text"] != "N/A")
    ]
    label = columns.as_float_array(kept["two_year_recid"])
    return raw.table(kept[[*FEATURES, *OTHER_COLUMNS]], label, features=FEATURES)


def prepare_narasimhan2019(raw: Raw) -> Table:
    """Return 31 features: the days, the categories, the age bins, the steps of the two scores.

    As in the code released with Narasimhan, Cotter and Gupta (2019), nothing is scaled.
    """
    table = prepare(raw)
    numbers = {
        name: columns.as_float_array(table.frame[name])
        for name in ("days_b_screening_arrest", "age", *NARASIMHAN2019_STEPS)
    }
    blocks = [
        numbers["days_b_screening_arrest"][:, None],
        *(columns.category_indicators(table.frame[name]) for name in NARASIMHAN2019_CATEGORIES),
        columns.bin_indicators(numbers["age"], NARASIMHAN2019_AGE_BINS),
        *(columns.step_indicators(numbers[n], edges) for n, edges in NARASIMHAN2019_STEPS.items()),
    ]
    return replace(table, features=(), matrix=np.hstack(blocks))
