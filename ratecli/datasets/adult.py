"""Adult from the files of UCI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from ratecli.datasets.columns import equals_indicator, with_text
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
)
FEATURES = tuple(name for name in COLUMNS if name not in ("fnlwgt", "income"))


def prepare(raw: Raw) -> Table:
    train = _read(raw.paths["adult.data"], header_lines=0)
    test = _read(raw.paths["adult.test"], header_lines=1)
    read = pd.concat([train, test], ignore_index=True)
    frame = with_text(read.assign(income=read["income"].str.rstrip(".")))
    return Table(
        frame=frame,
        features=FEATURES,
        label=equals_indicator(frame["income"], ">50K"),
        part=np.repeat(["train", "test"], [len(train), len(test)]),
        digest=raw.digest,
        files=raw.files,
    )


def _read(path: Path, header_lines: int) -> pd.DataFrame:
    return pd.read_csv(
        path,
        names=list(COLUMNS),
        header=None,
        skiprows=header_lines,
        skipinitialspace=True,
        na_values=["?"],
        keep_default_na=False,
    )
