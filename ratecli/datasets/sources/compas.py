"""ProPublica's two-year file on COMPAS, filtered as ProPublica did.

ProPublica's filter keeps 6,172 of 7,214 rows, 2,809 of them charged again: an arrest within 30 days
of the screening, is_recid not -1, c_charge_degree not 'O', score_text not 'N/A'. No official split.

features  age, juv_fel_count, juv_misd_count, juv_other_count, priors_count (numbers);
          sex, race, c_charge_degree (categories)
other     age_cat, days_b_screening_arrest; decile_score and score_text, COMPAS's own prediction;
          two_year_recid, the label
sex       Female, Male
race      African-American, Asian, Caucasian, Hispanic, Native American, Other

The file contains decile_score and priors_count twice with equal values; the first of each is read.
Names, dates and case numbers are left out.

`preparation: narasimhan2019` has the 31 features of the code released with Narasimhan, Cotter and
Gupta (2019), a matrix used without scaling: days_b_screening_arrest, -30 to 30; indicators of
c_charge_degree (2), race (6), score_text (3), sex (2) and age (6 bins up to 24, 29, 35, 45, 52,
96); cumulative indicators of decile_score (6: up to 1, 3, 5, 7, 9, 10) and priors_count (5: up to
1, 3, 5, 9, 38; none for 0), where a row has the indicator of its bin and of all lower bins.
COMPAS's own score is a feature. The paper's split (a third for the test set, a third of the rest
for validation, each rounded up) has 2,742 training, 1,372 validation and 2,058 test rows. Write it
as numbers of rows, `split: {validation: 1372/6172, test: 2058/6172}`: {validation: 2/9, test: 1/3}
rounds differently.
"""

from __future__ import annotations

from dataclasses import replace

from ratecli.datasets.lazy import Table, columns, np, pd
from ratecli.datasets.source import Raw, RemoteFile, Source, notes_of

SOURCE = Source(
    name="compas",
    summary="defendants in Broward County: charged again within two years?",
    preparations={
        "propublica": f"{__name__}:prepare",
        "narasimhan2019": f"{__name__}:prepare_narasimhan2019",
    },
    rows=6172,
    label="two_year_recid = 1",
    sensitive=("sex", "race", "age", "age_cat"),
    licence="no licence file; published by ProPublica with its story",
    citation="Angwin, J., Larson, J., Mattu, S. and Kirchner, L. (2016). Machine bias. ProPublica.",
    notes=notes_of(__doc__),
    files=(
        RemoteFile(
            name="compas-scores-two-years.csv",
            url="https://raw.githubusercontent.com/propublica/compas-analysis/master"
            "/compas-scores-two-years.csv",
            sha256="c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
            size=2_546_489,
        ),
    ),
)

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
