"""Exam scores of applicants to a Brazilian university and how their first years of study went."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from ratecli.datasets.columns import as_float_array, with_text
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

FEATURES = (
    "Physics",
    "Biology",
    "History",
    "Second_Language",
    "Geography",
    "Literature",
    "Portuguese_and_Essay",
    "Math",
    "Chemistry",
)
COLUMNS = ("M", "F", *FEATURES, "GPA")
"""Of the file, which has no header, as its metadata names them."""

GPA_RANGE = (0.0, 4.0)
GOOD_GPA = 3.0
"""The grade point average from which a student is positive."""


def prepare(raw: Raw) -> Table:
    """Two classes: a GPA of at least 3, or less."""
    table = prepare_regression(raw)
    good = table.frame["GPA"] >= GOOD_GPA
    return replace(
        table,
        frame=table.frame.assign(GPA_class=good.astype(np.int64)),
        label=as_float_array(good),
        label_range=None,
    )


def prepare_regression(raw: Raw) -> Table:
    """The GPA itself is the label."""
    read = pd.read_csv(raw.paths["gpa_regression_dataset.csv"], header=None, names=COLUMNS)
    sex = np.where(read["F"] == 1, "Female", "Male")
    return Table(
        frame=with_text(read.assign(sex=sex)),
        features=FEATURES,
        label=as_float_array(read["GPA"]),
        label_range=GPA_RANGE,
        digest=raw.digest,
        files=raw.files,
    )
