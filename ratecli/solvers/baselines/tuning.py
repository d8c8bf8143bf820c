"""The choice among settings of a model, by its loss on rows that it has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ratecli.models.base import Array, Classifier, Features
from ratecli.models.composed import ProbabilityThreshold
from ratecli.models.linear import Logistic
from ratecli.models.recent import array_digest
from ratecli.solvers.baselines.scores import fit_model
from ratecli.solvers.fit_cache import FitCache
from ratecli.solvers.oracles.choice import tuned_models
from ratecli.solvers.oracles.unseen import folds_by_label
from ratecli.solvers.problem import Problem

if TYPE_CHECKING:
    from ratecli.solvers.baselines.scores import ModelOptions

TUNING_FOLDS = 5
RECENT_CHOICES = 8
"""Number of most recent choices that are kept: a trial may solve its problem several times."""
_recent_losses = FitCache[list[float]](RECENT_CHOICES)
SMALLEST_CHANCE = float(np.finfo(float).eps)
"""A smaller probability of the true label counts as this in a log loss, as in scikit-learn."""


def choose_model(
    options: ModelOptions, problem: Problem
) -> tuple[Any, tuple[Mapping[str, Any], ...]]:
    """Return the option `model` with the best of the settings of `tune`, and a row for each.

    The loss is the mean log loss, or the error of a model without probabilities, on validation
    rows if there are some, else on each fold of the training rows by a model of the other folds.
    Of equal settings, the first is chosen. The goals have no influence: algorithms that tune the
    same model to the same rows choose the same setting and share the fits.

    Raises
    ------
    FaultError
        E306 if no row has a label, E501 if a model cannot be fitted.
    """
    settings = tuned_models(options.model, options.tune or {})

    def losses_of_settings() -> list[float]:
        models = (model for _, model in settings)
        return [_unseen_loss(replace(options, model=model, tune=None), problem) for model in models]

    parts = [part for part in (problem, problem.validation) if part is not None]
    said = settings, problem.layout.levels.tolist(), problem.l2, problem.seed
    key = b"".join(array_digest(said, part.X, *part.labels()) for part in parts)
    losses = _recent_losses.get(key, losses_of_settings)
    best = int(np.argmin(losses))
    rows = tuple(
        {"setting": setting, "loss": loss, "chosen": k == best}
        for k, ((setting, _), loss) in enumerate(zip(settings, losses, strict=True))
    )
    return settings[best][1], rows


def _unseen_loss(options: ModelOptions, problem: Problem) -> float:
    if problem.validation is not None:
        signs, weights = problem.validation.labels()
        classifier, _ = fit_model(options, problem)
        return float(weights @ _losses(classifier, problem.validation.X, signs))
    signs, weights = problem.labels()
    losses, fold = np.empty(len(signs)), folds_by_label(problem, TUNING_FOLDS)
    for k in np.unique(fold):
        own = fold == k
        classifier, _ = fit_model(options, problem.on(np.flatnonzero(~own)))
        losses[own] = _losses(classifier, problem.X[own], signs[own])
    return float(weights @ losses)


def _losses(classifier: Classifier, X: Features, signs: Array) -> Array:
    """Return the loss (n,) of rows with labels of these signs."""
    if not isinstance(classifier, ProbabilityThreshold | Logistic):
        return np.asarray(classifier.decide(X) != (signs > 0), dtype=float)
    chance = classifier.estimate(X)
    true = np.where(signs > 0, chance, 1 - chance)
    return np.asarray(-np.log(np.maximum(true, SMALLEST_CHANCE)))
