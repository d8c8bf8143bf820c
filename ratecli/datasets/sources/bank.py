"""The full table of UCI's Bank Marketing, as it is or with a deployed model."""

from __future__ import annotations

import pandas as pd

from ratecli.datasets import columns, deployed_model
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

NO_FEATURES = ("job", "y")

DEPLOYED_FEATURES = tuple("age marital education default balance housing loan duration".split())
"""Features of the deployed model of `prepare_churn`: the client's and the length of the call.

Left out are how and when the call was made, and earlier calls.
"""

CROSSED_FEATURES = tuple("age balance housing contact month duration pdays poutcome".split())
"""Features whose pairs are features of `prepare_churn`."""


def prepare(raw: Raw) -> Table:
    frame = pd.read_csv(raw.paths["bank-full.csv"], sep=";", keep_default_na=False)
    features = tuple(str(name) for name in frame.columns if name not in NO_FEATURES)
    return raw.table(frame, columns.as_float_array(frame["y"] == "yes"), features=features)


def prepare_churn(raw: Raw) -> Table:
    """Return the table with a deployed model."""
    return deployed_model.add_deployed_model(
        prepare(raw), label="y", known=DEPLOYED_FEATURES, crossed=CROSSED_FEATURES
    )
