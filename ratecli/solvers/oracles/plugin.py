"""The oracle that an option names, and oracles that fit classifiers.

These are fitted to cheaper decisions, or once to the probabilities of kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
from scipy import sparse

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import (
    ARGMAX_COSTS,
    CostSensitiveClassifier,
    GroupThreshold,
    append_memberships,
)
from ratecli.models.linear import Threshold
from ratecli.models.output_cache import take_rows
from ratecli.models.probabilities import FactoredModel, ProbabilityModel, SklearnModel
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.oracles.base import FitRows, Oracle, OracleRows, as_linear_threshold
from ratecli.solvers.oracles.choice import (
    LINEAR_ORACLE,
    REGRESSION_ORACLE,
    Scores,
    oracle_uses_groups,
)
from ratecli.solvers.oracles.linear_search import LinearOracle, PairedRegressionOracle
from ratecli.solvers.oracles.model_names import PLUGIN_ORACLE, NamedOptions
from ratecli.solvers.oracles.unseen import Indices, UnseenScores
from ratecli.solvers.problem import ERROR_RATE, Groups, Problem

KindModel: TypeAlias = tuple[Indices, ProbabilityModel | None]
"""Kinds in ascending order and the model of their probabilities; None if there is only one."""


def make_unseen_oracle(
    value: Any, scores: Scores, problem: Problem
) -> tuple[PlugInOracle, Problem]:
    """Return the plug-in oracle of a flexible model, and the problem on the rows that judge it.

    Boosted trees need one tree for each class in each round, so a fit of the labels and one of the
    groups for each label cost less than one of all kinds, and they err less: Adult .1402 instead of
    .1422, with a selection ratio of .8. The fit of the labels is the plain one, which other
    algorithms share. `scores` says by which probabilities of which rows classifiers are chosen.

    Raises
    ------
    FaultError
        E410 if there are too few rows for the folds or to hold some out.
    """
    unseen, kinds = UnseenScores.of(scores, problem), RowKinds.by(problem.rates)
    trained = OracleRows(problem.X, kinds, kinds.shares, column_layout=problem.column_layout)
    rows, judged = trained, problem
    if len(unseen.scored) < problem.X.shape[0]:
        judged, own = problem.on(unseen.scored), kinds.on(unseen.scored)
        rows = OracleRows(judged.X, own, own.shares, column_layout=problem.column_layout)
    signs, _ = problem.labels()
    labels = np.zeros(kinds.count)
    labels[kinds.of] = signs[kinds.row]
    random = partial(np.random.default_rng, problem.seed)
    fit = ClassFit(value, problem.l2, None, random)
    return PlugInOracle(rows, trained, fit, unseen=unseen, labels=labels), judged


@dataclass(frozen=True)
class ClassFit:
    """Fits new classifiers that a checked option names to rows of some classes.

    Attributes
    ----------
    l2
        Regularization of a logistic regression without a `C` of its own.
    total
        What the weights are scaled to add up to; by default the number of rows.
    make_rng
        Returns the generator that a fit is seeded from.
    """

    model: Any
    l2: float
    total: int | None
    make_rng: Callable[[], np.random.Generator]

    def __call__(
        self, rows: OracleRows, used: Indices, classes: Indices, weights: Array
    ) -> ProbabilityModel:
        """Fit to the features (without slices) of rows `used` (m,) of classes (m,).

        Raises
        ------
        FaultError
            E501 if the classifier rejects the rows or its options, or cannot be stored.
        """
        # imports scikit-learn, which takes longer than most trials of linear models
        from ratecli.solvers.oracles.estimators import fit_named

        total = self.total or len(used)
        X = take_rows(rows.X[:, : rows.width] if rows.slices else rows.X, used)
        scaled = weights * (total / weights.sum()) if self.total else weights / weights.mean()
        given = FitRows(X, rows.layout, classes, scaled)
        return fit_named(self.model, given, self.l2, self.make_rng(), total=total)


@dataclass(frozen=True)
class ClassifierOracle:
    """Fits a classifier to the cheaper decision of each row, weighted by the difference in cost.

    Rows where a positive decision has negative cost get label 1, and the absolute cost is the
    weight. Then the weighted error is the cost up to a constant (Agarwal et al. 2018, section 3.2;
    Algorithm 1 of Narasimhan et al. 2019 requires no more).
    """

    starts: ClassVar[bool] = False
    rows: OracleRows
    fit: ClassFit

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Fit the classifier; raise FaultError, E501, if it rejects its options or the rows."""
        costs = self.rows.costs(prices)
        used = np.flatnonzero(costs)
        cheap = costs[used] < 0
        if cheap.all() or not cheap.any():
            return self.rows.constant(yes=bool(cheap.all()))
        model = self.fit(self.rows, used, cheap.astype(np.intp), np.abs(costs[used]))
        line = as_linear_threshold(model.model) if isinstance(model, SklearnModel) else None
        return line or CostSensitiveClassifier(model, ARGMAX_COSTS)


