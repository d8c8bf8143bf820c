"""Bar passage of law students (LSAC), from a CSV export of the full table."""

from __future__ import annotations

import pandas as pd

from ratecli.datasets.columns import as_float_array, with_text
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

NUMBERS = ("decile1", "decile1b", "decile3", "lsat", "ugpa", "dob_yr", "fam_inc")
CATEGORIES = ("sex", "tier", "parttime")
NAMES = {"gender": "sex", "race1": "race"}
"""The file's name of a column, and ours; its own `sex` and `race` are codes for the same."""

YES_NO = {"0": "no", "1": "yes"}


def prepare(raw: Raw) -> Table:
    """Those whose result and race are known; everything else may be missing."""
    words = pd.read_csv(raw.paths["law_school.csv"], dtype=str, keep_default_na=False)
    words = words.drop(columns=["sex", "race"]).rename(columns=NAMES)
    read = words.apply(lambda column: column.str.strip())
    known = read[read["pass_bar"].ne("") & read["race"].ne("")].replace("", None)
    numbers = known[list(NUMBERS)].apply(pd.to_numeric).astype(float)
    frame = pd.DataFrame(
        {
            "race": known["race"],
            "sex": known["sex"],
            "tier": known["tier"],
            "parttime": known["parttime"].map(YES_NO),
            "pass_bar": known["pass_bar"].map(YES_NO),
        }
    )
    return Table(
        frame=with_text(pd.concat([frame, numbers], axis=1)),
        features=(*NUMBERS, *CATEGORIES),
        label=as_float_array(known["pass_bar"].eq("1")),
        digest=raw.digest,
        files=raw.files,
    )
