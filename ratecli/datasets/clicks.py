r"""Generated stand-in for the churn data of Goh et al. (2016), section 4.2, which are not public.

The paper has 31 informative features, "mapped to a roughly 30 000-dimensional feature vector via a
fixed kernel function", a deployed model, and three data sets: D1 of 131,840 labelled rows "chosen via
active sampling", D2 of 53,877 labelled and D3 of 68,892 unlabelled rows drawn independently. Those
sizes and that shape are kept; the population is ours.

The population. 31 standard normal variables with four common factors,

    z = L f + u * e        f ~ N(0, I_4), e ~ N(0, I_31), |L_k|^2 + u_k^2 = 1

are seen as columns f01 ... f31 by increasing maps, taken in turn: z itself, exp(0.9 z) (skewed),
sinh(1.5 z) (heavy tails). The label has

    logit P(y = 1 | z) = base + sum_k a_k z_k + sum_k b_k exp(-z_k^2)
                              + sum_(i,j) c_ij h(s_ij z_i) h(t_ij z_j)

with h(z) = 1 / (1 + exp(-5 (z - 0.8))), nearly the indicator of z > 0.8: main effects, bumps, and 12
disjoint pairs of columns of which a corner (signs s, t) matters. The coefficients are drawn once, by a
generator seeded with `POPULATION`: a_k ~ N(0, 0.47^2), b_k ~ N(0, 0.6^2), |c_ij| uniform between 0.75
and 1.75. 28 % of the rows are positive, and the least possible error is .128.

The deployed model is a logistic regression without interactions, one indicator for each of 8 bins of
a column, trained on 20,000 rows of an older population whose means and coefficients differ a little.
The corners are weak enough that it errs on .146 of the rows and a new SVM gains little on it: so it
must be with the paper's, whose SVM changes 5 % of its decisions and errs as often as one that may not.
The cut points of the bins are quantiles of these older rows, so that nothing of D1, D2 and D3 goes
into the features: all 248 bins and the 64 bins of each of the 465 pairs of columns, 30,008 in all, of
which a row has 496, each 1/496, so that a score is the mean of 496 weights. D1 holds rows of the
present population that were kept with probability exp(-|score of the deployed model| / `SAMPLING_SCALE`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from ratecli.datasets.buckets import CrossedBins, bin_values, quantile_cuts
from ratecli.datasets.columns import with_text
from ratecli.datasets.deployed import sample_near_boundary, train_logistic_regression
from ratecli.datasets.source import Raw
from ratecli.datasets.split import apportion
from ratecli.datasets.table import Table

Floats = NDArray[np.float64]
Bins = NDArray[np.int64]

SET_SIZES = {"d1": 131_840, "d2": 53_877, "d3": 68_892}
"""Rows of the paper's data sets."""

FEATURES = tuple(f"f{k:02d}" for k in range(1, 32))
BINS = 8
POPULATION = 2016
"""Seed of what is fixed: coefficients and older rows."""

OLDER_ROWS = 20_000
SAMPLING_SCALE = 3.0
"""How far from the deployed model's boundary, in its log-odds, D1 still reaches."""

_LEVELS = (BINS,) * len(FEATURES)
FEATURE_MAP = CrossedBins.of_all(_LEVELS)
"""The 30,008 features."""

_COLUMNS = CrossedBins(_LEVELS, pairs=())
"""The 248 features of the deployed model."""

_FACTORS = 4
_PAIRS = 12
_DRAWN_AT_ONCE = 50_000


@dataclass(frozen=True)
class ClickPopulation:
    """What rows and labels are drawn from, in the module's notation.

    `linear` is a, `bump` b, `corner` c with its (12, 2) `pairs` and `signs`; `loadings` is L.
    """

    mean: Floats
    loadings: Floats
    base: float
    linear: Floats
    bump: Floats
    pairs: NDArray[np.int64]
    signs: Floats
    corner: Floats

    def draw(self, rows: int, rng: np.random.Generator) -> Floats:
        """(rows, 31) values of z."""
        own = np.sqrt(1 - (self.loadings**2).sum(axis=1))
        common = rng.normal(size=(rows, _FACTORS)) @ self.loadings.T
        z: Floats = self.mean + common + own * rng.normal(size=(rows, len(own)))
        return z

    def log_odds(self, z: Floats) -> Floats:
        """(n,) logits of P(y = 1 | z)."""
        high = [expit(5 * (self.signs[:, k] * z[:, self.pairs[:, k]] - 0.8)) for k in (0, 1)]
        effects = z @ self.linear + np.exp(-(z**2)) @ self.bump + (high[0] * high[1]) @ self.corner
        log_odds: Floats = self.base + effects
        return log_odds

    def labels(self, z: Floats, rng: np.random.Generator) -> Floats:
        """(n,) draws of y."""
        return np.where(rng.random(len(z)) < expit(self.log_odds(z)), 1.0, 0.0)


