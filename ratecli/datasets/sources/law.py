"""Bar passage of law students (LSAC), from a CSV export of the full table."""

from __future__ import annotations

import pandas as pd

from ratecli.datasets import columns
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

NUMBERS = ("decile1", "decile1b", "decile3", "lsat", "ugpa", "dob_yr", "fam_inc")
CATEGORIES = ("sex", "tier", "parttime")
NAMES = {"gender": "sex", "race1": "race"}
"""New names of the file's columns; its own `sex` and `race` are numeric codes of the same."""

YES_NO = {"0": "no", "1": "yes"}


def prepare(raw: Raw) -> Table:
    """Return the students with a known result and race; other columns may have missing values."""
    words = pd.read_csv(raw.paths["law_school.csv"], dtype=str, keep_default_na=False)
    words = words.drop(columns=["sex", "race"]).rename(columns=NAMES)
    read = words.apply(lambda column: column.str.strip())
    known = read[read["pass_bar"].ne("") & read["race"].ne("")].replace("", None)
    numbers = known[list(NUMBERS)].apply(pd.to_numeric).astype(float)
    answers = {name: known[name].map(YES_NO) for name in ("parttime", "pass_bar")}
    return raw.table(
        pd.concat([known[["race", "sex", "tier"]].assign(**answers), numbers], axis=1),
        columns.as_float_array(known["pass_bar"].eq("1")),
        features=(*NUMBERS, *CATEGORIES),
    )
