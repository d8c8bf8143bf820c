"""A logged campaign: the clients of UCI's Bank Marketing, some of them called at random."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

SALE, CALL = 10.0, 1.0
"""What a deposit earns and what a call costs."""
NO_FEATURES = ("job", "y", "duration")


def chance_of_call(frame: pd.DataFrame) -> NDArray[np.float64]:
    """Return the chance (n,) with which the log's policy calls each client."""
    rich = frame["balance"].to_numpy() > 1000
    success = (frame["poutcome"] == "success").to_numpy()
    return np.where(rich, 0.35, 0.1) + np.where(success, 0.25, 0.0)


def prepare(raw: Raw) -> Table:
    frame = pd.read_csv(raw.paths["bank-full.csv"], sep=";", keep_default_na=False)
    features = tuple(str(name) for name in frame.columns if name not in NO_FEATURES)
    sold = (frame["y"] == "yes").to_numpy(dtype=float)
    chance = chance_of_call(frame)
    called = np.random.default_rng(raw.options["seed"]).random(len(frame)) < chance
    ages = pd.cut(frame["age"], [0, 29, 59, 200], labels=["under 30", "30 to 59", "60 or more"])
    frame = frame.drop(columns=["y", "duration"]).assign(
        age_group=ages.astype(str),
        called=np.where(called, "yes", "no"),
        called_chance=chance,
        profit=called * (SALE * sold - CALL),
        subscribed=called * sold,
        profit_if_yes=SALE * sold - CALL,
        profit_if_no=0.0,
        subscribed_if_yes=sold,
        subscribed_if_no=0.0,
    )
    none = np.full(len(frame), np.nan)
    return raw.table(frame, none, features=features, logged=raw.logged)
