"""Logged decisions of the rows of a trial; propensities and outcomes estimated on training rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.config.dataset import LoggedSpec
from ratecli.datasets.columns import LazyMapping
from ratecli.datasets.logged import read_decisions
from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Features
from ratecli.models.layout import ColumnLayout
from ratecli.models.output_cache import class_probabilities, take_rows
from ratecli.models.policy import EpisodeLayout, Episodes
from ratecli.models.probabilities import ProbabilityModel
from ratecli.rates.expression import Leaf, to_text
from ratecli.rates.matrix import Predictions, measure
from ratecli.rates.sample import Floats, Logs, Mask, Sample
from ratecli.rates.table import EPISODE_WEIGHT, RATES
from ratecli.solvers.oracles.base import FitRows
from ratecli.solvers.oracles.choice import model_name
from ratecli.solvers.oracles.unseen import Indices, UnseenScores

FOLDS = 5
"""Training rows get the estimates of models that were fitted to other training rows."""
FIT_L2 = 1e-6
"""Regularization of a logistic regression of propensities without a `C` of its own."""
TRUTH_COLUMNS = ("{}_if_yes", "{}_if_no")
"""Columns of generated data with the outcome of either decision."""
WEIGHT_MOMENTS = ("importance_weight", "squared_importance_weight")
ROUNDING = 1e-9
"""Relative rounding error of an importance weight."""
MISFIT = 5.0
"""Standard errors by which the mean importance weight of an action may differ from 1."""


def logs_of(
    tables: Mapping[str, Table], sample: Sample, X: Features, layout: ColumnLayout
) -> Logs | None:
    """Return the logged decisions of the rows of all tables, None if no table has any.

    Raises
    ------
    FaultError
        E501 if a propensity cannot be estimated, E406 if an estimate is 0 or 1.
    """
    named = {name: table.logged for name, table in tables.items() if table.logged is not None}
    if not named:
        return None
    if any(columns.episode for columns in named.values()):  # outcomes of steps are in X
        none = np.full(len(sample), np.nan)
        return Logs(none, none, {})
    rows = _LoggedRows(named, sample, X, layout)
    outcomes = dict.fromkeys(name for each in named.values() for name in each.outcomes)
    known = [
        name for name in outcomes if all(c.format(name) in sample.columns for c in TRUTH_COLUMNS)
    ]
    truths = LazyMapping(known, partial(_truth, sample))
    return Logs(
        rows.action,
        rows.weight(),
        LazyMapping(outcomes, rows.outcome),
        LazyMapping(outcomes, rows.model),
        truths,
        exact=not any(map(logs_note, tables.values())),
    )


def logs_note(table: Table) -> str:
    """Return why values of the logged decisions of a table are not exact, "" if they are.

    Either propensities are estimated, or `max_weight` reduces a known importance weight.
    """
    columns = table.logged
    if columns is None:
        return ""
    most = f"{columns.weight_limit:g}"
    if columns.episode:  # their weights depend on the policy
        limited = math.isfinite(columns.weight_limit)
        return f"importance weights above {most} count as {most}" if limited else ""
    if columns.estimate:
        model = model_name(columns.estimate)
        clipped = (
            "" if math.isinf(columns.weight_limit) else f"; weights above {most} count as {most}"
        )
        return f"propensities are estimated by {model}, so values are approximate{clipped}"
    # of either action: rows whose rare action was not taken matter as much
    chance = _known_propensity(table.frame, columns, np.full(len(table.frame), True))
    largest = 1 / np.minimum(chance, 1 - chance)
    reduced = largest > columns.weight_limit * (1 + ROUNDING)
    reduced &= ~np.isnan(read_decisions(table.frame[columns.action], columns.action))
    if not reduced.any():
        return ""
    return (
        f"importance weights above {most} count as {most}, which {int(reduced.sum()):,} rows have "
        "for one of the actions, so values are biased"
    )


def _known_propensity(
    columns: Mapping[str, Any] | pd.DataFrame, logged: LoggedSpec, rows: Mask
) -> Floats:
    """Return the chance that action 1 is taken in some rows, by its column or number."""
    if isinstance(logged.propensity, str):
        return np.asarray(columns[logged.propensity][rows], dtype=np.float64)
    return np.full(int(rows.sum()), logged.propensity)


def _weight(action: Floats, propensity: Floats) -> Floats:
    """Return the importance weight (n,): 1 over the chance of the action; NaN without one."""
    chance = np.where(action == 1, propensity, 1 - propensity)
    with np.errstate(divide="ignore"):
        return np.where(np.isnan(action), np.nan, 1 / chance)


def _truth(sample: Sample, name: str) -> tuple[Floats, Floats]:
    yes, no = (_numbers(sample.columns[column.format(name)]) for column in TRUTH_COLUMNS)
    if np.isnan(yes + no).any():
        column = TRUTH_COLUMNS[int(not np.isnan(yes).any())].format(name)
        message = f"column '{column}' has cells that are not numbers"
        hint = "value_true needs the outcome of both decisions in every row"
        raise FaultError(Diagnostic("E406", message, hint))
    return yes, no


def _numbers(column: NDArray[Any]) -> Floats:
    """Return numbers, NaN for text and empty cells."""
    return np.asarray(pd.to_numeric(pd.Series(column), errors="coerce"), dtype=np.float64)


class _LoggedRows:
    """The rows of some data sets with logs."""

    def __init__(
        self,
        named: Mapping[str, LoggedSpec],
        sample: Sample,
        X: Features,
        layout: ColumnLayout,
    ) -> None:
        self.named, self.sample, self.X, self.layout = named, sample, X, layout
        self.action = np.full(len(sample), np.nan)
        for name, columns in named.items():
            own = sample.dataset == name
            read = read_decisions(sample.columns[columns.action][own], columns.action)
            self.action[own] = read

    def outcome(self, name: str) -> Floats:
        """Return the outcome (n,) of the logged decisions, NaN in data sets without any.

        Raises an E304 if a data set logs decisions but not this outcome.
        """
        values = np.full(len(self.sample), np.nan)
        for dataset, columns in self.named.items():
            if name not in columns.outcomes:
                message = f"'{dataset}' logs decisions, but no outcome '{name}' of them"
                hint = "add it to the outcomes there, or leave the data set out"
                loc = ("datasets", dataset, "logged", "outcomes")
                raise FaultError(Diagnostic("E304", message, hint, loc=loc))
            own = self.sample.dataset == dataset
            values[own] = self.sample.columns[name][own].astype(float)
        return values

    def weight(self) -> Floats:
        """Return the importance weights (n,)."""
        weight = np.full(len(self.sample), np.nan)
        for name, columns in self.named.items():
            own = (self.sample.dataset == name) & ~np.isnan(self.action)
            if columns.estimate:
                taken = self._estimates(name, columns.estimate, self.action, None)[own]
            else:
                taken = _known_propensity(self.sample.columns, columns, own)
            found = _weight(self.action[own], taken)
            weight[own] = np.minimum(found, columns.weight_limit)
            if not np.isfinite(weight[own]).all():
                message = f"an estimated propensity of '{columns.action}' is 0 or 1"
                hint = "use a smoother classifier, such as LogisticRegression, or set max_weight"
                loc = ("datasets", name, "logged", "propensity")
                raise FaultError(Diagnostic("E406", message, hint, loc=loc))
        return weight

    def model(self, outcome: str) -> tuple[Floats, Floats]:
        """Return the expected outcome (n,) of a positive and of a negative decision, by a model."""
        values = self.outcome(outcome)
        yes, no = np.full((2, len(self.sample)), np.nan)
        for name, columns in self.named.items():
            own, model = self.sample.dataset == name, columns.outcome_model or "Ridge"
            for side, action in ((yes, 1), (no, 0)):
                side[own] = self._estimates(name, model, values, action)[own]
        return yes, no

    def _estimates(self, dataset: str, model: object, values: Floats, action: int | None) -> Floats:
        """Return a model's estimates of `values` in the rows (n,) of a data set; NaN elsewhere.

        The model is fitted to the training rows with this `action`. If `action` is None, `values`
        are actions, and the result is the probability of action 1. Training rows get
        estimates by a model that was fitted to other ones.
        """
        from ratecli.solvers.oracles.estimators import fit_named  # noqa: PLC0415  scikit-learn is slow

        def fit(rows: Indices) -> ProbabilityModel:
            kept = rows if action is None else rows[self.action[rows] == action]
            targets: NDArray[Any] = values[kept]
            if action is None:
                targets = targets.astype(np.intp)
            if not len(kept) or (action is None and len(np.unique(targets)) < 2):
                rare = "one of the actions" if action is None else f"action {action}"
                message = f"too few training rows of '{dataset}' have {rare} to estimate "
                message += "propensities" if action is None else "its outcomes"
                hint = "use more rows, known propensities, or no value_doubly_robust"
                raise FaultError(Diagnostic("E408", message, hint))
            given = FitRows(take_rows(self.X, kept), self.layout, targets, np.ones(len(kept)))
            return fit_named(model, given, FIT_L2, np.random.default_rng(0))

        def score(fitted: ProbabilityModel, rows: Indices) -> Floats:
            return class_probabilities(fitted, take_rows(self.X, rows))[:, int(action is None)]

        own = (self.sample.dataset == dataset) & ~np.isnan(self.action)
        train = own & (self.sample.part == "train")
        rows, others = np.flatnonzero(train), np.flatnonzero(own & ~train)
        folds = UnseenScores.in_folds(np.random.default_rng(0).permutation(len(rows)) % FOLDS, rows)
        unseen = UnseenScores(rows, np.flatnonzero(own), (*folds.parts, (rows, others)))
        found = np.full(len(self.sample), np.nan)
        found[own] = unseen.scores(fit, score)
        return found


def effective_rows(
    sample: Sample, split: str, leaves: Iterable[Leaf], predicted: Predictions
) -> dict[str, float]:
    """Return the effective number of rows of each rate of logged decisions, by its text.

    An unweighted mean of as many rows would have about the same variance (Kish 1965).
    """
    found = {}
    for leaf in leaves:
        rows = sample.rows(leaf.where, leaf.split or split)
        if leaf.rate.weight_power and leaf.rate.outcome:
            moments = [Leaf(RATES[name], leaf.where, leaf.split) for name in WEIGHT_MOMENTS]
            mean, square = measure(moments, sample, split, predicted)
            count = sample.counted(rows & sample.mask("logged"))
            found[to_text(leaf)] = count * mean**2 / square if square > 0 else 0.0
        elif leaf.rate.name in {"return", "return_ordinary"}:
            weights = predicted.returns[EPISODE_WEIGHT][rows]
            found[to_text(leaf)] = float(weights.sum() ** 2 / (weights**2).sum())
    return found


def misfits(sample: Sample, X: Features, episodes: EpisodeLayout | None) -> Iterator[Diagnostic]:
    """Yield a W409 for each data set whose known propensities do not fit its actions.

    If they are right, the mean importance weight of the rows (steps of episodes) of any action is
    1.
    """
    logs = sample.logs
    if logs is None or not (logs.exact or episodes):
        return
    for name in np.unique(sample.dataset).tolist():
        own = sample.dataset == name
        if episodes is None:
            found = _row_weights(logs, own)
        else:
            found = _step_weights(Episodes.of(take_rows(X, np.flatnonzero(own)), episodes))
        for action, weights, variances in found:
            mean, error = weights.mean(), np.sqrt(variances.sum()) / len(weights)
            if abs(mean - 1) > MISFIT * error + ROUNDING:
                message = (
                    f"the propensities of '{name}' do not fit its actions: rows with action "
                    f"{action} have a mean importance weight of {mean:.3g} instead of 1"
                )
                meant = "action 1" if episodes is None else "the action that was taken"
                hint = f"the propensity is the chance of {meant}; each action needs one above 0"
                yield Diagnostic("W409", message, hint, loc=("datasets", name, "logged"))


def _row_weights(logs: Logs, own: Mask) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield each action, the weights of rows that have it (else 0), and their variances."""
    own = own & ~np.isnan(logs.action)
    if not own.any():
        return
    taken, weight = logs.action[own] == 1, logs.weight[own]
    for action, rows in (("1", taken), ("0", ~taken)):
        chance = np.where(rows, 1 / weight, 1 - 1 / weight)
        yield action, np.where(rows, weight, 0.0), 1 / chance - 1


def _step_weights(episodes: Episodes) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield the same of steps; the variances are estimates, 0 for actions not taken."""
    taken, weight = episodes.action[episodes.present], 1 / episodes.propensity[episodes.present]
    for number, action in enumerate(episodes.layout.actions):
        weights = np.where(taken == number, weight, 0.0)
        yield action, weights, weights * (weight - 1)
