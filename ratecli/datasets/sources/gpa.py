"""Entrance exam scores of students at a Brazilian university, and their later grades."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from ratecli.datasets import columns
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

GPA_RANGE = (0.0, 4.0)


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
