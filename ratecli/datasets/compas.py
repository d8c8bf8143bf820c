"""ProPublica's two-year file on COMPAS, filtered as ProPublica did."""

from __future__ import annotations

import pandas as pd

from ratecli.datasets.columns import as_float_array, with_text
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

FEATURES = (
    "sex",
    "age",
    "race",
    "juv_fel_count",
    "juv_misd_count",
    "juv_other_count",
    "priors_count",
    "c_charge_degree",
)
OTHER_COLUMNS = (
    "age_cat",
    "days_b_screening_arrest",
    "decile_score",
    "score_text",
    "two_year_recid",
)


def prepare(raw: Raw) -> Table:
    # Only an empty field is missing: "N/A" is a value that the filter asks for.
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
    frame = with_text(kept[[*FEATURES, *OTHER_COLUMNS]])
    return Table(
        frame=frame,
        features=FEATURES,
        label=as_float_array(frame["two_year_recid"]),
        digest=raw.digest,
        files=raw.files,
    )
