"""Entrance exam scores of students at a Brazilian university, and their later grades.

43,303 students of the Federal University of Rio Grande do Sul, 20,263 of them with a GPA of at
least 3.0. No official split. The original is doi:10.7910/DVN/O35FW8; this is the copy in the
repository of the Seldonian Toolkit, which keeps the order of the rows and rounds the GPA to 5
decimals.

features  the nine scores of the entrance exam: Physics, Biology, History, Second_Language,
          Geography, Literature, Portuguese_and_Essay, Math, Chemistry
other     M and F, 1 or 0; GPA, the grade point average of the first three semesters, 0 to 4
sex       Female (20,968), Male (22,335): M and F again, as a word

`preparation: classification` (the default) has the label GPA >= 3.0, also as GPA_class, 1 or 0.
`preparation: regression` has the GPA itself as the label, a number from 0 to 4: goals use mse and
mean_error there, and metrics and algorithms that need two classes are refused.

The toolkit's tutorials use the first 40% of the rows for candidate selection and the other 60% for
the safety test; `split: {train: 1}` with `safety: {fraction: 0.6, order: positional}` does the
same.
"""

from __future__ import annotations

from dataclasses import replace

from ratecli.datasets.lazy import Table, columns, np, pd
from ratecli.datasets.source import Raw, RemoteFile, Source, notes_of

GPA_RANGE = (0.0, 4.0)

SOURCE = Source(
    name="gpa",
    summary="students at a Brazilian university: how good will their grades be?",
    preparations={
        "classification": f"{__name__}:prepare",
        "regression": f"{__name__}:prepare_regression",
    },
    numbers={"regression": GPA_RANGE},
    rows=43_303,
    label="GPA >= 3.0; with preparation: regression, the GPA",
    sensitive=("sex", "M", "F"),
    licence="CC0 1.0 by default of Harvard Dataverse; this copy BSD 3-Clause",
    citation="Castro da Silva, B. (2019). UFRGS entrance exam and GPA data. Harvard Dataverse, "
    "doi:10.7910/DVN/O35FW8. Thomas, P. S., Castro da Silva, B., Barto, A. G., Giguere, S., Brun, "
    "Y. and Brunskill, E. (2019). Preventing undesirable behavior of intelligent machines. "
    "Science 366, 999-1004.",
    notes=notes_of(__doc__),
    files=(
        RemoteFile(
            name="gpa_regression_dataset.csv",
            url="https://raw.githubusercontent.com/seldonian-toolkit/Engine"
            "/cbf72b1461fe903e441856102d5398c2592b86b6"
            "/static/datasets/supervised/GPA/gpa_regression_dataset.csv",
            sha256="26c5316a5a27778988f4765a9d53d55b776a8f74a3b2f6e7eb23f1e5bca0e32c",
            size=3_205_400,
        ),
    ),
)

FEATURES = tuple(
    "Physics Biology History Second_Language Geography Literature Portuguese_and_Essay Math "
    "Chemistry".split()
)
COLUMNS = ("M", "F", *FEATURES, "GPA")
"""Columns of the file, which has no header, as named in its metadata."""

GOOD_GPA = 3.0
"""Smallest grade point average of a positive row."""


def prepare(raw: Raw) -> Table:
    """Return the table with two classes: a GPA of at least `GOOD_GPA`, or less."""
    table = prepare_regression(raw)
    good = table.frame["GPA"] >= GOOD_GPA
    return replace(
        table,
        frame=table.frame.assign(GPA_class=good.astype(np.int64)),
        label=columns.as_float_array(good),
        label_range=None,
    )


def prepare_regression(raw: Raw) -> Table:
    """Return the table with the GPA itself as the label."""
    read = pd.read_csv(raw.paths["gpa_regression_dataset.csv"], header=None, names=COLUMNS)
    return raw.table(
        read.assign(sex=np.where(read["F"] == 1, "Female", "Male")),
        columns.as_float_array(read["GPA"]),
        features=FEATURES,
        label_range=GPA_RANGE,
    )
