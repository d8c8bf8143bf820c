"""Estimators: a classifier and a regressor that minimize one rate under constraints on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from math import isnan
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import (
    _check_y,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from ratecli.api.errors import (
    NoSolutionFoundError,
    check_parameters,
    convert_errors,
    issue_warnings,
)
from ratecli.api.fitting import ConstraintSpec, FeatureReader, FitResult, fit_rows, shared_arguments
from ratecli.api.inputs import (
    BinaryLabels,
    InputRows,
    LabelledRows,
    check_indices,
    normalize_weights,
    note_zero_weights,
    seed_from_random_state,
    sensitive_hints,
)
from ratecli.datasets.columns import MAX_NUMBER, SIZE_LIMIT
from ratecli.experiment.entries import option_names
from ratecli.ledger.records import (
    BEST_CONSTANT_KEY,
    VIOLATION_PREFIX,
    is_no_better,
    is_violated,
    random_stream,
)
from ratecli.models.base import Array, Features
from ratecli.models.composed import CostSensitiveClassifier, GroupThreshold
from ratecli.models.linear import Ramp, RandomizedLogistic, Threshold

PARAM_SEPARATOR = "__"


class RateScoreMixin(ClassifierMixin):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier whose `score` refuses pandas arguments with different indices."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy; raise ValueError if pandas arguments have different indices."""
        check_indices({"X": X, "y": y, "sample_weight": sample_weight})
        return float(super().score(X, y, sample_weight))


class MappingParamsEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator with parameters that are mappings, whose entries are parameters as well.

    `parameters__kappa` is the entry `kappa` of `parameters`, so that a grid search can vary it.
    """

    _mappings: ClassVar[tuple[str, ...]] = ()
    _found: ClassVar[str] = ""
    """Attribute with the model, which only a successful fit sets."""
    _reader: FeatureReader

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters by name; with `deep` also the entries of mappings."""
        found: dict[str, Any] = super().get_params(deep=deep)
        for name in self._mappings if deep else ():
            entries = found[name] if isinstance(found[name], dict) else {}
            found |= {f"{name}{PARAM_SEPARATOR}{key}": value for key, value in entries.items()}
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def set_params(self, **params: Any) -> MappingParamsEstimator:
        """Set parameters, or entries of mappings.

        A mapping that was passed in before is copied, not modified.
        """
        whole = {name: value for name, value in params.items() if not self._entry(name)}
        super().set_params(**whole)
        for name, value in params.items():
            if entry := self._entry(name):
                mapping, key = entry
                setattr(self, mapping, {**(getattr(self, mapping) or {}), key: value})
        return self

    def _entry(self, name: str) -> tuple[str, str] | None:
        mapping, between, key = name.partition(PARAM_SEPARATOR)
        return (mapping, key) if between and mapping in self._mappings else None

    def _unseen(self) -> list[str]:
        """Return the columns of X that are not features."""
        return []

    def _inputs(self, X: Any, sensitive: Any, *, reset: bool, **others: Any) -> InputRows:
        """Return the input of `fit` (`reset`) or of another method as rows; `others` as in
        `InputRows.of`.

        A DataFrame may have columns of any kind; anything else must be a numeric array.
        """
        if reset:  # the result of an earlier fit belongs to another encoder
            self.__dict__.pop(self._found, None)
        if isinstance(X, pd.DataFrame):
            self._check_frame(X, reset=reset)
        else:
            X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float64)
        return InputRows.of(X, sensitive, **others)

    def _shown(self, X: Any, sensitive: Any = None) -> Features:
        """Return the inputs of the fitted model; `_reader` makes them."""
        check_is_fitted(self, self._found)
        with convert_errors(), self._sensitive_hints("predict"):
            inputs = self._inputs(X, sensitive, reset=False)
            shown, warnings = self._reader.inputs_for(getattr(self, self._found), inputs)
        issue_warnings(warnings)
        return shown

    def _sensitive_hints(self, method: str) -> AbstractContextManager[None]:
        """Add to errors about missing columns how to pass these columns beside X."""
        way = f"{method}(..., {{passed}})"
        if method == "fit":
            way += f", through a pipeline: fit(..., {type(self).__name__.lower()}__{{passed}})"
        return sensitive_hints(way)

    def _check_frame(self, X: pd.DataFrame, *, reset: bool) -> None:
        """Check a DataFrame; columns that are not features may be missing after training."""
        whole = X
        if not reset:
            check_is_fitted(self, self._found)
            names = list(getattr(self, "feature_names_in_", ()))
            needed = [each for each in names if each in X or each not in self._unseen()]
            if list(X.columns) == needed:
                whole = X.reindex(columns=names)
        validate_data(self, whole, reset=reset, skip_check_array=True)
        if not len(X):
            raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}): there are no rows.")


AUTO: Literal["auto"] = "auto"


