"""Generated stand-in for the churn data of Goh et al. (2016), section 4.2, which are not public."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse, special

from ratecli.datasets import deployed_model
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

Floats: TypeAlias = "NDArray[np.float64]"
Bins: TypeAlias = "NDArray[np.int64]"


SET_SIZES = {"d1": 131_840, "d2": 53_877, "d3": 68_892}
"""Rows of the paper's data sets."""

FEATURES = tuple(f"f{k:02d}" for k in range(1, 32))
BINS = 8
POPULATION = 2016
"""Seed of what is the same for every `seed`: coefficients and older rows."""

OLDER_ROWS = 20_000
SAMPLING_SCALE = 3.0
"""Scale, in the deployed model's log-odds, of the distance of D1's rows from its boundary."""

_LEVELS = (BINS,) * len(FEATURES)
_FACTORS = 4
_PAIRS = 12
_BATCH_ROWS = 50_000
"""Rows sampled at once for D1."""


@dataclass(frozen=True)
class ClickPopulation:
    r"""Distribution of rows and labels; invented, with the sizes and dimensions of the paper.

    The paper has 31 informative features, "mapped to a roughly 30 000-dimensional feature vector
    via a fixed kernel function", a deployed model, and three data sets: D1 of 131,840 labelled rows
    "chosen via active sampling", D2 of 53,877 labelled and D3 of 68,892 unlabelled rows sampled
    independently.

    31 standard normal variables with four common factors,

        z = L f + u * e        f ~ N(0, I_4), e ~ N(0, I_31), |L_k|^2 + u_k^2 = 1

    are observed as columns f01 ... f31 through increasing maps, used in turn: z itself, exp(0.9 z)
    (skewed), sinh(1.5 z) (heavy tails). The label has

        logit P(y = 1 | z) = base + sum_k a_k z_k + sum_k b_k exp(-z_k^2)
                                  + sum_(i,j) c_ij h(s_ij z_i) h(t_ij z_j)

    with h(z) = 1 / (1 + exp(-5 (z - 0.8))), nearly the indicator of z > 0.8: main effects, bumps,
    and the corners (signs s, t) of 12 disjoint pairs of columns. The coefficients are sampled once,
    by a generator seeded with `POPULATION`: a_k ~ N(0, 0.47^2), b_k ~ N(0, 0.6^2), |c_ij| uniform
    between 0.75 and 1.75. 28 % of the rows are positive, and the least possible error is .128.

    Attributes
    ----------
    linear, bump, corner
        The coefficients a, b and c.
    pairs, signs
        (12, 2) columns and signs of the corners.
    loadings
        L.
    """

    mean: Floats
    loadings: Floats
    base: float
    linear: Floats
    bump: Floats
    pairs: Bins
    signs: Floats
    corner: Floats

    def draw(self, rows: int, rng: np.random.Generator) -> Floats:
        """Return (rows, 31) samples of z."""
        own = np.sqrt(1 - (self.loadings**2).sum(axis=1))
        common = rng.normal(size=(rows, _FACTORS)) @ self.loadings.T
        return np.asarray(self.mean + common + own * rng.normal(size=(rows, len(own))))

    def log_odds(self, z: Floats) -> Floats:
        """Return (n,) logits of P(y = 1 | z)."""
        high = [
            special.expit(5 * (self.signs[:, k] * z[:, self.pairs[:, k]] - 0.8)) for k in (0, 1)
        ]
        effects = z @ self.linear + np.exp(-(z**2)) @ self.bump + (high[0] * high[1]) @ self.corner
        return np.asarray(self.base + effects)

    def labels(self, z: Floats, rng: np.random.Generator) -> Floats:
        """Return (n,) samples of y."""
        return np.where(rng.random(len(z)) < special.expit(self.log_odds(z)), 1.0, 0.0)


def feature_map() -> deployed_model.CrossedBins:
    """Return the 30,008 features."""
    return deployed_model.CrossedBins(_LEVELS, tuple(combinations(range(len(_LEVELS)), 2)))


