"""Rates as numbers and as scikit-learn scorers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from ratecli.api.errors import check_parameters, convert_errors, issue_warnings
from ratecli.api.fitting import UNCONSTRAINED, read_problem, shared_arguments
from ratecli.api.inputs import (
    BinaryLabels,
    InputRows,
    LabelledRows,
    known_labels,
    normalize_weights,
    note_zero_weights,
    predict_with_sensitive,
    sensitive_hints,
)
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.checks.rows import check_missing_values
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression
from ratecli.rates.matrix import Predictions, measure


@dataclass(eq=False, repr=False)
class RateScorer(BaseEstimator):  # type: ignore[misc]
    """The scorer returned by `rate_scorer` and `violation_scorer`: call it with an estimator, X and
    y.

    With metadata routing, `set_score_request(sensitive_features=True, sample_weight=True)` requests
    these arguments.
    """

    __metadata_request__score: ClassVar[dict[str, str]] = {"estimator": UNUSED}

    text: str
    groups: Mapping[str, str] | None = None
    parameters: Mapping[str, float] | None = None
    pos_label: Any = None
    _: KW_ONLY
    rule: bool = False
    greater_is_better: bool = True

    def __call__(self, estimator: Any, X: Any, y: Any, **columns: Any) -> float:
        """Return `score`; scikit-learn calls scorers as functions."""
        return self.score(estimator, X, y, **columns)

    def score(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive_features: Any = None,
    ) -> float:
        """Return the value on these rows, signed so that more is better; NaN if it is undefined."""
        said = predict_with_sensitive(estimator, X, sensitive_features)
        if not isinstance(X, pd.DataFrame):
            X = check_array(X, accept_sparse="csr", dtype=None, ensure_all_finite=False)
        labels = getattr(estimator, "classes_", None)
        with convert_errors():
            rows = InputRows.of(X, sensitive_features, y=y, sample_weight=sample_weight)
        found = _measure(self, rows, y, said, weight=sample_weight, labels=labels)
        return found if self.greater_is_better else -found


def rate_scorer(
    rate: str,
    *,
    groups: Mapping[str, str] | None = None,
    parameters: Mapping[str, float] | None = None,
    pos_label: Any = None,
    greater_is_better: bool = True,
) -> RateScorer:
    """Return a scorer for `cross_validate` and `GridSearchCV` that measures a rate of the decisions
    of `predict`.

    Parameters
    ----------
    rate : str
        An expression such as `positive_rate[women] / positive_rate[men]`. It may refer to columns
        of X, if that is a DataFrame, and of `sensitive_features`, which
        `scorer.set_score_request(sensitive_features=True)` requests if metadata routing is enabled.
    groups, parameters, pos_label
        As in `RateConstrainedClassifier`.
    greater_is_better : bool, default=True
        False changes the sign, for losses.

    Returns
    -------
    RateScorer
        `scorer(estimator, X, y, sample_weight=None, *, sensitive_features=None)` returns a float,
        NaN if the rate is undefined: a mean over no rows, or 0 / 0.

    Raises
    ------
    ValueError
        When the scorer is called, if the expression is invalid or refers to a column that does not
        exist.

    Examples
    --------
    >>> import ratecli
    >>> ratio = ratecli.rate_scorer("positive_rate[sex = Female] / positive_rate[sex = Male]")
    """
    return RateScorer(rate, groups, parameters, pos_label, greater_is_better=greater_is_better)


def violation_scorer(
    rule: str,
    *,
    groups: Mapping[str, str] | None = None,
    parameters: Mapping[str, float] | None = None,
    pos_label: Any = None,
) -> RateScorer:
    """Return a scorer that measures minus the violation of a constraint: at least 0 if it is
    satisfied.

    The other parameters are those of `rate_scorer`.
    """
    return RateScorer(rule, groups, parameters, pos_label, rule=True, greater_is_better=False)


def rate_score(
    text: str,
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    groups: Mapping[str, str] | None = None,
    parameters: Mapping[str, float] | None = None,
    pos_label: Any = None,
) -> float:
    """Return the value of a rate for given decisions.

    Parameters
    ----------
    text : str
        An expression such as `max_gap(tpr, by=sex)`.
    y_true, y_pred : array of shape (n,)
        Labels and decisions, with two distinct values.
    sensitive_features : DataFrame, Series, dict or array, default=None
        n rows that the expression may refer to.
    sample_weight : array of shape (n,), default=None
        Nonnegative.
    groups, parameters, pos_label
        As in `RateConstrainedClassifier`.

    Returns
    -------
    float
        NaN if the rate is undefined.

    Raises
    ------
    ValueError
        If the expression is invalid or refers to a column that does not exist.

    Examples
    --------
    >>> import ratecli
    >>> y_true, y_pred = [0, 1, 0, 1], [1, 1, 0, 1]
    >>> sex = {"sex": ["f", "f", "m", "m"]}
    >>> rate = "max_gap(positive_rate, by=sex)"
    >>> ratecli.rate_score(rate, y_true, y_pred, sensitive_features=sex)
    0.5
    """
    scorer = RateScorer(text, groups, parameters, pos_label)
    count = len(column_or_1d(y_true))
    with convert_errors():
        others = {"y_true": y_true, "y_pred": y_pred, "sample_weight": sample_weight}
        inputs = InputRows.of(np.zeros((count, 0)), sensitive_features, **others)
    return _measure(scorer, inputs, y_true, y_pred, weight=sample_weight, labels=None)


def _measure(
    scorer: RateScorer, inputs: InputRows, y: Any, decisions: Any, *, weight: Any, labels: Any
) -> float:
    """Return the value of the scorer's expression.

    `labels` are the estimator's classes, or None to take all labels that occur.
    """
    check_consistent_length(inputs.beside, y, decisions)
    y, decisions = known_labels(y), known_labels(decisions, "y_pred")
    both = np.concatenate([y, decisions]) if labels is None else np.asarray(labels)
    classes = BinaryLabels.of(both, scorer.pos_label)
    classes.warn_of_words(scorer.pos_label)
    weight = normalize_weights(weight, y)
    rows = LabelledRows.of(inputs, classes.yes(y), weight)
    yes = classes.yes(decisions)[weight > 0]
    way = "{passed}; in a search, scorer.set_score_request(sensitive_features=True) requests it"
    with convert_errors(), sensitive_hints(way), note_zero_weights(weight) as noted:
        tree, sample = _parse_measure(scorer, inputs), rows.sample(None)
        issue_warnings(map(noted, check_missing_values(sample, [((), tree)])))
        return measure([tree], sample, "train", Predictions(yes, yes, yes))[0]


def _parse_measure(scorer: RateScorer, inputs: InputRows) -> Expression:
    """Return the expression to measure; raise E304 if it refers to another algorithm."""
    check_parameters(scorer)
    name = "rule" if scorer.rule else "rate"
    goal: dict[str, Any] = {"constraints" if scorer.rule else "metrics": {name: scorer.text}}
    read = read_problem(inputs.slice_columns, UNCONSTRAINED, **goal, **shared_arguments(scorer))
    issue_warnings(read.reading.warnings)
    metrics = read.case.metrics
    tree = metrics[VIOLATION_PREFIX + name if scorer.rule else name]
    if any(isinstance(part, ex.AlgorithmMetric) for part in ex.walk(tree)):
        message = f"'{scorer.text}' refers to another algorithm"
        hint = "score both models with the rates inside, and subtract or divide the two values"
        raise FaultError(Diagnostic("E304", message, hint))
    return tree