@lru_cache(maxsize=1)
def build_populations() -> tuple[ClickPopulation, ClickPopulation]:
    """The present one, and the older one that the deployed model was trained on."""
    rng, width = np.random.default_rng(POPULATION), len(FEATURES)
    direction = rng.normal(size=(width, _FACTORS))
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    present = ClickPopulation(
        mean=np.zeros(width),
        loadings=direction / length * np.sqrt(rng.uniform(0.2, 0.6, (width, 1))),
        base=-2.9,
        linear=rng.normal(0, 0.47, width),
        bump=rng.normal(0, 0.6, width),
        pairs=rng.permutation(width)[: 2 * _PAIRS].reshape(_PAIRS, 2),
        signs=rng.choice([-1.0, 1.0], (_PAIRS, 2)),
        corner=rng.choice([-1.0, 1.0], _PAIRS) * rng.uniform(0.75, 1.75, _PAIRS),
    )
    return present, replace(
        present,
        mean=rng.normal(0, 0.03, width),
        linear=present.linear * rng.normal(1, 0.05, width),
        bump=present.bump * rng.normal(1, 0.05, width),
        corner=present.corner * rng.normal(1, 0.05, _PAIRS),
    )


@dataclass(frozen=True)
class DeployedClickModel:
    """The model in use: a logistic regression on the bins of the columns."""

    cuts: tuple[Floats, ...]
    model: LogisticRegression

    def bins(self, columns: Floats) -> Bins:
        """(n, 31) bins, 0 to 7, of the columns as they are seen."""
        return _bin_columns(columns, self.cuts)

    def score(self, bins: Bins) -> Floats:
        """(n,) log-odds; the decision is 1 where they are positive."""
        score: Floats = self.model.decision_function(_COLUMNS.features(bins))
        return score


@lru_cache(maxsize=1)
def train_deployed_model() -> DeployedClickModel:
    rng = np.random.default_rng((POPULATION, 1))
    _, older = build_populations()
    z = older.draw(OLDER_ROWS, rng)
    columns = observed_columns(z)
    cuts = tuple(quantile_cuts(column, BINS) for column in columns.T)
    bins = _bin_columns(columns, cuts)
    return DeployedClickModel(
        cuts, train_logistic_regression(_COLUMNS.features(bins), older.labels(z, rng))
    )


def _bin_columns(columns: Floats, cuts: tuple[Floats, ...]) -> Bins:
    pairs = zip(columns.T, cuts, strict=True)
    return np.column_stack([bin_values(column, inner) for column, inner in pairs])


def observed_columns(z: Floats) -> Floats:
    """The columns f01 ... f31 of z: as it is, skewed, heavy-tailed, in turn."""
    columns = z.copy()
    columns[:, 1::3] = np.exp(0.9 * z[:, 1::3])
    columns[:, 2::3] = np.sinh(1.5 * z[:, 2::3])
    return columns


def prepare(raw: Raw) -> Table:
    return _generate(raw.options["rows"], raw.options["seed"], raw.digest)


def _generate(rows: int, seed: int, digest: str) -> Table:
    """D1, D2 and D3 in proportion to the paper's, one below the other."""
    counts = set_sizes(rows)
    present, _ = build_populations()
    rng = np.random.default_rng(seed)
    z = np.vstack([_near_boundary(counts[0], rng), present.draw(sum(counts[1:]), rng)])
    label = present.labels(z, rng)
    name = np.repeat(np.array(list(SET_SIZES), dtype=object), counts)
    label[name == "d3"] = np.nan
    columns = observed_columns(z)
    bins = train_deployed_model().bins(columns)
    return Table(
        frame=_frame(name, label, train_deployed_model().score(bins), columns),
        features=(),
        label=label,
        matrix=FEATURE_MAP.shares(bins),
        digest=digest,
    )


def set_sizes(rows: int) -> list[int]:
    """Rows of d1, d2 and d3 where there are `rows` in all."""
    total = sum(SET_SIZES.values())
    return apportion(rows, [Fraction(size, total) for size in SET_SIZES.values()])


def _near_boundary(rows: int, rng: np.random.Generator) -> Floats:
    """Rows of the present population, those kept that the deployed model is unsure of."""
    present, model = build_populations()[0], train_deployed_model()
    kept, found = [np.empty((0, len(FEATURES)))], 0
    while found < rows:
        z = present.draw(_DRAWN_AT_ONCE, rng)
        z = z[
            sample_near_boundary(model.score(model.bins(observed_columns(z))), SAMPLING_SCALE, rng)
        ]
        kept.append(z)
        found += len(z)
    return np.vstack(kept)[:rows]


def _frame(
    name: NDArray[np.object_], label: Floats, score: Floats, columns: Floats
) -> pd.DataFrame:
    said = pd.Series(label).map({0.0: "no", 1.0: "yes"})
    first = {
        "set": name,
        "deployed": (score > 0).astype(np.int64),
        "deployed_score": score,
        "clicked": said,
    }
    return with_text(pd.DataFrame(first | dict(zip(FEATURES, columns.T, strict=True))))
