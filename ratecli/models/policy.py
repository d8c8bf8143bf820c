"""Softmax policies of episodes, and the importance-weighted returns of logged episodes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from ratecli.models.base import Array, Classifier, Features
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
    actions, states, steps
        Numbers of actions k, state features d, and steps T.
    discount
        Factor of an outcome for each step before it.
    max_weight
        Larger importance weights count as this one.
    fourier
        Order of the Fourier basis of state features; 0 for the features and a constant.
    """

    kind: ClassVar[str] = "episodes"
    outcomes: tuple[str, ...]
    lows: Array
    highs: Array
    actions: int
    states: int
    steps: int
    discount: float = 1.0
    max_weight: float = np.inf
    fourier: int = 0

    @property
    def width(self) -> int:
        """Number of features of an episode."""
        return self.steps * (2 + len(self.outcomes) + self.states)

    @property
    def discounts(self) -> Array:
        """(T,) factor of the outcomes of each step."""
        return np.asarray(self.discount ** np.arange(self.steps), dtype=float)

    @property
    def coefficients(self) -> Array:
        """(b, d) whole multiples of pi in the Fourier basis (Konidaris et al. 2011)."""
        counts = range(self.fourier + 1)
        return np.array(list(itertools.product(counts, repeat=self.states)), dtype=float)

    @property
    def basis_size(self) -> int:
        """b, the number of basis features of a state."""
        return (self.fourier + 1) ** self.states if self.fourier else self.states + 1


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
    def taken(self) -> NDArray[np.intp]:
        """(S,) the action of each step."""
        return self.action[self.present].astype(np.intp)

    def basis(self, low: Array, high: Array) -> Array:
        """Return (S, b) basis features of the states, which have ranges from low to high (d,)."""
        return state_basis(self.layout, self.states, low, high)


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
        """Take the logarithms (S, k) of the policy's chances of each action."""
        self.episodes, self.log_chances = episodes, log_chances
        layout = episodes.layout
        ratios = np.zeros(episodes.action.shape)
        own = log_chances[np.arange(len(log_chances)), episodes.taken]
        ratios[episodes.present] = own - np.log(episodes.propensity[episodes.present])
        sums = np.cumsum(ratios, axis=1)
        self.free = sums < np.log(layout.max_weight)
        self.weights = np.exp(np.minimum(sums, np.log(layout.max_weight)))
        self._keys = {
            return_key(name, outcome): (name, column)
            for column, outcome in enumerate(layout.outcomes)
            for name in RETURNS
        } | {name: (name, 0) for name in EPISODE_WEIGHTS}

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> itertools.chain[str]:
        return itertools.chain(self._keys)

    def __getitem__(self, key: str) -> Array:
        weighted, factors = self._terms(key)
        weights = np.where(weighted, self.weights, 1.0)
        if key == "squared_episode_weight":
            weights = weights**2
        return np.asarray((weights * factors).sum(axis=1)) + self._constant(key)

    def _terms(self, key: str) -> tuple[bool, Array]:
        """Return whether steps are weighted, and the factor (n, T) of each step's weight."""
        name, column = self._keys[key]
        layout = self.episodes.layout
        gains = self.episodes.outcomes[:, :, column] * layout.discounts
        last = np.zeros(layout.steps)
        last[-1] = 1.0
        match name:
            case "return_ordinary":
                return True, gains.sum(axis=1, keepdims=True) * last
            case "episode_weight" | "squared_episode_weight":
                return True, np.broadcast_to(last, gains.shape)
            case "return_above":
                return True, gains - min(layout.lows[column], 0.0) * layout.discounts
            case "return_below":
                return True, gains - max(layout.highs[column], 0.0) * layout.discounts
        return name == "return", gains

    def _constant(self, key: str) -> float:
        name, column = self._keys[key]
        layout = self.episodes.layout
        ends = {
            "return_above": min(layout.lows[column], 0.0),
            "return_below": max(layout.highs[column], 0.0),
        }
        return float(ends.get(name, 0.0) * layout.discounts.sum())

    def slopes(self, key: str, coefficients: Array) -> Array:
        """Return (S, k, c) slopes of `coefficients.T @ self[key]` in the scores of the actions.

        `coefficients` are (n, c).
        """
        weighted, factors = self._terms(key)
        if not weighted:
            return np.zeros((*self.log_chances.shape, coefficients.shape[1]))
        weights = self.weights * self.free
        weights = 2 * weights**2 if key == "squared_episode_weight" else weights
        terms = weights * factors
        later = np.cumsum(terms[:, ::-1], axis=1)[:, ::-1]  # what each step's ratio multiplies
        steps = (later[:, :, None] * coefficients[:, None, :])[self.episodes.present]
        chosen = np.eye(self.log_chances.shape[1])[self.episodes.taken] - np.exp(self.log_chances)
        return np.asarray(chosen[:, :, None] * steps[:, None, :])


RETURNS = ("return", "return_ordinary", "return_logged", "return_above", "return_below")
EPISODE_WEIGHTS = ("episode_weight", "squared_episode_weight")


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

    kind: ClassVar[str] = "policy"
    weights: Array
    low: Array
    high: Array
    episodes: EpisodeLayout

    def __post_init__(self) -> None:
        shape = self.episodes.basis_size, self.episodes.actions
        if self.weights.shape != shape or len(self.low) != self.episodes.states:
            raise ValueError(f"weights of shape {self.weights.shape} instead of {shape}")

    @property
    def width(self) -> int:
        return self.episodes.width

    def chances(self, states: Array) -> Array:
        """Return (S, k) chances of the actions in states (S, d)."""
        basis = state_basis(self.episodes, states, self.low, self.high)
        return np.asarray(np.exp(log_softmax(basis @ self.weights, axis=1)))

    def returns(self, X: Features) -> EpisodeReturns:
        """Return the importance-weighted returns of logged episodes."""
        given = Episodes.of(X, self.episodes)
        scores = given.basis(self.low, self.high) @ self.weights
        return EpisodeReturns(given, log_softmax(scores, axis=1))

    def decide(self, X: Features) -> Array:
        """Return NaN (n,): an episode has no single decision."""
        return np.full(X.shape[0], np.nan)

    def score(self, X: Features) -> Array:
        return self.decide(X)

    def estimate(self, X: Features) -> Array:
        return self.decide(X)
