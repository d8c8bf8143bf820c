"""Generated loan applicants, with the least possible error of every required selection ratio."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from ratecli.datasets import columns
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

WOMEN_SHARE = 0.45
REPAYMENT_RATES = {"Female": 0.35, "Male": 0.65}
GROUPS = ("Female", "Male")

INCOME_FLOOR = 48.0
"""Income, in thousands a year, from which the rule in use accepts.

No other whole number gives a smaller error.
"""


@dataclass(frozen=True)
class _Informative:
    """A column `offset + scale * x` with x ~ N(shift of the group + delta (y - 1/2), 1)."""

    name: str
    delta: float
    shift: tuple[float, float]
    offset: float
    scale: float


_INFORMATIVE = (
    _Informative("income", 1.2, (0.0, 0.5), offset=46.0, scale=7.0),
    _Informative("debt", -0.9, (0.0, 0.2), offset=18.0, scale=3.0),
    _Informative("savings", 1.0, (0.0, -0.3), offset=24.0, scale=4.0),
)
_PURPOSES = ("business", "car", "education", "home")
_PURPOSE_SHARES = {"Female": (0.2, 0.25, 0.3, 0.25), "Male": (0.25, 0.35, 0.15, 0.25)}
_REGIONS = ("east", "north", "south", "west")

SEPARATION = math.sqrt(sum(column.delta**2 for column in _INFORMATIVE))
"""D: distance between the means of t for the two labels."""

FEATURES = ("sex", *(column.name for column in _INFORMATIVE), "age", "amount", "purpose", "region")


def prepare(raw: Raw) -> Table:
    """Generate the applicants, without any decisions.

    An applicant has a group g, P(g = Female) = `WOMEN_SHARE`, and a label y with P(y = 1 | g) =
    `REPAYMENT_RATES[g]`. Given both, the informative features are independent Gaussians

        x_k ~ N(shift_k(g) + delta_k (y - 1/2), 1)

    expressed as money by affine maps; the other columns depend on g at most. The projection t =
    sum_k delta_k (x_k - shift_k(g)) / D, with D = |delta|, contains all information of the columns
    about y:

        t | y, g ~ N(D (y - 1/2), 1)        logit P(y = 1 | x, g) = logit P(y = 1 | g) + D t

    so that eta(x, g) = P(y = 1 | x, g) is the logistic function of an affine form in (x, g), and
    any rule of the form "positive iff eta > c_g" is linear in (features, sex).
    """
    rng, rows = np.random.default_rng(raw.options["seed"]), raw.options["rows"]
    male = (rng.random(rows) >= WOMEN_SHARE).astype(np.int64)
    base = np.array([REPAYMENT_RATES[group] for group in GROUPS])
    label = (rng.random(rows) < base[male]).astype(np.float64)
    frame: dict[str, NDArray[np.generic]] = {"sex": _words(GROUPS, male)}
    for column in _INFORMATIVE:
        mean = np.array(column.shift)[male] + column.delta * (label - 0.5)
        frame[column.name] = column.offset + column.scale * rng.normal(mean)
    edges = np.cumsum([_PURPOSE_SHARES[group] for group in GROUPS], axis=1)[male, :-1]
    purpose = (rng.random(rows)[:, np.newaxis] > edges).sum(axis=1)
    frame |= {
        "age": rng.integers(18, 75, size=rows),
        "amount": np.exp(rng.normal(2.0 + 0.2 * male, 0.5)),
        "purpose": _words(_PURPOSES, purpose),
        "region": _words(_REGIONS, rng.integers(len(_REGIONS), size=rows)),
        "repaid": _words(("no", "yes"), label.astype(np.int64)),
    }
    return raw.table(pd.DataFrame(frame), label, features=FEATURES)


def _words(words: tuple[str, ...], codes: NDArray[np.int64]) -> NDArray[np.object_]:
    return np.array(words, dtype=object)[codes]


def prepare_deployed(raw: Raw) -> Table:
    """Return all applicants with the decisions of the rule in use."""
    table = prepare(raw)
    accepted = columns.as_float_array(table.frame["income"]) >= INCOME_FLOOR
    return replace(table, frame=table.frame.assign(approved=accepted.astype(np.int64)))


def prepare_unlabelled(raw: Raw) -> Table:
    """Return the applicants with decisions but without labels: no loan is due yet."""
    table = prepare_deployed(raw)
    hidden = table.frame.drop(columns="repaid")
    return replace(table, frame=hidden, label=np.full(len(hidden), np.nan))


def prepare_egregious(raw: Raw) -> Table:
    """Return the applicants, about 1 in 7, for whom the rule in use errs and the best does not."""
    table = prepare_deployed(raw)
    best = repayment_probability(table.frame) > 0.5
    needless = np.asarray((table.frame["approved"] != table.label) & (best == table.label))
    frame = table.frame[needless].reset_index(drop=True)
    return replace(table, frame=frame, label=table.label[needless])


def repayment_probability(frame: pd.DataFrame) -> NDArray[np.float64]:
    """Return P(repaid = yes | all columns) of each row."""
    male = (frame["sex"] == "Male").to_numpy(dtype=np.int64)
    log_odds = special.logit(np.array([REPAYMENT_RATES[group] for group in GROUPS]))[male]
    for column in _INFORMATIVE:
        x = (columns.as_float_array(frame[column.name]) - column.offset) / column.scale
        log_odds = log_odds + column.delta * (x - np.array(column.shift)[male])
    return np.asarray(special.expit(log_odds), dtype=np.float64)


@dataclass(frozen=True)
class LoanOptimum:
    """The best rule under `positive_rate[Female] >= required * positive_rate[Male]`.

    It is positive where P(repaid | features, sex) exceeds the group's threshold. `multiplier` is
    the decrease in error per unit of slack in that constraint.

    A randomized rule d(x, g) in [0, 1] has error P(y = 1) + E[d (1 - 2 eta)]. To minimize it
    subject to P(d | Female) >= ratio P(d | Male), add v times the violation: each row's coefficient
    is

        1 - 2 eta + v (ratio 1[g = Male] / P(Male) - 1[g = Female] / P(Female))

    and the best rule is positive where that is negative: for men with eta > 1/2 + v ratio / (2
    P(Male)), for women with eta > 1/2 - v / (2 P(Female)). The gap P(d | Female) - ratio P(d |
    Male) grows with v. If it is nonnegative at v = 0, the unconstrained rule is optimal; else the v
    that makes it 0 is computed. By duality no rule based on the columns, randomized or not, does
    better.
    """

    error: float
    multiplier: float
    threshold: dict[str, float]
    positive_rate: dict[str, float]

    @classmethod
    def at_multiplier(cls, multiplier: float, required: float) -> LoanOptimum:
        """Return the best rule for a multiplier v; it may violate the constraint."""
        women = 0.5 - multiplier / (2 * WOMEN_SHARE)
        men = 0.5 + multiplier * required / (2 * (1 - WOMEN_SHARE))
        threshold = {"Female": max(women, 0.0), "Male": min(men, 1.0)}
        rates = {group: _rates(group, threshold[group]) for group in GROUPS}
        error = WOMEN_SHARE * rates["Female"][1] + (1 - WOMEN_SHARE) * rates["Male"][1]
        selected = {group: rate for group, (rate, _) in rates.items()}
        return cls(error, multiplier, threshold, selected)

    @property
    def ratio(self) -> float:
        return self.positive_rate["Female"] / self.positive_rate["Male"]


def optimum_at_ratio(ratio: float) -> LoanOptimum:
    """Return the best randomized rule that accepts women at least `ratio` times as often as men."""
    from scipy.optimize import brentq

    def gap(multiplier: float) -> float:
        rate = LoanOptimum.at_multiplier(multiplier, ratio).positive_rate
        return rate["Female"] - ratio * rate["Male"]

    # At the upper end no man is accepted, which satisfies every ratio.
    end = (1 - WOMEN_SHARE) / ratio if ratio else 0.0
    root = 0.0 if gap(0.0) >= 0 else float(brentq(gap, 0.0, end, xtol=1e-14, rtol=1e-14))
    return LoanOptimum.at_multiplier(root, ratio)


def frontier(ratios: Iterable[float]) -> list[float]:
    """Return the least error for each required ratio of selection rates, women to men."""
    return [optimum_at_ratio(ratio).error for ratio in ratios]


def _rates(group: str, threshold: float) -> tuple[float, float]:
    """Return the selection rate and the error of the rule eta > threshold within a group.

    At the threshold 0 everyone is accepted, at 1 nobody.
    """
    base = REPAYMENT_RATES[group]
    cut = (special.logit(threshold) - special.logit(base)) / SEPARATION
    hit = special.ndtr(SEPARATION / 2 - cut)
    false_alarm = special.ndtr(-SEPARATION / 2 - cut)
    rate = base * hit + (1 - base) * false_alarm
    error = base * (1 - hit) + (1 - base) * false_alarm
    return float(rate), float(error)
