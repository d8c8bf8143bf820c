"""Softmax policies of episodes, and the importance-weighted returns of logged episodes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from ratecli.models.base import Array, Classifier, Features, width_of
from ratecli.rates.sample import make_read_only
from ratecli.rates.table import return_key

NO_ACTION = -1.0
"""The action of steps after the end of an episode."""


@dataclass(frozen=True)
class EpisodeLayout:
    """How the features of an episode, one row (T * (2 + r + d),), are made of its T steps.

    Each step has the number of the action, its propensity, r outcomes and d state features. Steps
    after the end have the action `NO_ACTION`, the propensity 1 and zeros.

    Attributes
    ----------
    outcomes, lows, highs
        The names of the outcomes, and the smallest and largest possible value of each.
    actions, states
        Names of the k actions and of the d state features.
    steps
        Number of steps T.
    discount
        Factor of an outcome for each step before it.
    max_weight
        Larger importance weights count as this one.
    fourier
        Order of the Fourier basis of state features; 0 for the features and a constant.
    """

    outcomes: tuple[str, ...]
    lows: Array
    highs: Array
    actions: tuple[str, ...]
    states: tuple[str, ...]
    steps: int
    discount: float = 1.0
    max_weight: float = np.inf
    fourier: int = 0

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def width(self) -> int:
        """Number of features of an episode."""
        return self.steps * (2 + len(self.outcomes) + len(self.states))

    @property
    def discounts(self) -> Array:
        """(T,) factor of the outcomes of each step."""
        return np.asarray(self.discount ** np.arange(self.steps), dtype=float)

    @property
    def coefficients(self) -> Array:
        """(b, d) whole multiples of pi in the Fourier basis (Konidaris et al. 2011)."""
        counts = range(self.fourier + 1)
        return np.array(list(itertools.product(counts, repeat=len(self.states))), dtype=float)

    @property
    def basis_size(self) -> int:
        """b, the number of basis features of a state."""
        states = len(self.states)
        return (self.fourier + 1) ** states if self.fourier else states + 1


@dataclass(frozen=True)
class Episodes:
    """Logged episodes in the order of their steps.

    Attributes
    ----------
    layout
        Their layout.
    action, propensity
        (n, T) number of the action, or `NO_ACTION`, and the chance with which it was taken.
    outcomes
        (n, T, r) outcomes, 0 after the end.
    states
        (S, d) state features of the S steps before the ends, episode by episode.
    """

    layout: EpisodeLayout
    action: Array
    propensity: Array
    outcomes: Array
    states: Array

    @classmethod
    def of(cls, X: Features, layout: EpisodeLayout) -> Episodes:
        """Return the episodes of features (n, T * (2 + r + d))."""
        dense = X if isinstance(X, np.ndarray) else X.toarray()
        parts = dense.reshape(len(dense), layout.steps, -1)
        action, r = parts[:, :, 0], len(layout.outcomes)
        outcomes, states = parts[:, :, 2 : 2 + r], parts[action != NO_ACTION][:, 2 + r :]
        return cls(layout, action, parts[:, :, 1], outcomes, states)

    @cached_property
    def present(self) -> NDArray[np.bool_]:
        """(n, T) which steps are before the end."""
        return np.asarray(self.action != NO_ACTION)

    @cached_property
    def distinct(self) -> tuple[Array, NDArray[np.intp]]:
        """(m, d) the distinct states, and (S,) the number of each step's state among them."""
        states, of = np.unique(self.states, axis=0, return_inverse=True)
        return states, of.ravel()

    @cached_property
    def cells(self) -> NDArray[np.intp]:
        """(S,) the number of each step's pair of distinct state and action: `state k + action`."""
        taken = self.action[self.present].astype(np.intp)
        return self.distinct[1] * len(self.layout.actions) + taken

    @cached_property
    def log_propensities(self) -> Array:
        """(S,) logarithm of the propensity of each step."""
        return np.log(self.propensity[self.present])

    @cached_property
    def factors(self) -> dict[str, EpisodeFactors]:
        """How the returns of each key are made of importance weights."""
        last = np.broadcast_to(np.eye(self.layout.steps)[-1], self.action.shape)
        found = {
            "episode_weight": EpisodeFactors(last),
            "squared_episode_weight": EpisodeFactors(last, power=2),
        }
        ends = zip(self.layout.lows.tolist(), self.layout.highs.tolist(), strict=True)
        for column, (low, high) in enumerate(ends):
            gains, discounts = self.outcomes[:, :, column], self.layout.discounts
            gains = gains * discounts
            above, below = min(low, 0.0) * discounts, max(high, 0.0) * discounts
            own = {
                "return": EpisodeFactors(gains),
                "return_ordinary": EpisodeFactors(gains.sum(axis=1, keepdims=True) * last),
                "return_logged": EpisodeFactors(gains, power=0),
                "return_above": EpisodeFactors(gains - above, constant=float(above.sum())),
                "return_below": EpisodeFactors(gains - below, constant=float(below.sum())),
            }
            outcome = self.layout.outcomes[column]
            found |= {return_key(name, outcome): each for name, each in own.items()}
        return found


class EpisodeFactors(NamedTuple):
    """A sum over steps of `weight ** power * factors` plus a constant; factors are (n, T)."""

    factors: Array
    power: int = 1
    constant: float = 0.0


