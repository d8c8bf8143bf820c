"""Bar passage of law students (LSAC), from a CSV export of the full table.

The LSAC National Longitudinal Bar Passage Study (Wightman 1998). The original is a SAS file,
http://www.seaphe.org/databases/LSAC/LSAC_SAS.zip, whose sha256 is not known here. This is a CSV
export of the full table of 27,478 students, found in a public repository and pinned by its sha256.
It reproduces Wightman's published counts. Left out are 4,375 students without a result and 17
without a race. Of the remaining 23,086 students, 21,886 passed; of the 1,368 black ones, 1,062. No
official split.

features  decile1, decile1b, decile3 (ranks in the first and third year of law school), lsat, ugpa,
          dob_yr (year of birth, two digits), fam_inc (1 to 5): numbers; sex, tier (1 to 6, of the
          law school), parttime (yes, no): categories
other     race, which is not a feature; pass_bar, the label, yes or no
race      asian, black, hisp, other, white
sex       female, male

A missing number is replaced by the mean of the training rows; a missing category becomes a category
of its own. These are nearly the features of later code on the same task, which dropped every row
with a missing value and added `age`, which cannot be used here (it is negative).

Not in the table: bar, bar1, bar2, bar1_yr, bar2_yr, which contain the result or follow from it;
zfygpa and zgpa, the grades behind the ranks, known before the exam; grad and dropout, how the
studies ended, the same for nearly all who took the exam; index604 and indxgrp, computed from lsat
and ugpa; fulltime, cluster and others that repeat a column.

Numbers differ in versions of this table in which pass_bar means passing at the first attempt, or in
which a missing result counts as failing.
"""

from __future__ import annotations

from ratecli.datasets.lazy import Table, columns, pd
from ratecli.datasets.source import Raw, RemoteFile, Source, notes_of

SOURCE = Source(
    name="law",
    summary="law students of 1991: do they pass the bar exam?",
    preparations={"plain": f"{__name__}:prepare"},
    rows=23086,
    label="pass_bar = yes",
    sensitive=("race", "sex"),
    licence="no formal licence found; LSAC data released for research by Project SEAPHE",
    citation="Wightman, L. F. (1998). LSAC national longitudinal bar passage study. LSAC Research "
    "Report Series.",
    notes=notes_of(__doc__),
    files=(
        RemoteFile(
            name="law_school.csv",
            url="https://raw.githubusercontent.com/neutron0001/FAIR_batch"
            "/b360e92748f0c82929af878f4e882ef570076761/data/law_school.csv",
            sha256="b76e20ecd2cc615509e22b33cc72ee2e78b7c81ed1407c6b26a449bb79813780",
            size=3_944_453,
        ),
    ),
)

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