@dataclass(eq=False, repr=False)
class RateConstrainedEstimator(MappingParamsEstimator):
    """Base of estimators that one algorithm trains under constraints."""

    _mappings: ClassVar[tuple[str, ...]] = ("parameters", "solver_options")

    objective: str = "error"
    constraints: ConstraintSpec = ()
    _: KW_ONLY
    solver: str = "mixture"
    solver_options: Mapping[str, Any] | None = None
    estimator: Any = None
    groups: Mapping[str, str] | None = None
    parameters: Mapping[str, Any] | None = None
    drop: Sequence[str] = ()
    encode: bool | Literal["auto"] = AUTO
    missing: Literal["error", "mean"] = "error"
    deployed: str | None = None
    holds: Literal["train", "new_rows"] = "train"
    level: float | None = None
    safety: Mapping[str, Any] | None = None
    l2: float | str = "1/n"
    variant: str = AUTO
    random_state: Any = None

    def _fit(self, X: Any, y: Any, sample_weight: Any, sensitive: Any) -> None:
        with convert_errors(), self._sensitive_hints("fit"):
            check_parameters(self)
            if self.safety is not None and sample_weight is not None:
                raise ValueError("a safety test counts every row once: pass no sample_weight")
            inputs = self._inputs(X, sensitive, reset=True, y=y, sample_weight=sample_weight)
            label = self._numbers(y)
            check_consistent_length(X, y)
            weight = normalize_weights(sample_weight, X)
            with note_zero_weights(weight) as noted:
                self._numbers(np.asarray(y)[weight > 0])
                rows = LabelledRows.of(inputs, label, weight)
                seed = seed_from_random_state(self.random_state)
                found = fit_rows(rows, seed, self.solver, self._options(), **self._arguments())
        issue_warnings(map(noted, found.warnings))
        self._reader = found.reader
        self._keep(found)

    def _numbers(self, y: Any) -> Array:
        """Check labels and return them as numbers (n,)."""
        raise NotImplementedError

    def _options(self) -> dict[str, Any]:
        options = dict(self.solver_options or {})
        if self.estimator is not None:
            if "model" in options:
                raise ValueError("the model is given twice: by estimator and in solver_options")
            if "model" not in option_names(self.solver):
                raise ValueError(f"'{self.solver}' only fits a model of its own: pass no estimator")
            options["model"] = self.estimator
        return options

    def _arguments(self) -> dict[str, Any]:
        """Return the other arguments of `fit_rows`."""
        features = {name: getattr(self, name) for name in ("drop", "encode", "missing")}
        return shared_arguments(self) | features

    def _unseen(self) -> list[str]:
        return [*self.drop, *([] if self.deployed is None else [self.deployed])]

    def _keep(self, found: FitResult) -> None:
        """Choose a model from the result and set the fitted attributes."""
        kind = self._found.removesuffix("_")
        solution, ending = found.measured.solution, found.measured
        variants = solution.variants
        if not variants:
            reason = found.read.in_text(ending.reason or ending.status)
            tested = ending.info.get("certificates")
            what = f"{kind} that passes its safety test" if tested else kind
            raise NoSolutionFoundError(f"{self.solver} found no {what}: {reason}")
        chosen = self._chosen(list(variants))
        shown, values = found.read.shown, found.values[chosen]
        self.variants_ = dict(variants)
        setattr(self, self._found, variants[chosen])
        self.status_, self.reason_ = ending.status, found.read.in_text(ending.reason)
        self.objective_ = values["objective"]
        self.violations_ = {
            called: values[VIOLATION_PREFIX + name]
            for name, called in shown.items()
            if VIOLATION_PREFIX + name in values
        }
        self.multipliers_ = {shown[name]: value for name, value in solution.multipliers.items()}
        self.settings_ = [dict(row) for row in solution.trace if "setting" in row]
        self.certificates_ = list(ending.info.get("certificates", ()))
        self.bounds_ = {
            shown[each["constraint"]]: float(each["upper"])
            for each in self.certificates_
            if each["variant"] == chosen
        }
        # a safety test, or rows that the model has not seen, are stronger evidence
        case = found.read.case
        on_others = solution.judged is not None or case.guard.holds != "train"
        is_judged = bool(self.bounds_) or (on_others and ending.status == "ok")
        if case.solver.role != "ignores" and not is_judged:
            self._doubt(kind if chosen == "estimate" else f"{chosen} {kind}")
        constant = (ending.info.get(BEST_CONSTANT_KEY) or {}).get("train")
        if constant is not None and is_no_better(self.objective_, constant):
            decision = "prediction" if chosen == "estimate" else "decision"
            message = (
                f"in training, the {chosen} model is no better than a constant {decision}: "
                f"objective {self.objective_:.4g} against {constant:.4g}"
            )
            issue_warnings([message])

    def _chosen(self, names: Sequence[str]) -> str:
        if self.variant == AUTO:
            return names[0]
        if self.variant not in names:
            listed = ", ".join(names)
            raise ValueError(f"variant is {self.variant!r}, but {self.solver} returned: {listed}")
        return self.variant

    def _doubt(self, model: str) -> None:
        """Warn if a constraint is violated or undefined, or the algorithm did not finish."""
        broken = [
            f"'{name}' by {amount:.3g}"
            for name, amount in self.violations_.items()
            if is_violated(amount, undefined=False)
        ]
        undefined = [f"'{name}'" for name, amount in self.violations_.items() if isnan(amount)]
        if broken:
            why = f": {self.reason_}" if self.reason_ else ""
            issue_warnings([f"in training, the {model} violates {', '.join(broken)}{why}"])
        if undefined:
            reason = "a rate of it divides by zero, for example precision without selected rows"
            issue_warnings(
                [f"in training, {', '.join(undefined)} of the {model} is undefined: {reason}"]
            )
        if not (broken or undefined) and self.status_ != "ok":
            issue_warnings([f"{self.solver} ended as {self.status_}: {self.reason_}"])


SCORE_CLASSIFIERS = (
    Threshold,
    Ramp,
    RandomizedLogistic,
    CostSensitiveClassifier,
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
