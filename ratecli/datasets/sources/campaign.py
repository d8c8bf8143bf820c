"""A logged campaign: the clients of UCI's Bank Marketing, some of them called at random.

All clients of bank-full.csv were called. Here, a call is an action that the log's policy took with
a known chance between 0.1 and 0.6, larger for clients with more money or an earlier success. It is
generated from `seed`. Nobody subscribes without a call.

features  age, balance, day, previous, pdays, campaign (numbers);
          marital, education, default, housing, loan, contact, month, poutcome (categories)
action    called, yes or no; called_chance is its propensity
outcomes  subscribed, 0 or 1; profit, 9 for a call that sells a deposit and -1 for another one, 0
          without a call
other     job and age_group (under 30, 30 to 59, 60 or more) for groups

The outcomes of both decisions are known, so `value_true(profit)` is the mean profit of any
classifier. There is no label and no official split.
"""

from __future__ import annotations

from ratecli.config.dataset import LoggedSpec
from ratecli.datasets.lazy import NDArray, Table, np, pd
from ratecli.datasets.source import SEED, Raw, Source, notes_of
from ratecli.datasets.sources import bank

LOGGED = LoggedSpec(
    action="called",
    propensity="called_chance",
    outcomes={"profit": (-1.0, 9.0), "subscribed": (0.0, 1.0)},
    max_weight=10.0,
)
SOURCE = Source(
    name="campaign",
    summary="logged calls of a bank's campaign, and what they earned",
    preparations={"plain": f"{__name__}:prepare"},
    rows=45211,
    label="",
    sensitive=("job", "age_group", "marital"),
    licence=bank.SOURCE.licence,
    citation=bank.SOURCE.citation,
    notes=notes_of(__doc__),
    files=bank.SOURCE.files,
    folder=bank.SOURCE.name,
    options={"seed": SEED},
    logged={"plain": LOGGED},
)

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
    return raw.table(frame, none, features=features, logged=LOGGED)
