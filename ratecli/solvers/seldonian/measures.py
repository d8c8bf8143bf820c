"""Smooth measurements of models with a linear score (decision, error, losses), and their slopes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

from ratecli.models.base import Array, Classifier
from ratecli.models.linear import LinearRegressor, RandomizedLogistic
from ratecli.rates.interval import Interval
from ratecli.solvers.problem import Problem


class Measurements(ABC):
    """Measurements of n rows at their scores, by name, with slopes in the scores."""

    @abstractmethod
    def measured(self, of: str) -> Array:
        """Return (n,) values of a `rates.table.Measurement`; 0 on rows without a label."""

    @abstractmethod
    def slopes(self, of: str) -> Array:
        """Return the derivatives (n,) of `measured` in the scores."""


@dataclass(frozen=True)
class ProbabilityMeasurements(Measurements):
    """Positive with probability sigmoid(score), which is also the estimate of a label of 0 or 1.

    Decisions may use a steeper function, sigmoid(sharpness * score).
    """

    scores: Array
    label: Array
    sharpness: float = 1.0

    @cached_property
    def chances(self) -> Array:
        return np.asarray(expit(self.scores))

    @cached_property
    def decisions(self) -> Array:
        return self.chances if self.sharpness == 1 else expit(self.sharpness * self.scores)

    @cached_property
    def residuals(self) -> Array:
        return np.nan_to_num(self.chances - self.label)

    def measured(self, of: str) -> Array:
        match of:
            case "decision":
                return self.decisions
            case "error":
                return self.residuals
            case "squared_error":
                return self.residuals**2
            case "log_loss":
                lost = np.logaddexp(0.0, self.scores) - self.label * self.scores
                return np.nan_to_num(lost)
        raise KeyError(of)

    def slopes(self, of: str) -> Array:
        if of == "log_loss":
            return self.residuals
        if of == "decision":
            return self.sharpness * self.decisions * (1 - self.decisions)
        own = self.chances * (1 - self.chances)
        return 2 * self.residuals * own if of == "squared_error" else own


@dataclass(frozen=True)
class EstimateMeasurements(Measurements):
    """The score, clipped to the range of the label, is the estimate; there are no decisions."""

    scores: Array
    label: Array
    range: Interval

    @cached_property
    def residuals(self) -> Array:
        return np.nan_to_num(np.clip(self.scores, *self.range) - self.label)

    def measured(self, of: str) -> Array:
        match of:
            case "error":
                return self.residuals
            case "squared_error":
                return self.residuals**2
        return np.full(len(self.scores), np.nan)

    def slopes(self, of: str) -> Array:
        low, high = self.range
        inside = ((self.scores >= low) & (self.scores <= high)).astype(float)
        return 2 * self.residuals * inside if of == "squared_error" else inside


@dataclass(frozen=True)
class DecisionMeasurements(Measurements):
    """Given decisions, 0 and 1 or probabilities, without slopes."""

    decisions: Array

    def measured(self, of: str) -> Array:
        if of == "decision":
            return self.decisions
        return np.full(len(self.decisions), np.nan)

    def slopes(self, of: str) -> Array:  # noqa: ARG002
        return np.zeros(len(self.decisions))


@dataclass(frozen=True)
class ScoreModel:
    """Linear models of labels (n,), NaN where missing: classes 0 and 1, or numbers in a range.

    `sharpness` is that of `ProbabilityMeasurements`.
    """

    label: Array
    numeric: bool
    range: Interval = (0.0, 1.0)
    sharpness: float = 1.0

    def said(self, scores: Array) -> Measurements:
        if self.numeric:
            return EstimateMeasurements(scores, self.label, self.range)
        return ProbabilityMeasurements(scores, self.label, self.sharpness)

    def classifier(self, w: Array) -> Classifier:
        if self.numeric:
            return LinearRegressor(w[:-1], float(w[-1]), self.range)
        return RandomizedLogistic(w[:-1], float(w[-1]))


def score_model_of(problem: Problem) -> ScoreModel:
    """Return the model of labels 0 and 1, or of numbers; raise E306 if no row has a label."""
    if problem.label_range is not None:
        return ScoreModel(problem.label, numeric=True, range=problem.label_range)
    signs, _ = problem.labels()
    return ScoreModel(np.where(signs == 0, np.nan, signs > 0), numeric=False)