@lru_cache(maxsize=1)
def build_populations() -> tuple[ClickPopulation, ClickPopulation]:
    """Return the present population, and the older one that the deployed model was trained on."""
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
    """The deployed model: a logistic regression on indicators of 8 bins of each column.

    It has no interactions, and is trained on 20,000 rows of an older population whose means and
    coefficients differ slightly. The corners are weak enough that it errs on .146 of the rows and a
    new SVM improves on it only a little. The same must be true in the paper, where the SVM changes
    5 % of the decisions and errs as often as one that may not change them. The bins end at
    quantiles of these older rows, so that the features use nothing of D1, D2 and D3: all 248 bins
    and the 64 bins of each of the 465 pairs of columns, 30,008 in all. A row has 496 of them, each
    1/496, so that a score is the mean of 496 weights. D1 has rows of the present population that
    were kept with probability exp(-|score of the deployed model| / `SAMPLING_SCALE`).
    """

    cuts: tuple[Floats, ...]
    model: Any

    def bins(self, observed: Floats) -> Bins:
        """Return (n, 31) bins, 0 to 7, of the observed columns."""
        pairs = zip(observed.T, self.cuts, strict=True)
        return np.column_stack([deployed_model.bin_values(*pair) for pair in pairs])

    def score(self, bins: Bins) -> Floats:
        """Return (n,) log-odds; the decision is 1 where they are positive."""
        return np.asarray(self.model.decision_function(_column_indicators(bins)))


@lru_cache(maxsize=1)
def train_deployed_model() -> DeployedClickModel:
    rng = np.random.default_rng((POPULATION, 1))
    _, older = build_populations()
    z = older.draw(OLDER_ROWS, rng)
    observed = observed_columns(z)
    cuts = tuple(deployed_model.quantile_cuts(column, BINS) for column in observed.T)
    untrained = DeployedClickModel(cuts, None)
    features = _column_indicators(untrained.bins(observed))
    model = deployed_model.train_logistic_regression(features, older.labels(z, rng))
    return replace(untrained, model=model)


def _column_indicators(bins: Bins) -> sparse.csr_array:
    """Return the 248 features of the deployed model."""
    return deployed_model.CrossedBins(_LEVELS, pairs=()).features(bins)


def observed_columns(z: Floats) -> Floats:
    """Return the columns f01 ... f31 of z: in turn z itself, skewed and heavy-tailed."""
    observed = z.copy()
    observed[:, 1::3] = np.exp(0.9 * z[:, 1::3])
    observed[:, 2::3] = np.sinh(1.5 * z[:, 2::3])
    return observed


def prepare(raw: Raw) -> Table:
    """Return D1, D2 and D3 stacked, with sizes in the paper's proportions."""
    counts = set_sizes(raw.options["rows"])
    present, model = build_populations()[0], train_deployed_model()
    rng = np.random.default_rng(raw.options["seed"])
    z = np.vstack([_near_boundary(counts[0], rng), present.draw(sum(counts[1:]), rng)])
    label = present.labels(z, rng)
    name = np.repeat(np.array(list(SET_SIZES), dtype=object), counts)
    label[name == "d3"] = np.nan
    observed = observed_columns(z)
    bins = model.bins(observed)
    score = model.score(bins)
    frame = {
        "set": name,
        "deployed": (score > 0).astype(np.int64),
        "deployed_score": score,
        "clicked": pd.Series(label).map({0.0: "no", 1.0: "yes"}),
    }
    frame |= dict(zip(FEATURES, observed.T, strict=True))
    return raw.table(pd.DataFrame(frame), label, matrix=feature_map().shares(bins))


def set_sizes(rows: int) -> list[int]:
    """Return the sizes of d1, d2 and d3, `rows` in all."""
    from ratecli.datasets.split import apportion

    total = sum(SET_SIZES.values())
    return apportion(rows, [Fraction(size, total) for size in SET_SIZES.values()])


def _near_boundary(rows: int, rng: np.random.Generator) -> Floats:
    """Return z of rows of the present population near the deployed model's decision boundary."""
    present, model = build_populations()[0], train_deployed_model()
    kept = np.empty((0, len(FEATURES)))
    while len(kept) < rows:
        z = present.draw(_BATCH_ROWS, rng)
        score = model.score(model.bins(observed_columns(z)))
        near = deployed_model.sample_near_boundary(score, SAMPLING_SCALE, rng)
        kept = np.vstack([kept, z[near]])
    return kept[:rows]
