"""The full table of UCI's Bank Marketing."""

from __future__ import annotations

import pandas as pd

from ratecli.datasets.columns import equals_indicator, with_text
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

NO_FEATURES = ("job", "y")


def prepare(raw: Raw) -> Table:
    read = pd.read_csv(raw.paths["bank-full.csv"], sep=";", keep_default_na=False)
    frame = with_text(read)
    return Table(
        frame=frame,
        features=tuple(str(name) for name in frame.columns if name not in NO_FEATURES),
        label=equals_indicator(frame["y"], "yes"),
        digest=raw.digest,
        files=raw.files,
    )
