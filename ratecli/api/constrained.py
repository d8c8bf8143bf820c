"""A classifier and a regressor that minimize one rate subject to constraints on others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_y

from ratecli.api.estimator import (
    BinaryLabels,
    RateConstrainedEstimator,
    RateScoreMixin,
    seed_from_random_state,
)
from ratecli.datasets.columns import MAX_NUMBER, SIZE_LIMIT
from ratecli.ledger.records import random_stream
from ratecli.models.base import Array
from ratecli.models.composed import (
    CostSensitiveClassifier,
    GroupThreshold,
    ProbabilityThreshold,
)
from ratecli.models.linear import Ramp, RandomizedLogistic, Threshold

SCORE_CLASSIFIERS = (
    Threshold,
    Ramp,
    RandomizedLogistic,
    CostSensitiveClassifier,
    ProbabilityThreshold,
    GroupThreshold,
)
"""Classifiers whose `score` is above 0 exactly where a positive decision is the likelier one."""


@dataclass(eq=False, repr=False)
class RateConstrainedClassifier(RateScoreMixin, RateConstrainedEstimator):
    """Minimize a rate subject to constraints such as `positive_rate[women] >= 0.8 * positive_rate`.

    Constraints may refer to columns of `X`, if it is a DataFrame, and to columns of
    `sensitive_features`, which is a DataFrame (n, s), a Series (n,) or an array (n,); an array's
    column is called `sensitive`. Every column of `X` is a feature unless it is listed in `drop`;
    sensitive features are never features.

    A DataFrame with text among its features is encoded as by `ratecli run`: numeric columns are
    standardized, and each text column becomes one indicator feature per value. With the same rows,
    seed and options, the model is then identical to the one trained by the command. Numeric input,
    as a DataFrame or an array, is used unchanged, as is usual in scikit-learn: scale it in a
    pipeline, or pass `encode=True`.

    All prediction methods use one classifier, `classifier_`, for which the constraints are enforced
    and guarantees hold. It is deterministic unless `solver_options` has `randomize: True`.
    `predict_proba` then returns the probability of a positive decision, `decide` samples decisions,
    and `predict` returns the likelier decision, for which there is no guarantee.

    Parameters
    ----------
    objective : str, default="error"
        The expression to minimize, in the language of rates.
    constraints : str, list of str or dict of str, default=()
        The constraints; the keys of a dict are their names.
    solver : str, default="mixture"
        Name of an algorithm (`ratecli ls algorithms`). `seldonian` requires `safety`.
    solver_options : dict, default=None
        Options of the algorithm. Each is also available as the parameter `solver_options__NAME`.
    estimator : classifier, default=None
        The model that the algorithm fits, an unfitted classifier whose fit takes sample weights,
        instead of the algorithm's own, such as `HistGradientBoostingClassifier(max_iter=50)`. Its
        parameters are available as `estimator__NAME`. It is the option `model` of the algorithm.
    groups : dict of str, default=None
        Conditions on rows, by the names used in constraints: `{"women": "sex = Female"}`.
    parameters : dict, default=None
        Numbers, by the names used in constraints and options. Each is also available as the
        parameter `parameters__NAME`, for example in a grid search.
    drop : list of str, default=()
        Columns of X that are not features. Constraints may still refer to them, and X may lack them
        in prediction.
    encode : bool or "auto", default="auto"
        Whether to encode a DataFrame. `auto` encodes it if a feature is text or `missing` is
        `mean`.
    missing : {"error", "mean"}, default="error"
        How to treat missing numbers in a DataFrame: raise an error, or replace them by the mean of
        the column's known values in `fit` and add a feature that marks where they were missing.
    deployed : str, default=None
        Column with the decisions (0 or 1) of a deployed model, for churn, wins and losses.
    holds : {"train", "new_rows"}, default="train"
        Where constraints have to hold: on the rows of `fit`, or with probability `level` on new
        rows, which means in the population of these rows. The rules are then tightened on the rows
        of `fit`. If only models no better than a constant decision hold then, `fit` raises
        NoSolutionFoundError, which says what would help.
    level : float, default=None
        Above 0.5 and below 1. None is 0.9 for new rows.
    safety : dict, default=None
        A safety test, with the keys of `safety` in an experiment file: `{"delta": 0.05, "fraction":
        0.4}`. That fraction of the rows is held out. A model trained on the other rows is returned
        only if it passes the test on the held-out rows; a model that violates a constraint passes
        with probability at most delta. `{}` is a test with default settings.
    l2 : float or str, default="1/n"
        Coefficient lambda of the penalty lambda / 2 |w|^2 that is added to the mean loss. `c/n`
        means c divided by the number of rows, counting repeated rows (see `sample_weight`).
    pos_label : object, default=None
        The positive label. If None, it is the last in sorted order, and `fit` warns of this if the
        labels are words other than yes and no.
    variant : str, default="auto"
        Which of the classifiers in `variants_` becomes `classifier_`: its name, or `auto` for the
        main one. `variants` in `solver_options` names further ones to compute.
    random_state : int, RandomState or None, default=None
        Seed of the algorithm; an integer is equivalent to a seed of `ratecli run`.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels, sorted.
    classifier_, variants_
        The classifier used for prediction, and all classifiers found, by name, the main one first.
    status_, reason_ : str
        How the algorithm ended, as in `trials.csv`.
    objective_ : float
        The objective of `classifier_` on the training rows.
    violations_ : dict of float
        By how much `classifier_` violates each constraint on the training rows; at most 0 if it is
        satisfied. Keys are the names of the constraints, or their texts if they have no names.
    bounds_ : dict of float
        Upper confidence bound on each constraint's violation by `classifier_` in the safety test,
        at most 0. Empty without a safety test.
    certificates_ : list of dict
        The records of the safety tests, as in `certificates.json`.
    multipliers_ : dict of float
        How much the objective would decrease per unit of slack in each constraint, if the algorithm
        reports it.
    settings_ : list of dict
        What each setting of `tune` in `solver_options` reached, and which one was `chosen`.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X is a DataFrame.

    Examples
    --------
    >>> import ratecli
    >>> X, y = ratecli.load_dataset("loans", rows=1000)
    >>> rule = "positive_rate[sex = Female] >= 0.8 * positive_rate[sex = Male]"
    >>> model = ratecli.RateConstrainedClassifier(constraints=rule, random_state=0).fit(X, y)
    >>> max(model.violations_.values()) <= 1e-6
    True
    """

    _found: ClassVar[str] = "classifier_"

    pos_label: Any = None

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> RateConstrainedClassifier:
        """Train the classifier.

        Parameters
        ----------
        X : DataFrame, array or sparse matrix of shape (n, d)
        y : array of shape (n,)
            Two labels.
        sample_weight : array of shape (n,), default=None
            Nonnegative; the largest may be at most 1e15 times the smallest positive one. A constant
            factor has no effect. Integer multiples of the smallest weight, up to 1000, are counts
            of repeated rows. Not allowed with a safety test, which counts each row once.
        sensitive_features : DataFrame, Series, dict or array, default=None
            n rows that constraints may refer to and the classifier does not see. A feature with the
            name of a column of X must have the same values.

        Raises
        ------
        ValueError
            If an argument is invalid or arguments do not fit together. The message shows each error
            with its position in a constraint; the attribute `faults` lists them. Pandas objects
            among X, y, sample_weight and sensitive_features must have equal indices, since rows are
            neither aligned by index nor matched by position when they differ.
        NoSolutionFoundError
            If the algorithm finds no classifier, or none that passes the safety test.
        """
        self._fit(X, y, sample_weight, sensitive_features)
        self._classes = BinaryLabels.of(y, self.pos_label)
        self._classes.warn_of_words(self.pos_label)
        self.classes_ = self._classes.labels
        return self

    def _numbers(self, y: Any) -> Array:
        return BinaryLabels.of(y, self.pos_label).yes(y)

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the likelier decision for each row.

        Parameters
        ----------
        X : DataFrame, array or sparse matrix of shape (n, d)
        sensitive_features : DataFrame, Series, dict or array, default=None
            Required by classifiers that depend on groups, such as those of `post_shift`, if X lacks
            the columns that define them.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        margin = self._margin(X, sensitive_features)
        return self._classes.of_decisions(margin > 0)

    def decision_function(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """Return scores (n,), above 0 where `predict` returns the larger label."""
        margin = self._margin(X, sensitive_features)
        return np.asarray(margin if self._classes.positive else -margin)

    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """Return the probability of each decision, (n, 2), with columns in the order of `classes_`.

        For a deterministic classifier these are 0 and 1. They describe how the classifier decides;
        they do not estimate the probability of the label.
        """
        shown = self._shown(X, sensitive_features)
        return self._classes.both(self.classifier_.decide(shown))

    def decide(
        self, X: Any, random_state: Any = None, *, sensitive_features: Any = None
    ) -> NDArray[Any]:
        """Return labels (n,), sampled for each row with the probabilities of `predict_proba`.

        An integer `random_state` gives the same decisions as `ratecli predict --seed`.
        """
        shown = self._shown(X, sensitive_features)
        chances = self.classifier_.decide(shown)
        draws = random_stream(seed_from_random_state(random_state), "predict").random(len(chances))
        return self._classes.of_decisions(draws < chances)

    def _margin(self, X: Any, sensitive: Any) -> Array:
        """Return numbers (n,), above 0 where a positive decision is likelier."""
        shown = self._shown(X, sensitive)
        if isinstance(self.classifier_, SCORE_CLASSIFIERS):
            return np.asarray(self.classifier_.score(shown))
        return np.asarray(self.classifier_.decide(shown) - 0.5)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@dataclass(eq=False, repr=False)
class RateConstrainedRegressor(RegressorMixin, RateConstrainedEstimator):  # type: ignore[misc]
    """Minimize the squared error subject to constraints such as `mse[women] <= 2`.

    Constraints use `mse` and `mean_error` (of estimate minus label), as in `abs(mean_error[women] -
    mean_error[men]) <= 0.1`. Everything else is as for `RateConstrainedClassifier`, whose
    parameters and attributes it has, except those listed here, `pos_label` and `classes_`.

    Parameters
    ----------
    objective : str, default="mse"
        The expression to minimize.
    estimator : regressor, default=None
        The model that `least_squares` fits instead of a linear one: a regressor whose fit takes
        sample weights.
    solver : str, default="least_squares"
        `least_squares`, `unconstrained` with `solver_options={"loss": "squared"}`, or `seldonian`
        with `safety`.
    label_range : tuple of float, default=(-inf, inf)
        Smallest and largest possible label. Estimates are clipped to it, and most bounds of safety
        tests need it.

    Attributes
    ----------
    regressor_
        The model used for prediction.

    Examples
    --------
    >>> import ratecli
    >>> X, y = ratecli.load_dataset("gpa", preparation="regression")
    >>> rule = "abs(mean_error[sex = Male] - mean_error[sex = Female]) <= 0.1"
    >>> model = ratecli.RateConstrainedRegressor(constraints=rule).fit(X, y)
    >>> max(model.violations_.values()) <= 1e-6
    True
    """

    _found: ClassVar[str] = "regressor_"

    objective: str = "mse"
    solver: str = "least_squares"
    label_range: tuple[float, float] = (-np.inf, np.inf)

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> RateConstrainedRegressor:
        """Train the regressor on numbers y (n,); arguments and errors as for the classifier."""
        self._fit(X, y, sample_weight, sensitive_features)
        return self

    def _numbers(self, y: Any) -> Array:
        if y is None:
            raise ValueError("it requires y to be passed, but the target y is None")
        found = np.asarray(_check_y(y, y_numeric=True, estimator=self), dtype=np.float64)
        if (size := abs(found).max()) > MAX_NUMBER:
            raise ValueError(f"y has values of size {size:g}, {SIZE_LIMIT}: use other units")
        low, high = self.label_range
        if not (low <= found.min() and found.max() <= high):
            raise ValueError(f"y has values outside of label_range, {low:g} to {high:g}")
        return found

    def _arguments(self) -> dict[str, Any]:
        return super()._arguments() | {"label_range": self.label_range}

    def predict(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """Return the estimate (n,) of each row."""
        shown = self._shown(X, sensitive_features)
        return np.asarray(self.regressor_.estimate(shown))