def state_basis(layout: EpisodeLayout, states: Array, low: Array, high: Array) -> Array:
    """Return (S, b) basis features of states (S, d) with ranges from low to high (d,)."""
    scaled = np.clip((states - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    if layout.fourier:
        return np.asarray(np.cos(np.pi * scaled @ layout.coefficients.T))
    return np.column_stack([scaled, np.ones(len(states))])


class EpisodeReturns(Mapping[str, Array]):
    """Importance-weighted returns (n,) of episodes, by key (`rates.table.return_key`).

    Let rho_t be the product of the ratios of the policy's chance of the logged action to its
    propensity, up to step t, at most `max_weight`; after the end it remains the last one.

    return
        `sum_t discount^t rho_t r_t`, per-decision importance sampling (Precup et al. 2000).
    return_ordinary
        `rho_T sum_t discount^t r_t`, ordinary importance sampling.
    return_logged
        `sum_t discount^t r_t`.
    return_above, return_below
        Per-decision importance sampling of `r_t - low` plus the return of `low` in each of the T
        steps, and of `r_t - high`. They have the same mean as `return`, or less and more if weights
        are clipped, and only one end is unbounded.
    episode_weight, squared_episode_weight
        rho_T and its square.
    """

    def __init__(self, episodes: Episodes, log_chances: Array) -> None:
        """Take the logarithms (m, k) of the policy's chances of actions in the distinct states."""
        self.episodes, self.log_chances = episodes, log_chances
        ratios = np.zeros(episodes.action.shape)
        own = log_chances.ravel()[episodes.cells]
        ratios[episodes.present] = own - episodes.log_propensities
        sums, most = np.cumsum(ratios, axis=1), np.log(episodes.layout.max_weight)
        self.free = sums < most
        self.weights = np.exp(np.minimum(sums, most))

    def __len__(self) -> int:
        return len(self.episodes.factors)

    def __iter__(self) -> Iterator[str]:
        return iter(self.episodes.factors)

    def __getitem__(self, key: str) -> Array:
        factors, power, constant = self.episodes.factors[key]
        return np.asarray(np.einsum("nt,nt->n", self.weights**power, factors) + constant)

    def slopes(self, key: str, by: Array, rows: NDArray[np.intp] | slice = np.s_[:]) -> Array:
        """Return slopes (m, k, c) of `by.T @ self[key][rows]` in the scores of actions in states.

        `by` are (n_g, c), one row for each of `rows`.
        """
        factors, power, _ = self.episodes.factors[key]
        if power == 0:
            return np.zeros((*self.log_chances.shape, by.shape[1]))
        whole = np.zeros((len(self.weights), by.shape[1]))
        whole[rows] = by
        return self.pull(power * self.weights ** (power - 1) * factors, whole)

    def pull(self, factors: Array, by: Array) -> Array:
        """Return slopes (m, k, c) in the scores, given those in the weights: `factors * by`.

        `factors` are (n, T) and `by` (n, c).
        """
        terms = self.weights * self.free * factors
        later = np.cumsum(terms[:, ::-1], axis=1)[:, ::-1]  # what each step's ratio multiplies
        present, cells = self.episodes.present, self.episodes.cells
        sums = [
            np.bincount(cells, (later * column[:, None])[present], self.log_chances.size)
            for column in by.T
        ]
        found = np.stack(sums, axis=-1).reshape(*self.log_chances.shape, by.shape[1])
        chances = np.exp(self.log_chances)[:, :, None]
        return np.asarray(found - chances * found.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class SoftmaxPolicy(Classifier):
    """Takes action a in a state with a chance proportional to `exp(weights[:, a] @ basis)`.

    Attributes
    ----------
    weights
        (b, k) weights of the basis features for each action.
    low, high
        (d,) range of each state feature, which scales it to [0, 1].
    episodes
        The layout of the logged episodes that it was trained on.
    """

    weights: Array
    low: Array
    high: Array
    episodes: EpisodeLayout

    def __post_init__(self) -> None:
        make_read_only(self)
        shape = self.episodes.basis_size, len(self.episodes.actions)
        if self.weights.shape != shape or len(self.low) != len(self.episodes.states):
            raise ValueError(f"weights of shape {self.weights.shape} instead of {shape}")
        if not np.isfinite(self.weights).all():
            raise ValueError("weights of a policy must be finite numbers")

    width = width_of("episodes")

    def chances(self, states: Array) -> Array:
        """Return (S, k) chances of `episodes.actions` in states (S, d) of `episodes.states`."""
        return np.exp(self._log_chances(states))

    def _log_chances(self, states: Array) -> Array:
        basis = state_basis(self.episodes, states, self.low, self.high)
        return np.asarray(log_softmax(basis @ self.weights, axis=1))

    def returns(self, X: Features) -> EpisodeReturns:
        """Return the importance-weighted returns of logged episodes."""
        given = Episodes.of(X, self.episodes)
        return EpisodeReturns(given, self._log_chances(given.distinct[0]))

    def decide(self, X: Features) -> Array:
        """Return NaN (n,): an episode has no single decision."""
        return np.full(X.shape[0], np.nan)

    def score(self, X: Features) -> Array:
        return self.decide(X)

    def estimate(self, X: Features) -> Array:
        return self.decide(X)
