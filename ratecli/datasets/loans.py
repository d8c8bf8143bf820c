r"""Generated loan applicants, with the least possible error of every required selection ratio.

The model. An applicant has a group g, P(g = Female) = `WOMEN_SHARE`, and a label y with P(y = 1 | g) =
`BASE[g]`. Given both, the informative features are independent Gaussians

    x_k ~ N(shift_k(g) + delta_k (y - 1/2), 1)

shown as money and years by affine maps; the other columns depend on g at most. The projection
t = sum_k delta_k (x_k - shift_k(g)) / D, with D = |delta|, carries all that the columns say of y:

    t | y, g ~ N(D (y - 1/2), 1)        logit P(y = 1 | x, g) = logit BASE[g] + D t

so that eta(x, g) = P(y = 1 | x, g) is the logistic function of an affine form in (x, g), and any rule
of the kind "yes iff eta > c_g" is linear in (features, sex).

The optimum. A randomized rule d(x, g) in [0, 1] has error P(y = 1) + E[d (1 - 2 eta)]. To minimize it
subject to P(d | Female) >= ratio P(d | Male), add v times the violation: each row's coefficient is

    1 - 2 eta + v (ratio 1[g = Male] / P(Male) - 1[g = Female] / P(Female))

and the best rule says yes where that is negative: to men with eta > 1/2 + v ratio / (2 P(Male)), to
women with eta > 1/2 - v / (2 P(Female)). The gap P(d | Female) - ratio P(d | Male) grows with v. Where
it is not negative at v = 0 the unconstrained rule is optimal, else the v that makes it 0 is found; by
duality no rule of the columns, randomized or not, does better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr

from ratecli.datasets import registry
from ratecli.datasets.columns import with_text
from ratecli.datasets.source import Raw
from ratecli.datasets.sources import SOURCES
from ratecli.datasets.table import Table

WOMEN_SHARE = 0.45
REPAYMENT_RATES = {"Female": 0.35, "Male": 0.65}
GROUPS = ("Female", "Male")


@dataclass(frozen=True)
class _Informative:
    """A column `offset + scale * x`, x ~ N(shift of the group + delta (y - 1/2), 1)."""

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
"""D: distance between the means of t of the two labels."""

FEATURES = (
    "sex",
    *(column.name for column in _INFORMATIVE),
    "age",
    "amount",
    "purpose",
    "region",
)


@dataclass(frozen=True)
class LoanOptimum:
    """The best rule under `positive_rate[Female] >= required * positive_rate[Male]`.

    It says yes where P(repaid | features, sex) exceeds the group's threshold; `multiplier` is what
    the error would gain per unit of slack in that constraint.
    """

    required: float
    error: float
    multiplier: float
    threshold: dict[str, float]
    positive_rate: dict[str, float]

    @property
    def ratio(self) -> float:
        return self.positive_rate["Female"] / self.positive_rate["Male"]


def prepare(raw: Raw) -> Table:
    table = _generate(raw.options["rows"], raw.options["seed"])
    return replace(table, digest=raw.digest)


def generate_loans(rows: int = 4000, seed: int = 0) -> Table:
    """`rows` independent applicants; the same `seed`, the same applicants."""
    source = SOURCES["loans"]
    settled = registry.settle_options({"source": "loans", "rows": rows, "seed": seed})
    return replace(_generate(rows, seed), digest=registry.source_digest(source, settled, ()))


def _generate(rows: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    male = (rng.random(rows) >= WOMEN_SHARE).astype(np.int64)
    base = np.array([REPAYMENT_RATES[group] for group in GROUPS])
    label = (rng.random(rows) < base[male]).astype(np.float64)
    columns: dict[str, NDArray[np.generic]] = {"sex": _words(GROUPS, male)}
    for column in _INFORMATIVE:
        mean = np.array(column.shift)[male] + column.delta * (label - 0.5)
        columns[column.name] = column.offset + column.scale * rng.normal(mean)
    columns |= _uninformative(male, rng)
    columns["repaid"] = _words(("no", "yes"), label.astype(np.int64))
    frame = with_text(pd.DataFrame(columns))
    return Table(frame=frame, features=FEATURES, label=label, digest="")


def _uninformative(
    male: NDArray[np.int64], rng: np.random.Generator
) -> dict[str, NDArray[np.generic]]:
    """Columns that depend on the group at most, and so say nothing of the label beyond it."""
    rows = len(male)
    edges = np.cumsum([_PURPOSE_SHARES[group] for group in GROUPS], axis=1)[male, :-1]
    purpose = (rng.random(rows)[:, np.newaxis] > edges).sum(axis=1)
    return {
        "age": rng.integers(18, 75, size=rows),
        "amount": np.exp(rng.normal(2.0 + 0.2 * male, 0.5)),
        "purpose": _words(_PURPOSES, purpose),
        "region": _words(_REGIONS, rng.integers(len(_REGIONS), size=rows)),
    }


def _words(words: tuple[str, ...], codes: NDArray[np.int64]) -> NDArray[np.object_]:
    return np.array(words, dtype=object)[codes]


def repayment_probability(frame: pd.DataFrame) -> NDArray[np.float64]:
    """P(repaid = yes | all columns), row by row."""
    male = (frame["sex"] == "Male").to_numpy(dtype=np.int64)
    log_odds = logit(np.array([REPAYMENT_RATES[group] for group in GROUPS]))[male]
    for column in _INFORMATIVE:
        x = (frame[column.name].to_numpy(dtype=np.float64) - column.offset) / column.scale
        log_odds = log_odds + column.delta * (x - np.array(column.shift)[male])
    return np.asarray(expit(log_odds), dtype=np.float64)


def optimum_at_ratio(ratio: float) -> LoanOptimum:
    """The least error of any randomized rule that picks women at least `ratio` times as often as men."""
    if _gap(0.0, ratio) >= 0:
        return _rule(0.0, ratio)
    from scipy.optimize import brentq  # noqa: PLC0415  slow, and to draw rows takes none

    # At the upper end no man is picked, which meets every ratio.
    root = brentq(_gap, 0.0, (1 - WOMEN_SHARE) / ratio, args=(ratio,), xtol=1e-14, rtol=1e-14)
    return _rule(float(root), ratio)


def frontier(ratios: Iterable[float]) -> list[float]:
    """The least error for each required ratio women to men."""
    return [optimum_at_ratio(ratio).error for ratio in ratios]


def _gap(multiplier: float, ratio: float) -> float:
    threshold = _thresholds(multiplier, ratio)
    rate = {group: _rates(group, threshold[group])[0] for group in GROUPS}
    return rate["Female"] - ratio * rate["Male"]


def _rule(multiplier: float, ratio: float) -> LoanOptimum:
    threshold = _thresholds(multiplier, ratio)
    rate, error = {}, 0.0
    for group, share in zip(GROUPS, (WOMEN_SHARE, 1 - WOMEN_SHARE), strict=True):
        rate[group], group_error = _rates(group, threshold[group])
        error += share * group_error
    return LoanOptimum(ratio, error, multiplier, threshold, rate)


def _thresholds(multiplier: float, ratio: float) -> dict[str, float]:
    """Thresholds on eta; at 0 all are picked, at 1 none."""
    women = 0.5 - multiplier / (2 * WOMEN_SHARE)
    men = 0.5 + multiplier * ratio / (2 * (1 - WOMEN_SHARE))
    return {"Female": max(women, 0.0), "Male": min(men, 1.0)}


def _rates(group: str, threshold: float) -> tuple[float, float]:
    """Selection rate and error within a group of the rule eta > threshold."""
    base = REPAYMENT_RATES[group]
    cut = (logit(threshold) - logit(base)) / SEPARATION
    hit, false_alarm = ndtr(SEPARATION / 2 - cut), ndtr(-SEPARATION / 2 - cut)
    rate = base * hit + (1 - base) * false_alarm
    error = base * (1 - hit) + (1 - base) * false_alarm
    return float(rate), float(error)
