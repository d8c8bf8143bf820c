"""Linear scores and the decisions made from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ratecli.models.base import Array, Classifier, Features
from ratecli.rates.sample import make_read_only

RAMP_CORNER = 0.5
"""The distance from 0 beyond which the ramp is constant."""


def ramp(z: Array) -> Array:
    """sigma(z) = max(0, min(1, 1/2 + z)): P(positive decision) at score z, in the paper's units."""
    return np.clip(RAMP_CORNER + z, 0.0, 1.0)


def logistic(scores: Array) -> Array:
    """1 / (1 + exp(-score)), without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * scores)))


@dataclass(frozen=True)
class Linear(Classifier):
    """Base of linear classifiers with the score f(x) = <w, x> + b; w has shape (d,)."""

    weights: Array
    bias: float = 0.0

    def __post_init__(self) -> None:
        make_read_only(self)
        if self.weights.ndim != 1:
            raise ValueError(f"weights of shape {self.weights.shape}")
        if not (np.isfinite(self.weights).all() and np.isfinite(self.bias)):
            raise ValueError("weights of a linear classifier must be finite numbers")

    @property
    def width(self) -> int:
        return len(self.weights)

    def score(self, X: Features) -> Array:
        return np.asarray(X @ self.weights + self.bias, dtype=float)


@dataclass(frozen=True)
class Threshold(Linear):
    """Deterministic: positive if f(x) > 0, negative in a tie."""


@dataclass(frozen=True)
class Logistic(Threshold):
    """A threshold whose label estimate is the logistic function of the score."""

    def estimate(self, X: Features) -> Array:
        return logistic(self.score(X))


@dataclass(frozen=True)
class Ramp(Linear):
    """Randomized: positive with probability sigma(f(x)) (Goh et al. 2016, equation 2, appendix A).

    The score is in the paper's units: decisions are random only for |f| < 1/2.
    """

    def decide(self, X: Features) -> Array:
        return ramp(self.score(X))


@dataclass(frozen=True)
class RandomizedLogistic(Linear):
    """Randomized: positive with probability 1 / (1 + exp(-f(x))), which is also the estimate."""

    def decide(self, X: Features) -> Array:
        return logistic(self.score(X))


@dataclass(frozen=True)
class LinearRegressor(Linear):
    """Regression: the estimate is the score, clipped to the range of the label.

    It makes no decisions: its decisions are NaN, and so are rates of decisions.
    """

    range: tuple[float, float] = (-np.inf, np.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.range
        if not low <= high:
            raise ValueError(f"{self.range} is not a range")

    def decide(self, X: Features) -> Array:
        return np.full(X.shape[0], np.nan)

    def estimate(self, X: Features) -> Array:
        return np.clip(self.score(X), *self.range)