OUTER_THRESHOLD = 2.0
"""A threshold beyond all scores, which are differences of two probabilities."""


@dataclass(frozen=True)
class PlugInOracle:
    """Decides positively where the expected cost of that is negative.

    This is the plug-in classifier of COCO (Narasimhan 2018) and the cost-sensitive oracle of
    Narasimhan, Cotter, Gupta 2019, table 2. The cost of a positive decision depends on the row's
    kind: its label and every slice that the rates distinguish. The probabilities of the kinds given
    the features are fitted once, so a group counts as far as the features predict it: it gets its
    own threshold if it is a feature or follows from features.

    Attributes
    ----------
    rows
        The rows by which answers are judged.
    trained
        The rows that probabilities are fitted to.
    groups
        Whether groups are known when a row is classified. Then the probability of a positive label
        is thresholded in each group: where a positive decision costs `a` for a positive label and
        `b > a` for a negative one, its expected cost is negative where the probability is above `b
        / (b - a)`. If b is not above a, the whole group gets the decision that is cheaper in total.
        Costs that differ within a group and label, such as those that depend on decisions of a
        deployed model, are replaced by their mean there.
    unseen
        Which of the rows are scored by models of which others; None if all are by one model.
    labels
        (Q,) label of the rows of each kind: 1, -1, or 0 without one. If given, probabilities are
        those of the label times those of the kind given the label; a label of one kind needs no
        fit.
    known
        An oracle for the same rows with other weights that depend on the features alone. Its
        probabilities given the features are the same, so they are not fitted again.
    """

    starts: ClassVar[bool] = False
    rows: OracleRows
    trained: OracleRows
    fit: ClassFit
    groups: bool = False
    unseen: UnseenScores | None = None
    labels: Array | None = None
    known: PlugInOracle | None = None

    def weighing(self, rows: OracleRows) -> PlugInOracle:
        """Return an oracle with the same probabilities for other row weights."""
        return replace(self, rows=rows, known=self.known or self)

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Weigh the probabilities by costs; raise FaultError, E501, if they cannot be fitted."""
        if self.groups:
            return self._group_thresholds(prices)
        kinds, model = self.kind_model
        costs = self.rows.kind_costs(prices)[kinds]
        if model is None:
            return self.rows.constant(yes=bool(costs.sum() < 0))
        return CostSensitiveClassifier(model, costs)

    @cached_property
    def kind_model(self) -> KindModel:
        """The kinds that occur, and the fit of their probabilities."""
        if self.known:
            return self.known.kind_model
        if self.unseen is None:
            return self._fit_kinds(np.arange(self.trained.X.shape[0]))

        def chances(found: KindModel, rows: Indices) -> Array:
            kinds, model = found
            every = np.zeros((len(rows), self.trained.kinds.count))
            X = self.trained.X[rows]
            every[:, kinds] = 1.0 if model is None else model.probabilities(X)
            return every

        (kinds, model), found = self.unseen.fit_and_score(self._fit_kinds, chances)
        if model is not None:
            self.rows.remember(model, found[:, kinds])
        return kinds, model

    @cached_property
    def _entries(self) -> tuple[Indices, Indices, Array]:
        """The kind, the row and the weight of each kind of a row, (e,) each."""
        shares = sparse.coo_array(self.trained.shares)
        shares.eliminate_zeros()
        (kind, row), weight = shares.coords, shares.data
        # the order of other fits to these rows, which are then the same
        order = np.arange(len(row)) if self.labels is None else np.argsort(row, kind="stable")
        return kind[order], row[order], weight[order]

    def _fit_kinds(self, rows: Indices) -> KindModel:
        """Fit the probabilities of the kinds of some rows."""
        kind, row, weight = self._entries
        chosen = np.flatnonzero(np.isin(row, rows))
        kind, row, weight = kind[chosen], row[chosen], weight[chosen]
        kinds, own = np.unique(kind, return_inverse=True)
        if len(kinds) < 2:
            return kinds, None
        if self.labels is None:
            return kinds, self.fit(self.trained, row, own, weight)
        label_of = np.unique(self.labels[kinds], return_inverse=True)[1]
        column, parts, after = np.zeros(len(kinds), dtype=np.intp), list[ProbabilityModel](), 1
        for label in range(label_of.max() + 1):
            same = np.flatnonzero(label_of == label)
            if len(same) > 1:
                inside = np.isin(own, same)
                classes = np.searchsorted(same, own[inside])
                parts.append(self.fit(self.trained, row[inside], classes, weight[inside]))
                column[same] = np.arange(after, after + len(same))
                after += len(same)
        if not label_of.any():
            return kinds, parts[0]
        labels = self.fit(self.trained, row, label_of[own], weight)
        return kinds, FactoredModel(labels, tuple(parts), label_of, column)

    def _group_thresholds(self, prices: Array) -> GroupThreshold:
        groups, masks = self._groups, self._label_masks
        costs = (self._weights * self.rows.kind_costs(prices)) @ masks.T
        sizes = self._weights @ masks.T
        labelled = sizes[:, :2].sum(axis=1)
        spread = _safe_quotient(costs[:, 2], labelled)
        a, b = _safe_quotient(costs[:, :2], sizes[:, :2]).T + spread
        cheaper = np.where(costs.sum(axis=1) < 0, -OUTER_THRESHOLD, OUTER_THRESHOLD)
        thresholds = np.where((b > a) & (labelled > 0), _safe_quotient(b + a, b - a), cheaper)
        thresholds = thresholds.clip(-OUTER_THRESHOLD, OUTER_THRESHOLD)
        return GroupThreshold(self._scorer, groups.slices, groups.patterns, thresholds)

    @cached_property
    def _groups(self) -> Groups:
        """Groups of the training rows."""
        return Groups.by(self.rows.slices, self.rows.members > 0)

    @cached_property
    def _weights(self) -> Array:
        """(C, Q) weight of each kind in each group."""
        inside = np.eye(len(self._groups.patterns))[self._groups.of]
        return np.asarray((self.rows.shares @ inside).T)

    @cached_property
    def _label_masks(self) -> Array:
        """(3, Q) 1 for the kinds with a positive label, with a negative one, and without a label.

        They follow from the error rate: a positive decision adds to it where the label is negative.
        """
        kinds = self.rows.kinds
        wrong = kinds.patterns[kinds.matrix.index()[ERROR_RATE]]
        return np.stack([wrong < 0, wrong > 0, wrong == 0]).astype(float)

    @cached_property
    def _scorer(self) -> CostSensitiveClassifier | Threshold:
        """Its score is the probability of a positive label minus that of a negative one."""
        shares = self._label_masks[[1, 0]] @ self.rows.shares
        labels, used = np.nonzero(shares)
        if len(np.unique(labels)) < 2:
            return Threshold(np.zeros(self.rows.width), 1.0 if labels.any() else -1.0)
        model = self.fit(self.rows, used, labels, shares[labels, used])
        return CostSensitiveClassifier(model, ARGMAX_COSTS)


def _safe_quotient(top: Array, bottom: Array) -> Array:
    """Divide; 0 where the denominator is not positive."""
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)


def make_oracle_rows(value: Any, problem: Problem, kinds: RowKinds) -> OracleRows:
    """Return the rows in the form that the oracle of a checked option needs."""
    if not oracle_uses_groups(value):
        return OracleRows.of(problem.X, kinds, layout=problem.column_layout)
    slices = Groups.of_problem(problem).slices
    X = append_memberships(problem.X, [problem.slices[text] for text in slices])
    return OracleRows.of(X, kinds, slices, problem.column_layout)


def make_oracle(value: Any, rows: OracleRows, l2: float, rng: np.random.Generator) -> Oracle:
    """Return the oracle that a checked option names."""
    choice = NamedOptions.parse(value)
    if choice.name == LINEAR_ORACLE:
        return LinearOracle(rows, l2)
    if choice.name == REGRESSION_ORACLE:
        return PairedRegressionOracle(rows)
    if choice.name != PLUGIN_ORACLE:
        return ClassifierOracle(rows, ClassFit(value, l2, rows.count, lambda: rng))
    fitted = {choice.fitted.name: choice.fitted.options}
    fit = ClassFit(fitted, l2, rows.count, lambda: rng)
    return PlugInOracle(rows, rows, fit, groups=oracle_uses_groups(value))
