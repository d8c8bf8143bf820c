"""Candidate selection for softmax policies of episodes, from importance-weighted returns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

from ratecli.certify.trees import SafetyTestSpec
from ratecli.models.base import Array, Features
from ratecli.models.policy import EpisodeReturns, Episodes, SoftmaxPolicy, state_basis
from ratecli.rates.affine import affine
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.options import Seldonian
from ratecli.solvers.seldonian.prediction import predict_safety_test
from ratecli.solvers.seldonian.score_models import Objective, RateObjective, WhitenedCoordinates
from ratecli.solvers.seldonian.selection import CandidateSelection


@dataclass(frozen=True)
class PolicyModel:
    """Policies on the steps of episodes X (n, d), as a `Design` and as a `Model` at the same time.

    A policy's weights are flat: D = b k, those of the first basis feature first. Its scores are
    those (m, k) of the actions in the distinct states.
    """

    X: Features
    episodes: Episodes
    low: Array
    high: Array
    numeric: bool = True
    """There are no probabilities of labels."""

    @classmethod
    def of(cls, problem: Problem) -> PolicyModel:
        """Return the steps of a problem's episodes."""
        assert problem.episodes is not None
        episodes = Episodes.of(problem.X, problem.episodes)
        states = episodes.states
        return cls(problem.X, episodes, states.min(axis=0), states.max(axis=0))

    @cached_property
    def basis(self) -> Array:
        """(m, b) basis features of the distinct states."""
        states, _ = self.episodes.distinct
        return state_basis(self.episodes.layout, states, self.low, self.high)

    @property
    def width(self) -> int:
        """Number of weights D = b k."""
        return self.episodes.layout.basis_size * len(self.episodes.layout.actions)

    def scores(self, w: Array) -> Array:
        return np.asarray(self.basis @ w.reshape(-1, len(self.episodes.layout.actions)))

    def pull(self, slopes: Array) -> Array:
        """Return slopes (D, ...) in the weights, given those (m, k, ...) in the scores."""
        found = np.tensordot(self.basis, slopes, axes=(0, 0))  # (b, k, ...)
        return np.asarray(found.reshape(-1, *slopes.shape[2:]))

    def some(self, chosen: NDArray[np.intp]) -> PolicyModel:  # noqa: ARG002
        """Return the same policies: the outputs select."""
        return self

    def outputs(self, scores: Array) -> EpisodeReturns:
        return EpisodeReturns(self.episodes, log_softmax(scores, axis=1))

    def classifier(self, w: Array) -> SoftmaxPolicy:
        weights = w.reshape(-1, len(self.episodes.layout.actions))
        return SoftmaxPolicy(weights, self.low, self.high, self.episodes.layout)


PESSIMISM = 2.0
"""Standard errors of the objective that are added to it while a candidate is sought."""


class ReturnTerm(NamedTuple):
    """A return in an objective: its coefficient, outcome, and the weights (n,) of episodes."""

    coefficient: float
    column: int
    share: Array


@dataclass(frozen=True)
class PessimisticObjective:
    """A sum of returns, estimated so that a policy cannot gain by leaving the log.

    Per-decision importance sampling is too high for policies that were chosen by it: they avoid
    what ended badly in the log, and their weights do not add up to 1. Therefore each return is
    `sum_t discount^t mean(rho_t y_t) / mean(rho_t)` (weighted per-decision importance sampling,
    Precup et al. 2000), which no policy can raise above the outcomes in the log, plus `PESSIMISM`
    standard errors, which grow as the effective number of episodes falls (compare Swaminathan and
    Joachims 2015).
    """

    terms: tuple[ReturnTerm, ...]
    constant: float

    def value(self, returns: EpisodeReturns) -> float:
        return self._value_and_factors(returns)[0]

    def slopes(self, returns: EpisodeReturns) -> Array:
        """Return the slopes (m, k) in the scores."""
        _, factors = self._value_and_factors(returns)
        return returns.pull(factors, np.ones((len(factors), 1)))[..., 0]

    def _value_and_factors(self, returns: EpisodeReturns) -> tuple[float, Array]:
        """Return the value, and its slopes (n, T) in the importance weights."""
        rho, episodes = returns.weights, returns.episodes
        value, influence, parts = self.constant, np.zeros(len(rho)), []
        for term in self.terms:
            y, share = episodes.outcomes[:, :, term.column], term.share[:, None]
            scale = term.coefficient * episodes.layout.discounts
            total = np.maximum((share * rho).sum(axis=0), np.finfo(float).tiny)
            means = (share * rho * y).sum(axis=0) / total
            apart = share * (y - means) * scale / total  # (n, T) slopes of the estimate
            value += float(scale @ means)
            influence += (rho * apart).sum(axis=1)
            parts.append((apart, share / total))
        factors = sum((apart for apart, _ in parts), np.zeros_like(rho))
        error = float(np.sqrt(influence @ influence))
        if not error > 0:
            return value, factors
        slopes = np.zeros_like(rho)
        for apart, part in parts:
            # the means and totals of each step change with the weights of all episodes
            by_mean = (influence[:, None] * rho * part).sum(axis=0)
            by_total = (influence[:, None] * rho * apart).sum(axis=0)
            slopes += influence[:, None] * apart - by_mean * apart - by_total * part
        return value + PESSIMISM * error, factors + PESSIMISM / error * slopes


def policy_objective(problem: Problem, model: PolicyModel) -> Objective:
    """Return what is minimized: pessimistic if the objective is a sum of returns."""
    form, rates = affine(problem.objective.expression), problem.rates
    allowed = {"return", "return_logged"}
    if form is None or any(leaf.rate.name not in allowed for leaf in form.coefficients):
        return RateObjective.of(problem.objective.expression, rates)
    outcomes, index = model.episodes.layout.outcomes, rates.index()
    terms = tuple(
        ReturnTerm(
            coefficient,
            outcomes.index(leaf.rate.outcome),
            rates.members[[index[leaf]]].toarray()[0] / rates.totals[index[leaf]],
        )
        for leaf, coefficient in form.coefficients.items()
        if leaf.rate.name == "return"  # no policy changes the others
    )
    return PessimisticObjective(terms, form.constant)


def fit_policy(problem: Problem) -> SoftmaxPolicy:
    """Return a local minimum of the objective plus `l2 / 2 |w|^2`, from the uniform policy."""
    model = PolicyModel.of(problem)
    objective = policy_objective(problem, model)

    def penalized(w: Array) -> tuple[float, Array]:
        outputs = model.outputs(model.scores(w))
        value = objective.value(outputs) + problem.l2 / 2 * float(w @ w)
        return value, model.pull(objective.slopes(outputs)) + problem.l2 * w

    return model.classifier(minimize(penalized, np.zeros(model.width), jac=True).x)


def policy_selection(
    options: Seldonian, problem: Problem, safety: SafetyTestSpec
) -> CandidateSelection:
    """Return the optimization problem of policies, predicting the given safety test."""
    model = PolicyModel.of(problem)
    start = np.zeros(model.width)
    outputs = model.outputs(model.scores(start))
    prediction = predict_safety_test(problem, safety, outputs, options.inflation, model)
    return CandidateSelection(
        model,
        policy_objective(problem, model),
        problem.l2,
        prediction,
        model,
        WhitenedCoordinates(start, np.ones(model.width)),
    )
