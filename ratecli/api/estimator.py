"""Shared by the estimators: binary labels, parameters that are mappings, seeds, and checks of X."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from inspect import signature
from math import isnan
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import (
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
from ratecli.api.fitting import (
    ConstraintSpec,
    FeatureReader,
    FitResult,
    fit_rows,
    shared_arguments,
)
from ratecli.api.rows import (
    InputRows,
    LabelledRows,
    check_indices,
    known_labels,
    normalize_weights,
    note_zero_weights,
    sensitive_hints,
)
from ratecli.datasets.logged import DECISION_WORDS
from ratecli.experiment.options import option_names
from ratecli.ledger.records import (
    BEST_CONSTANT_KEY,
    VIOLATION_PREFIX,
    is_no_better,
    is_violated,
)
from ratecli.models.base import Array, Features


@dataclass(frozen=True)
class BinaryLabels:
    """Two labels, sorted, and the index (0 or 1) of the positive one."""

    labels: NDArray[Any]
    positive: int

    @classmethod
    def of(cls, y: Any, pos_label: Any) -> BinaryLabels:
        """Raise ValueError unless y has two labels and `pos_label` is one of them or None."""
        if y is None:
            raise ValueError("it requires y to be passed, but the target y is None")
        y = known_labels(y)
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        labels = np.unique(y)
        if kind != "binary":
            message = "Only binary classification is supported. The type of the target is"
            raise ValueError(f"{message} {kind}.")
        if len(labels) < 2:
            raise ValueError(f"y must have two labels, not {len(labels)} class: {labels.tolist()}")
        if pos_label not in [None, *labels.tolist()]:
            raise ValueError(f"pos_label is {pos_label!r}, but the labels are {labels.tolist()}")
        return cls(labels, 1 if pos_label is None else labels.tolist().index(pos_label))

    def warn_of_words(self, pos_label: Any) -> None:
        """Warn if labels are words and `pos_label` is None: then the larger one is positive.

        The labels yes and no, and true and false, need no warning.
        """
        words = {str(label).lower() for label in self.labels}
        if pos_label is None and self.labels.dtype.kind in "OUS" and words - set(DECISION_WORDS):
            positive = self.labels[self.positive]
            issue_warnings([f"'{positive}' is the positive label; pos_label can name the other"])

    def yes(self, y: Any) -> Array:
        """Return (n,) 1 where the label is positive, else 0; raise ValueError for other labels."""
        y = known_labels(y)
        if not (known := np.isin(y, self.labels)).all():
            raise ValueError(f"y contains {y[~known][0]!r}, but the labels are {self.labels}")
        return np.asarray(y == self.labels[self.positive], dtype=np.float64)

    def of_decisions(self, yes: NDArray[np.bool_]) -> NDArray[Any]:
        """Return labels (n,) for decisions (n,)."""
        return np.asarray(self.labels[np.where(yes, self.positive, 1 - self.positive)])

    def both(self, chance: Array) -> Array:
        """Return probabilities (n, 2) in the order of the labels.

        `chance` (n,) is the probability of the positive label.
        """
        pair = [1 - chance, chance] if self.positive else [chance, 1 - chance]
        return np.stack(pair, axis=1)


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
        """Say in errors about missing columns how they are passed beside X."""
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
            if list(X.columns) == [
                each for each in names if each in X or each not in self._unseen()
            ]:
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
        is_judged = bool(self.bounds_) or (solution.judged is not None and ending.status == "ok")
        if found.read.case.solver.role != "ignores" and not is_judged:
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


def seed_from_random_state(random_state: Any) -> int:
    """Return an integer unchanged, as it is equivalent to the seed of a file, or sample one."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    found: int = check_random_state(random_state).randint(2**31 - 1)
    return found


def sensitive_arguments(estimator: Any, sensitive: Any) -> dict[str, Any]:
    """Return the arguments of an estimator's `predict` that pass sensitive features, if requested.

    It requests them by metadata routing, if that is enabled, or by a parameter of `predict`.
    """
    name = "sensitive_features"
    if get_config()["enable_metadata_routing"]:
        asks = name in get_routing_for_object(estimator).consumes("predict", [name])
    else:
        asks = name in signature(estimator.predict).parameters
    return {name: sensitive} if asks and sensitive is not None else {}


def predict_with_sensitive(estimator: Any, X: Any, sensitive: Any) -> Any:
    """Return an estimator's predictions, passing sensitive features if it requests them."""
    return estimator.predict(X, **sensitive_arguments(estimator, sensitive))
