"""A classifier of scikit-learn that is trained under goals written as rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from ratecli.api.errors import NoSolutionFoundError, convert_errors, issue_warning, issue_warnings
from ratecli.api.estimator import (
    BinaryLabels,
    MappingParamsEstimator,
    RateScoreMixin,
    seed_from_random_state,
)
from ratecli.api.fitting import FitResult, LabelledRows, fit_rows, normalize_weights
from ratecli.api.goals import ConstraintSpec, FitSpec
from ratecli.api.rows import InputRows
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.options import solver_class
from ratecli.ledger.keys import random_stream
from ratecli.ledger.records import CONSTRAINT_TOLERANCE, VIOLATION_PREFIX
from ratecli.models.base import Array, Classifier, Features
from ratecli.models.grouped import GroupThreshold
from ratecli.models.linear import Ramp, RandomizedLogistic, Threshold
from ratecli.models.weighed import CostSensitiveClassifier

AUTO: Literal["auto"] = "auto"
DETERMINISTIC = "deterministic"
SCORE_CLASSIFIERS = (Threshold, Ramp, RandomizedLogistic, CostSensitiveClassifier, GroupThreshold)
"""Classifiers that find a yes likelier than a no just where their score is above 0."""


class RateConstrainedClassifier(RateScoreMixin, MappingParamsEstimator):
    """Minimize one rate under rules about others, such as `positive_rate[women] >= 0.8 * positive_rate`.

    Rules name columns of `X`, where it is a DataFrame, and of `sensitive_features`, which is a DataFrame
    (n, s), a Series (n,) or an array (n,), called `sensitive`. A column is a feature unless it is dropped;
    sensitive features never are.

    A DataFrame with text among its features is encoded as by `ratecli run`: numbers are centred and scaled to
    standard deviation 1, text becomes a feature for each value. With the same rows, seed and options the model
    is then that of the command. Numbers alone, in a DataFrame or an array, are taken as they are, as scikit-learn
    has it: scale them in a pipeline, or say `encode=True`.

    Everything that predicts speaks of one classifier, `classifier_`. By default it is deterministic, though
    what many algorithms find, and what their promise is about, is randomized: say `variant="stochastic"`
    to have that one. Then `predict_proba` is the chance of a yes, `decide` draws, and `predict` gives the
    likelier decision, of which nothing is promised.

    Parameters
    ----------
    objective : str, default="error"
        What is to be small, in the language of rates.
    constraints : str, list of str or dict of str, default=()
        Rules, by their names in a dict.
    solver : str, default="mixture"
        The name of an algorithm (`ratecli ls algorithms`). `seldonian` needs `safety`.
    solver_options : dict, default=None
        Its options. One of them is also the parameter `solver_options__NAME`.
    groups : dict of str, default=None
        Row conditions by the names that rules have for them: `{"women": "sex = Female"}`.
    parameters : dict, default=None
        Numbers by the names that rules and options have for them. One of them is also the parameter
        `parameters__NAME`, for a grid search.
    drop : list of str, default=()
        Columns of X that are no features; rules may name them. They may be missing when predicting.
    encode : bool or "auto", default="auto"
        Whether a DataFrame is encoded; `auto` where it has text among its features, or `missing` is `mean`.
    missing : {"error", "mean"}, default="error"
        What a missing number in a DataFrame is: an error, or the mean of the rows of `fit` that have one, with a
        feature beside it that says where it was missing.
    deployed : str, default=None
        The column that holds the decisions, 0 or 1, of a deployed model, for churn, wins and losses.
    safety : dict, default=None
        A safety test, with the keys that a file has under `safety`: `{"delta": 0.05, "fraction": 0.4}`. That share of
        the rows is put aside; what was trained on the others is given only where it passes the test on these,
        which a model that breaks a rule does with a probability of at most delta. `{}` is a test with the
        defaults.
    l2 : float or str, default="1/n"
        lambda of lambda / 2 |w|^2 beside the mean loss; `c/n` is c over the number of rows, repeated ones
        and all (see `sample_weight`).
    pos_label : object, default=None
        The label that is a yes; None for the larger one.
    variant : str, default="auto"
        Which of the classifiers that the algorithm leaves is `classifier_`: a name among `variants_`, or
        `auto` for the deterministic one, and the main one where there is none.
    random_state : int, RandomState or None, default=None
        Decides what the algorithm leaves to chance; a whole number is the seed of `ratecli run`.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels, sorted.
    classifier_, variants_
        The classifier that predicts, and all that were found, by name, the main one first.
    status_, reason_ : str
        How the algorithm ended, as in `trials.csv`.
    objective_ : float
        The objective of `classifier_` on the training rows.
    violations_ : dict of float
        By how much it breaks each rule there, by its name, or its text without one; at most 0 is kept.
    bounds_ : dict of float
        Of a safety test, the upper end of each rule's violation by `classifier_`, at most 0: empty without one.
    certificates_ : list of dict
        The records of the tests, as in `certificates.json`.
    multipliers_ : dict of float
        What a unit more of room in each rule would save of the objective, where the algorithm tells.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, where X is a DataFrame.

    Examples
    --------
    >>> import ratecli
    >>> X, y = ratecli.load_dataset("loans", rows=1000)
    >>> rule = "positive_rate[sex = Female] >= 0.8 * positive_rate[sex = Male]"
    >>> model = ratecli.RateConstrainedClassifier(constraints=rule, random_state=0).fit(X, y)
    >>> max(model.violations_.values()) <= 1e-6
    True
    """

    _mappings = ("parameters", "solver_options")
    _found = "classifier_"

    def __init__(
        self,
        objective: str = "error",
        constraints: ConstraintSpec = (),
        *,
        solver: str = "mixture",
        solver_options: Mapping[str, Any] | None = None,
        groups: Mapping[str, str] | None = None,
        parameters: Mapping[str, Any] | None = None,
        drop: Sequence[str] = (),
        encode: bool | Literal["auto"] = AUTO,
        missing: Literal["error", "mean"] = "error",
        deployed: str | None = None,
        safety: Mapping[str, Any] | None = None,
        l2: float | str = "1/n",
        pos_label: Any = None,
        variant: str = AUTO,
        random_state: Any = None,
    ) -> None:
        self.objective = objective
        self.constraints = constraints
        self.solver = solver
        self.solver_options = solver_options
        self.groups = groups
        self.parameters = parameters
        self.drop = drop
        self.encode = encode
        self.missing = missing
        self.deployed = deployed
        self.safety = safety
        self.l2 = l2
        self.pos_label = pos_label
        self.variant = variant
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> RateConstrainedClassifier:
        """Train.

        Parameters
        ----------
        X : DataFrame, array or sparse matrix of shape (n, d)
        y : array of shape (n,)
            Two labels.
        sample_weight : array of shape (n,), default=None
            At least 0, the largest at most 1e15 times the smallest that is not 0. A constant factor changes
            nothing. Whole multiples of the smallest, up to 1000, count how often a row is repeated. A safety
            test counts each row once, and takes none.
        sensitive_features : DataFrame, Series, dict or array, default=None
            n rows that rules may name and the classifier does not see. One with the name of a column of X must
            have its values.

        Raises
        ------
        ValueError
            Where anything cannot be read or does not go together; what it is stands there with its place
            in a rule, and in `faults`. X, y, sample_weight and sensitive_features that are pandas objects
            need equal indices: rows are neither aligned nor taken by position where these differ.
        NoSolutionFoundError
            Where the algorithm leaves no classifier, or none that passes its safety test.
        """
        with convert_errors():
            if self.safety is not None and sample_weight is not None:
                raise ValueError("a safety test counts every row once: it takes no sample_weight")
            given = self._given(X, sensitive_features, reset=True, y=y, sample_weight=sample_weight)
            classes = BinaryLabels.of(y, self.pos_label)
            check_consistent_length(X, y)
            rows = LabelledRows(given, classes.yes(y), normalize_weights(sample_weight, X))
            counted = rows.counted()
            BinaryLabels.of(np.asarray(y)[counted], self.pos_label)
            seed = seed_from_random_state(self.random_state)
            found = fit_rows(
                self._question(),
                rows.take(counted),
                seed,
                drop=self.drop,
                encode=self._encoding(),
                missing=self.missing,
            )
        issue_warnings(found.doubts)
        self.classes_, self._classes = classes.labels, classes
        self._reader = found.reader
        self._keep(found)
        return self

    def _question(self) -> FitSpec:
        if self.safety is None and solver_class(self.solver).needs_promise:
            message = f"'{self.solver}' trains for a safety test, and there is none"
            raise FaultError(Diagnostic("E102", message, 'say safety={"delta": 0.05}'))
        return FitSpec(
            self.solver,
            self.solver_options or {},
            self.objective,
            self.constraints,
            self.groups or {},
            self.parameters or {},
            self.l2,
            self.deployed,
            self.safety,
        )

    def _encoding(self) -> bool | Literal["auto"]:
        if self.encode is True or self.encode is False or self.encode == AUTO:
            return self.encode
        raise FaultError(
            Diagnostic("E104", f"encode is {self.encode!r}, not True, False or 'auto'")
        )

    def _unseen(self) -> list[str]:
        return [*self.drop, *([] if self.deployed is None else [self.deployed])]

    def _keep(self, found: FitResult) -> None:
        """Choose the classifier, and tell of it."""
        variants, ending = found.solution.variants, found.ending
        if not variants:
            reason = found.read.written.told(ending.reason or ending.status)
            tested = ending.info.get("certificates")
            what = "classifier that passes its safety test" if tested else "classifier"
            raise NoSolutionFoundError(f"{self.solver} found no {what}: {reason}")
        chosen = self._chosen(list(variants))
        shown, values = found.read.written.names, found.values[chosen]
        self.variants_ = dict(variants)
        self.classifier_ = variants[chosen]
        self.status_, self.reason_ = ending.status, found.read.written.told(ending.reason)
        self.objective_ = values["objective"]
        self.violations_ = {
            called: values[VIOLATION_PREFIX + name]
            for name, called in shown.items()
            if VIOLATION_PREFIX + name in values
        }
        self.multipliers_ = {
            shown[name]: value for name, value in found.solution.multipliers.items()
        }
        self.certificates_ = list(ending.info.get("certificates", ()))
        self.bounds_ = {
            shown[each["constraint"]]: float(each["upper"])
            for each in self.certificates_
            if each["variant"] == chosen
        }
        if found.read.case.solver.role != "ignores" and not self.bounds_:  # a test says more
            self._doubt(chosen)

    def _chosen(self, names: Sequence[str]) -> str:
        if self.variant == AUTO:
            return DETERMINISTIC if DETERMINISTIC in names else names[0]
        if self.variant not in names:
            listed = ", ".join(names)
            raise ValueError(f"variant is {self.variant!r}, and {self.solver} leaves: {listed}")
        return self.variant

    def _doubt(self, chosen: str) -> None:
        """Say where a rule is not kept, or the algorithm was not done."""
        broken = [
            f"'{name}' by {amount:.3g}"
            for name, amount in self.violations_.items()
            if not amount <= CONSTRAINT_TOLERANCE
        ]
        if broken:
            issue_warning(f"the {chosen} classifier misses {', '.join(broken)} on training rows")
        elif self.status_ != "ok":
            issue_warning(f"{self.solver} ended as {self.status_}: {self.reason_}")

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """The likelier decision of each row.

        Parameters
        ----------
        X : DataFrame, array or sparse matrix of shape (n, d)
        sensitive_features : DataFrame, Series, dict or array, default=None
            Needed by classifiers that look at groups, such as those of `post_shift`, where X does not have
            their columns.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        margin = self._margin(*self._shown(X, sensitive_features))
        return self._classes.of_decisions(margin > 0)

    def decision_function(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """Scores (n,), above 0 where `predict` gives the larger label."""
        margin = self._margin(*self._shown(X, sensitive_features))
        return self._classes.signed(margin)

    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """The chance of each decision, (n, 2) in the order of `classes_`.

        Of a deterministic classifier 0 and 1. It is how the row is decided, no estimate of how likely the
        label is.
        """
        classifier, shown = self._shown(X, sensitive_features)
        return self._classes.both(classifier.decide(shown))

    def decide(
        self, X: Any, random_state: Any = None, *, sensitive_features: Any = None
    ) -> NDArray[Any]:
        """A decision drawn for each row with the chances of `predict_proba`, as labels (n,).

        With a whole number as `random_state` the draws are those of `ratecli predict --seed`.
        """
        classifier, shown = self._shown(X, sensitive_features)
        chances = classifier.decide(shown)
        draws = random_stream(seed_from_random_state(random_state), "predict").random(len(chances))
        return self._classes.of_decisions(draws < chances)

    def _shown(self, X: Any, sensitive: Any) -> tuple[Classifier, Features]:
        check_is_fitted(self, self._found)
        with convert_errors():
            given: InputRows = self._given(X, sensitive, reset=False)
            shown = self._reader.shown(given, self.classifier_)
            issue_warnings(self._reader.surprises(given))
        return self.classifier_, shown

    @staticmethod
    def _margin(classifier: Classifier, shown: Features) -> Array:
        """(n,) above 0 where a yes is likelier."""
        if isinstance(classifier, SCORE_CLASSIFIERS):
            return classifier.score(shown)
        return classifier.decide(shown) - 0.5

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags
