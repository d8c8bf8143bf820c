"""Data sets that others published, prepared from their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ratecli.datasets import columns, deployed_model
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

ADULT_NO_FEATURES = ("fnlwgt", "income")

ADULT_DEPLOYED_FEATURES = tuple(
    "age education marital_status relationship race sex native_country".split()
)
"""Features of the deployed model of `prepare_adult_churn`: the person's,
without work and capital."""

ADULT_CROSSED_FEATURES = tuple(
    "age workclass education_num marital_status occupation sex capital_gain hours_per_week".split()
)
"""Features whose pairs are features of `prepare_adult_churn`."""

ADULT_NARASIMHAN2019_BINS: dict[str, tuple[float, ...]] = {
    "age": (17, 28, 37, 48, 90),  # quartiles of adult.data
    "capital_gain": (-1, 1, 4000, 10000, 100000),
    "capital_loss": (-1, 1, 1800, 1950, 4500),
    "hours_per_week": (0, 39, 41, 50, 100),
    "education_num": (0, 8, 9, 11, 16),
}
ADULT_NARASIMHAN2019_CATEGORIES = tuple(
    "workclass education marital_status occupation relationship race sex native_country".split()
)


def _read(raw: Raw, name: str, **options: Any) -> pd.DataFrame:
    """Return a file without a header, in which "?" is a missing value."""
    options |= {"header": None, "names": list(raw.columns), "na_values": ["?"]}
    read: pd.DataFrame = pd.read_csv(raw.paths[name], keep_default_na=False, **options)
    return read


def _other_than(no_features: Sequence[str], frame: pd.DataFrame) -> tuple[str, ...]:
    """Return the columns that are features: all others."""
    return tuple(str(name) for name in frame.columns if name not in no_features)


def prepare_adult(raw: Raw) -> Table:
    """Return Adult from the files of UCI."""
    train = _read(raw, "adult.data", skipinitialspace=True)
    test = _read(raw, "adult.test", skipinitialspace=True, skiprows=1)
    read = pd.concat([train, test], ignore_index=True)
    frame = read.assign(income=read["income"].str.rstrip("."))
    return raw.table(
        frame,
        columns.as_float_array(frame["income"] == ">50K"),
        features=_other_than(ADULT_NO_FEATURES, frame),
        part=np.repeat(["train", "test"], [len(train), len(test)]),
    )


def prepare_adult_churn(raw: Raw) -> Table:
    """Return both official files as one sample with a deployed model; their split is ignored."""
    return deployed_model.add_deployed_model(
        prepare_adult(raw),
        label="income",
        known=ADULT_DEPLOYED_FEATURES,
        crossed=ADULT_CROSSED_FEATURES,
    )


def prepare_adult_narasimhan2019(raw: Raw) -> Table:
    """Return 122 features: the bins, then the categories, a missing value being one of them."""
    table = prepare_adult(raw)
    blocks = [
        columns.bin_indicators(columns.as_float_array(table.frame[name]), edges)
        for name, edges in ADULT_NARASIMHAN2019_BINS.items()
    ]
    blocks += [
        columns.category_indicators(table.frame[name]) for name in ADULT_NARASIMHAN2019_CATEGORIES
    ]
    return replace(table, features=(), matrix=sparse.csr_array(np.hstack(blocks)))


def prepare_adult_narasimhan2019_as_published(raw: Raw) -> Table:
    """Return the rows of adult.test twice, as training and as test part, which leaks."""
    table = prepare_adult_narasimhan2019(raw)
    assert table.part is not None
    assert table.matrix is not None
    test = np.flatnonzero(table.part == "test")
    rows = np.concatenate([test, test])
    return replace(
        table,
        frame=table.frame.iloc[rows].reset_index(drop=True),
        label=table.label[rows],
        part=np.repeat(["train", "test"], len(test)),
        matrix=table.matrix[rows],
    )


A9A_WIDTH = 123

A9A_RACES = ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black")
A9A_GROUPS: dict[str, dict[int, str]] = {
    "sex": {72: "Female", 73: "Male"},
    "race": dict(enumerate(A9A_RACES, start=67)),
    "age_bucket": {1: "17-25", 2: "26-32", 3: "33-40", 4: "41-49", 5: "50-90"},
    "education_top": {39: "yes"},
}
"""Readable columns: the value of a row that has the feature (numbered from 1), at most one."""


def prepare_a9a(raw: Raw) -> Table:
    """Return Adult as LIBSVM's binary features."""
    from sklearn.datasets import load_svmlight_file

    loaded = [
        load_svmlight_file(raw.paths[name], n_features=A9A_WIDTH, zero_based=False)
        for name in ("a9a", "a9a.t")
    ]
    matrix = sparse.csr_array(sparse.vstack([rows for rows, _ in loaded], format="csr"))
    return raw.table(
        pd.DataFrame({name: _readable_column(matrix, codes) for name, codes in A9A_GROUPS.items()}),
        np.concatenate([labels > 0 for _, labels in loaded]).astype(np.float64),
        matrix=matrix,
        part=np.repeat(["train", "test"], [len(labels) for _, labels in loaded]),
    )


def _readable_column(matrix: sparse.csr_array, codes: dict[int, str]) -> NDArray[np.object_]:
    values = np.full(matrix.shape[0], "no", dtype=object)
    for feature, value in codes.items():
        values[matrix[:, [feature - 1]].toarray().ravel() > 0] = value
    return values


BANK_NO_FEATURES = ("job", "y")

BANK_DEPLOYED_FEATURES = tuple(
    "age marital education default balance housing loan duration".split()
)
"""Features of the deployed model of `prepare_bank_churn`: the client's and the length of the call.

Left out are how and when the call was made, and earlier calls.
"""

BANK_CROSSED_FEATURES = tuple("age balance housing contact month duration pdays poutcome".split())
"""Features whose pairs are features of `prepare_bank_churn`."""


def _read_bank(raw: Raw) -> pd.DataFrame:
    return pd.read_csv(raw.paths["bank-full.csv"], sep=";", keep_default_na=False)


def prepare_bank(raw: Raw) -> Table:
    """Return the full table of UCI's Bank Marketing."""
    frame = _read_bank(raw)
    features = _other_than(BANK_NO_FEATURES, frame)
    return raw.table(frame, columns.as_float_array(frame["y"] == "yes"), features=features)


def prepare_bank_churn(raw: Raw) -> Table:
    """Return the table with a deployed model."""
    return deployed_model.add_deployed_model(
        prepare_bank(raw), label="y", known=BANK_DEPLOYED_FEATURES, crossed=BANK_CROSSED_FEATURES
    )


SALE, CALL = 10.0, 1.0
"""What a deposit earns and what a call costs."""
CAMPAIGN_NO_FEATURES = ("job", "y", "duration")


def chance_of_call(frame: pd.DataFrame) -> NDArray[np.float64]:
    """Return the chance (n,) with which the log's policy calls each client."""
    rich = frame["balance"].to_numpy() > 1000
    success = (frame["poutcome"] == "success").to_numpy()
    return np.where(rich, 0.35, 0.1) + np.where(success, 0.25, 0.0)


def prepare_campaign(raw: Raw) -> Table:
    """Return a logged campaign: clients of UCI's Bank Marketing, some called at random."""
    frame = _read_bank(raw)
    features = _other_than(CAMPAIGN_NO_FEATURES, frame)
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


COMMUNITIES_CODES = ["county", "community"]
"""Codes that are mostly missing, and dropped."""
CRIME = "ViolentCrimesPerPop"
COMMUNITIES_NO_FEATURES = ("state", "communityname", "fold", CRIME)
COMMUNITIES_HIGH_CRIME = 70
"""Percentile of violent crimes, over all rows, above which the label is positive."""


def prepare_communities(raw: Raw) -> Table:
    """Return UCI's Communities and Crime, with the label and group of Narasimhan et al. (2019)."""
    read = _read(raw, "communities.data").drop(columns=COMMUNITIES_CODES)
    black, crime = (columns.as_float_array(read[name]) for name in ("racepctblack", CRIME))
    share = pd.Series(np.where(black > np.median(black), "high", "low"), name="black_share")
    frame = pd.concat([read, share], axis=1)
    return raw.table(
        frame,
        (crime > np.percentile(crime, COMMUNITIES_HIGH_CRIME)).astype(np.float64),
        features=_other_than(COMMUNITIES_NO_FEATURES, frame),
    )


COMPAS_FEATURES = tuple(
    "sex age race juv_fel_count juv_misd_count juv_other_count priors_count c_charge_degree".split()
)
COMPAS_OTHER_COLUMNS = tuple(
    "age_cat days_b_screening_arrest decile_score score_text two_year_recid".split()
)

COMPAS_NARASIMHAN2019_CATEGORIES = ("c_charge_degree", "race", "score_text", "sex")
COMPAS_NARASIMHAN2019_AGE_BINS = (0, 24, 29, 35, 45, 52.9, 96)
COMPAS_NARASIMHAN2019_STEPS: dict[str, tuple[float, ...]] = {
    "decile_score": (0, 1, 3, 5, 7, 9, 10),
    "priors_count": (0, 1, 3, 5, 9, 38),
}


def prepare_compas(raw: Raw) -> Table:
    """Return ProPublica's two-year file on COMPAS, filtered as ProPublica did."""
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
    return raw.table(
        kept[[*COMPAS_FEATURES, *COMPAS_OTHER_COLUMNS]], label, features=COMPAS_FEATURES
    )


def prepare_compas_narasimhan2019(raw: Raw) -> Table:
    """Return 31 features: the days, the categories, the age bins, the steps of the two scores.

    As in the code released with Narasimhan, Cotter and Gupta (2019), nothing is scaled.
    """
    table = prepare_compas(raw)
    numbers = {
        name: columns.as_float_array(table.frame[name])
        for name in ("days_b_screening_arrest", "age", *COMPAS_NARASIMHAN2019_STEPS)
    }
    blocks = [
        numbers["days_b_screening_arrest"][:, None],
        *(
            columns.category_indicators(table.frame[name])
            for name in COMPAS_NARASIMHAN2019_CATEGORIES
        ),
        columns.bin_indicators(numbers["age"], COMPAS_NARASIMHAN2019_AGE_BINS),
        *(
            columns.step_indicators(numbers[n], edges)
            for n, edges in COMPAS_NARASIMHAN2019_STEPS.items()
        ),
    ]
    return replace(table, features=(), matrix=np.hstack(blocks))


GPA_RANGE = (0.0, 4.0)
GPA_NO_FEATURES = ("M", "F", "GPA")
GOOD_GPA = 3.0
"""Smallest grade point average of a positive row."""


def prepare_gpa(raw: Raw) -> Table:
    """Return the table with two classes: a GPA of at least `GOOD_GPA`, or less."""
    table = prepare_gpa_regression(raw)
    good = table.frame["GPA"] >= GOOD_GPA
    return replace(
        table,
        frame=table.frame.assign(GPA_class=good.astype(np.int64)),
        label=columns.as_float_array(good),
        label_range=None,
    )


def prepare_gpa_regression(raw: Raw) -> Table:
    """Return the table with the GPA itself as the label."""
    read = _read(raw, "gpa_regression_dataset.csv")
    return raw.table(
        read.assign(sex=np.where(read["F"] == 1, "Female", "Male")),
        columns.as_float_array(read["GPA"]),
        features=_other_than(GPA_NO_FEATURES, read),
        label_range=GPA_RANGE,
    )


LAW_NUMBERS = ("decile1", "decile1b", "decile3", "lsat", "ugpa", "dob_yr", "fam_inc")
LAW_CATEGORIES = ("sex", "tier", "parttime")
LAW_NAMES = {"gender": "sex", "race1": "race"}
"""New names of the file's columns; its own `sex` and `race` are numeric codes of the same."""

LAW_YES_NO = {"0": "no", "1": "yes"}


def prepare_law(raw: Raw) -> Table:
    """Return the students with a known result and race; other columns may have missing values."""
    words = pd.read_csv(raw.paths["law_school.csv"], dtype=str, keep_default_na=False)
    words = words.drop(columns=["sex", "race"]).rename(columns=LAW_NAMES)
    read = words.apply(lambda column: column.str.strip())
    known = read[read["pass_bar"].ne("") & read["race"].ne("")].replace("", None)
    numbers = known[list(LAW_NUMBERS)].apply(pd.to_numeric).astype(float)
    answers = {name: known[name].map(LAW_YES_NO) for name in ("parttime", "pass_bar")}
    return raw.table(
        pd.concat([known[["race", "sex", "tier"]].assign(**answers), numbers], axis=1),
        columns.as_float_array(known["pass_bar"].eq("1")),
        features=(*LAW_NUMBERS, *LAW_CATEGORIES),
    )


GERMAN_VALUES: dict[str, tuple[str, ...]] = {
    "A11": ("below 0", "0 to 199", "200 or more", "none"),
    "A30": ("none or paid back", "paid back here", "paid so far", "delays", "critical"),
    "A40": (
        *("new car", "used car", "furniture", "radio or television", "appliances", "repairs"),
        *("education", "vacation", "retraining", "business", "others"),
    ),
    "A61": ("below 100", "100 to 499", "500 to 999", "1000 or more", "none or unknown"),
    "A71": ("unemployed", "below 1", "1 to 3", "4 to 6", "7 or more"),
    "A91": (
        *("male divorced", "female divorced or married", "male single", "male married"),
        "female single",
    ),
    "A101": ("none", "co-applicant", "guarantor"),
    "A121": ("real estate", "savings or insurance", "car or other", "none or unknown"),
    "A141": ("bank", "stores", "none"),
    "A151": ("rent", "own", "free"),
    "A171": ("unskilled non-resident", "unskilled resident", "skilled", "management"),
    "A191": ("no", "yes"),
    "A201": ("yes", "no"),
}
"""Words for consecutive codes of a column, by the first of them."""
GERMAN_NO_FEATURES = ("personal_status", "credit")


def prepare_german(raw: Raw) -> Table:
    """Return UCI's German credit data, with words for its codes and the sex as a column."""
    words = {
        f"{first[:-1]}{int(first[-1]) + k}": value
        for first, values in GERMAN_VALUES.items()
        for k, value in enumerate(values)
    }
    read = _read(raw, "german.data", sep=" ")
    frame = read.replace(words)
    good = read["credit"] == 1
    sex = frame["personal_status"].str.partition(" ")[0]
    frame = frame.assign(sex=sex, credit=np.where(good, "good", "bad"))
    features = _other_than(GERMAN_NO_FEATURES, frame)
    return raw.table(frame, columns.as_float_array(good), features=features)
