"""A safety test around any classifier: the model is returned only if it passes on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metadata_routing import (
    UNUSED,
    MetadataRouter,
    MethodMapping,
    _raise_for_params,
    process_routing,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
    validate_data,
)

from ratecli.api.errors import (
    NoSolutionFoundError,
    check_parameters,
    convert_errors,
    issue_warnings,
)
from ratecli.api.estimators import RateScoreMixin
from ratecli.api.fitting import (
    UNCONSTRAINED,
    ConstraintSpec,
    ReadProblem,
    check_fit_rows,
    read_problem,
    shared_arguments,
)
from ratecli.api.inputs import (
    BinaryLabels,
    InputRows,
    LabelledRows,
    predict_with_sensitive,
    seed_from_random_state,
    sensitive_arguments,
)
from ratecli.config.trials import DEFAULT_FRACTION
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.cases import references, resolve_goals
from ratecli.models.base import Array
from ratecli.models.linear import Threshold
from ratecli.rates.matrix import Predictions
from ratecli.rates.table import DEPLOYED
from ratecli.sampling.deployed import rates_of_other, with_others
from ratecli.sampling.rows import TrialData
from ratecli.sampling.safety_rows import SafetyRows, SafetyTestResult
from ratecli.solvers.base import Solution

MODEL_NAME = "model"
FITTED = ("passed_", "bounds_", "certificates_", "explanation_", "estimator_", "classes_")


@dataclass(eq=False, repr=False)
class SafetyTest(RateScoreMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Train a classifier on some rows and test on the others, with confidence, that it satisfies
    constraints.

    A model that violates a constraint on the distribution of the rows passes with probability at
    most `delta` (over the sampling of the test rows). If the model does not pass, all prediction
    methods raise NoSolutionFoundError. The test applies to the decisions returned by the
    classifier's `predict`.

    Parameters
    ----------
    estimator : classifier
        A binary classifier; it is cloned.
    constraints : str, list of str or dict of str, default=()
        Constraints as in `RateConstrainedClassifier`. Without constraints nothing is tested and all
        rows are used for training.
    delta : float or dict of float, default=0.05
        Probability that a violating model passes, greater than 0 and less than 1; a dict has one
        for each constraint, by name.
    bound : str, default="auto"
        Confidence bound: `auto`, `student_t`, `hoeffding`, `clopper_pearson`,
        `empirical_bernstein`, `anderson`, `betting` or `bootstrap` (`ratecli show`). `auto` chooses
        one that suits the rates.
    fraction : float, default=0.5
        Fraction of the rows to hold out for the test.
    method : str, default="pieces"
        What is bounded: `pieces`, `forms` or `leaves`.
    stratify : list of str, default=()
        Columns, or `label`, whose values have the same shares in test and training rows.
    groups, parameters : dict, default=None
        As in `RateConstrainedClassifier`.
    deployed : str, default=None
        Column with the decisions (0 or 1) of a deployed model.
    pos_label : object, default=None
        The positive label; None for the larger one.
    random_state : int, RandomState or None, default=None
        Determines which rows are held out, and the random numbers used by bounds.

    Attributes
    ----------
    passed_ : bool
    bounds_ : dict of float
        Upper confidence bound on each constraint's violation; the model passes if it is at most 0.
        Keys are the names of the constraints, or their texts if they have no names.
    certificates_ : list of dict
        The records of the tests, as in `certificates.json`.
    explanation_ : str
        Why the model did not pass and what it would have needed; empty if it passed.
    estimator_ : classifier
        The fitted classifier; exists only if it passed.
    classes_ : ndarray of shape (2,)

    References
    ----------
    Thomas, Castro da Silva, Barto, Giguere, Brun, Brunskill (2019), "Preventing undesirable
    behavior of intelligent machines", Science 366.
    """

    # routed to the classifier, if metadata routing is enabled
    __metadata_request__predict: ClassVar[dict[str, str]] = {"sensitive_features": UNUSED}

    estimator: Any
    constraints: ConstraintSpec = ()
    _: KW_ONLY
    delta: float | Mapping[str, float] = 0.05
    bound: str = "auto"
    fraction: float | str = DEFAULT_FRACTION
    method: str = "pieces"
    stratify: Sequence[str] = ()
    groups: Mapping[str, str] | None = None
    parameters: Mapping[str, Any] | None = None
    deployed: str | None = None
    pos_label: Any = None
    random_state: Any = None

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, **params: Any) -> SafetyTest:
        """Train the classifier and test it.

        Parameters
        ----------
        X : DataFrame, array or sparse matrix of shape (n, d)
        y : array of shape (n,)
        sensitive_features : DataFrame, Series, dict or array, default=None
            n rows that constraints may refer to. The classifier's `fit` receives those of its
            training rows if it has a parameter of this name or requests it by metadata routing.
        **params
            Passed to the classifier by metadata routing, if that is enabled.

        Raises
        ------
        ValueError
            If an argument is invalid or arguments do not fit together; the attribute `faults` lists
            the errors.
        """
        for name in FITTED:  # the result of an earlier fit belongs to other rows
            self.__dict__.pop(name, None)
        with convert_errors():
            check_parameters(self)
            X = self._checked(X, reset=True)
            classes = BinaryLabels.of(y, self.pos_label)
            classes.warn_of_words(self.pos_label)
            weight = params.get("sample_weight")
            inputs = InputRows.of(X, sensitive_features, y=y, sample_weight=weight)
            y = y if isinstance(y, pd.Series) else column_or_1d(y)
            check_consistent_length(X, y)
            rows = LabelledRows.of(inputs, classes.yes(y), np.ones(len(inputs)))
            self.classes_ = classes.labels
            if not self.constraints:
                issue_warnings(["there are no constraints: nothing is tested"])
                every = self._candidate(X, y, sensitive_features, rows.training(), params)
                self.passed_, self.explanation_, self.estimator_ = True, "", every
                self.bounds_: dict[str, float] = {}
                self.certificates_: list[Mapping[str, Any]] = []
                return self
            seed = seed_from_random_state(self.random_state)
            safety = {key: getattr(self, key) for key in ("delta", "bound", "fraction", "method")}
            safety |= {"stratify": list(self.stratify)} if len(self.stratify) else {}
            stated = {**shared_arguments(self), "safety": safety}
            read = read_problem(inputs.slice_columns, UNCONSTRAINED, **stated)
            rows = rows.put_aside(read.case.holdout, seed)
            candidate = self._candidate(X, y, sensitive_features, rows.training(), params)
            yes = classes.yes(predict_with_sensitive(candidate, X, sensitive_features))
            verdict = self._verdict(read, rows, yes, seed)
        return self._keep(candidate, verdict, read)

    def _candidate(
        self, X: Any, y: Any, sensitive: Any, rows: NDArray[np.intp], params: Mapping[str, Any]
    ) -> Any:
        """Return a clone of the classifier, fitted to the rows that are not held out."""
        _raise_for_params(params, self, "fit")
        routed = {} if sensitive is None else {"sensitive_features": sensitive}
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **params, **routed).estimator.fit
        elif not has_fit_parameter(self.estimator, "sensitive_features"):
            routed = {}
        own = {name: _safe_indexing(value, rows) for name, value in routed.items()}
        return clone(self.estimator).fit(_safe_indexing(X, rows), _safe_indexing(y, rows), **own)

    def _verdict(
        self, read: ReadProblem, rows: LabelledRows, yes: Array, seed: int
    ) -> SafetyTestResult:
        trees = [goal.expression for goal in read.case.constraints]
        others = {part.algorithm for tree in trees for part in references(tree)} - {DEPLOYED}
        if others:
            message = f"'of({min(others)}, ...)' refers to an algorithm that is not fitted here"
            hint = "name a column of its decisions: deployed='COLUMN', and of(deployed, ...)"
            raise FaultError(Diagnostic("E304", message, hint))
        data = TrialData(with_others(rows.sample(self.deployed), trees, {}), yes[:, None])
        issue_warnings(check_fit_rows(read, data))
        _, rules = resolve_goals(read.case, rates_of_other)
        spec = read.case.safety_spec(data.splits()["safety"])
        assert spec is not None
        test = SafetyRows(data, spec, (0.0, 1.0), seed)
        model = Solution({MODEL_NAME: Threshold(np.ones(1), -0.5)})
        return test.verdict(model, {MODEL_NAME: Predictions(yes, yes, yes)}, rules)

    def _keep(self, candidate: Any, verdict: SafetyTestResult, read: ReadProblem) -> SafetyTest:
        self.certificates_ = list(verdict.certificates)
        self.passed_ = bool(verdict.solution.variants)
        self.bounds_ = {
            read.shown[each["constraint"]]: float(each["upper"]) for each in self.certificates_
        }
        self.explanation_ = "" if self.passed_ else read.in_text(verdict.reason)
        if self.passed_:
            self.estimator_ = candidate
        return self

    def _call(self, method: str, X: Any, params: Mapping[str, Any]) -> NDArray[Any]:
        check_is_fitted(self, "passed_")
        if not self.passed_:
            raise NoSolutionFoundError(
                f"the classifier did not pass its safety test: {self.explanation_}"
            )
        call = getattr(self.estimator_, method)
        return np.asarray(call(self._checked(X, reset=False), **params))

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """Return a DataFrame unchanged, and anything else as an array.

        The classifier itself checks the numbers.
        """
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        options: dict[str, Any] = {"accept_sparse": "csr", "dtype": None}
        return validate_data(self, X, reset=reset, ensure_all_finite=False, **options)

    def predict(self, X: Any, *, sensitive_features: Any = None, **params: Any) -> NDArray[Any]:
        """Return labels (n,); raise NoSolutionFoundError if the model did not pass.

        Without metadata routing, the classifier's `predict` receives `sensitive_features` if it
        has a parameter of this name.
        """
        if self.__dict__.get("passed_"):
            params |= sensitive_arguments(self.estimator_, sensitive_features)
        return self._call("predict", X, params)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, **params: Any) -> Array:
        """Return probabilities (n, 2); raise NoSolutionFoundError if the model did not pass."""
        return self._call("predict_proba", X, params)

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any, **params: Any) -> Array:
        """Return scores (n,); raise NoSolutionFoundError if the model did not pass."""
        return self._call("decision_function", X, params)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return a router that passes on whatever the classifier's methods request."""
        to = MethodMapping().add(caller="fit", callee="fit")
        for method in ("predict", "predict_proba", "decision_function"):
            to = to.add(caller=method, callee=method)
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=to)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator)
        tags.classifier_tags.multi_class = False
        tags.input_tags = own.input_tags
        return tags
