"""Plug-in classifiers of a flexible model, chosen by probabilities of rows it has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import CostSensitiveClassifier
from ratecli.models.probabilities import FactoredModel, ProbabilityModel
from ratecli.models.recent import take_rows
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.oracles.base import FitRows, OracleRows
from ratecli.solvers.oracles.choice import Scores, fit_probability_classifier
from ratecli.solvers.oracles.unseen import folds_of, hold_out
from ratecli.solvers.problem import Problem

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class FactoredPlugInOracle:
    """Decides positively where the expected cost of that is negative, as `PlugInOracle` does.

    The probability of a row's kind is that of its label times that of its group given its label.
    Boosted trees need one tree for each class in each round, so a fit of the labels and one of the
    groups for each label cost less than one of all kinds, and they err less: Adult .1402 instead of
    .1422, with a selection ratio of .8. The fit of the labels is the plain one, which other
    algorithms share. A label whose rows are all of one kind needs no fit.

    Probabilities of a model's own training rows are too sure, and rates chosen by them are missed
    on new rows: a recall of .8 on Adult by .07. `rows` can therefore be rows that the model has not
    seen: all of them, each with the probabilities of a model fitted to the other folds, or a share
    that is held out.

    Attributes
    ----------
    model
        The option that names a classifier with `predict_proba`.
    scores
        The option that says which rows and probabilities decide.
    """

    starts: ClassVar[bool] = False
    problem: Problem
    model: Any
    scores: Scores

    @cached_property
    def judged(self) -> Problem:
        """The problem on the rows by which the mixture is chosen."""
        return self.problem if self._held is None else self.problem.on(self._held[1])

    @cached_property
    def rows(self) -> OracleRows:
        """The rows of `judged`, none of them merged."""
        kinds, given = self._kinds, self.judged
        if self._held is not None:
            kinds = kinds.on(self._held[1])
        return OracleRows(given.X, kinds, kinds.shares, column_layout=given.column_layout)

    @cached_property
    def _held(self) -> tuple[Indices, Indices] | None:
        """The rows to fit to and those held out, None if none are."""
        match self.scores:
            case {"held_out": share}:
                return hold_out(self.problem, float(share))
        return None

    @cached_property
    def _kinds(self) -> RowKinds:
        """The kinds of all training rows."""
        return RowKinds.by(self.problem.rates)

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Weigh the probabilities by costs; raise FaultError, E501, if they cannot be fitted."""
        kinds, model = self._chances
        costs = self.rows.kind_costs(prices)[kinds]
        if model is None:
            return self.rows.constant(yes=bool(costs.sum() < 0))
        return CostSensitiveClassifier(model, costs)

    @cached_property
    def _chances(self) -> tuple[Indices, ProbabilityModel | None]:
        """The kinds that occur and the model of their probabilities; None if there is only one."""
        counted = self._kinds.weight > 0
        if self._held is not None:
            counted &= np.isin(self._kinds.row, self._held[0])
        used = np.flatnonzero(counted)
        kinds, model = self._fit(used)
        match self.scores:
            case {"folds": count} if model is not None:
                self.rows.remember(model, self._unseen(kinds, used, int(count)))
        return kinds, model

    def _unseen(self, kinds: Indices, used: Indices, count: int) -> Array:
        """Return the probabilities (n, Q) of `kinds`, by models fitted to the other folds."""
        X, fold = self.problem.X, folds_of(self.problem, count)
        found = np.zeros((len(fold), len(kinds)))
        for k in range(count):
            own = np.flatnonzero(fold == k)
            known, model = self._fit(used[fold[self._kinds.row[used]] != k])
            chances = 1.0 if model is None else model.probabilities(X[own])
            found[own[:, None], np.searchsorted(kinds, known)] = chances
        return found

    def _fit(self, entries: Indices) -> tuple[Indices, ProbabilityModel | None]:
        """Fit the probabilities of the kinds of some entries; None if there is only one kind."""
        kinds, own = np.unique(self._kinds.of[entries], return_inverse=True)
        if len(kinds) < 2:
            return kinds, None
        label_of = np.unique(self._kind_signs[kinds], return_inverse=True)[1]
        column, parts, after = np.zeros(len(kinds), dtype=np.intp), list[ProbabilityModel](), 1
        for label in range(label_of.max() + 1):
            same = np.flatnonzero(label_of == label)
            if len(same) > 1:
                inside = np.isin(own, same)
                chosen, classes = entries[inside], np.searchsorted(same, own[inside])
                parts.append(self._fit_classes(chosen, classes))
                column[same] = np.arange(after, after + len(same))
                after += len(same)
        if not label_of.any():
            return kinds, parts[0]
        labels = self._fit_classes(entries, label_of[own])
        return kinds, FactoredModel(labels, tuple(parts), label_of, column)

    def _fit_classes(self, entries: Indices, classes: Indices) -> ProbabilityModel:
        weights = self._kinds.weight[entries]
        X = take_rows(self.problem.X, self._kinds.row[entries])
        given = FitRows(X, self.problem.layout, classes, weights / weights.mean())
        rng = np.random.default_rng(self.problem.seed)
        return fit_probability_classifier(self.model, given, self.problem.l2, rng)

    @cached_property
    def _kind_signs(self) -> Array:
        """(Q,) label of the rows of each kind: 1, -1, or 0 if they have none."""
        signs, _ = self.problem.labels()
        found = np.zeros(self._kinds.count)
        found[self._kinds.of] = signs[self._kinds.row]
        return found
