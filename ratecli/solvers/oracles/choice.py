"""The option `oracle` of solvers: `linear`, `regression`, `plugin`, or a scikit-learn classifier.

The functions check such an option and make the oracle that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from ratecli.errors import Diagnostic, InvalidValueError, did_you_mean

if TYPE_CHECKING:  # numpy is slow to import
    import numpy as np
    from numpy.typing import NDArray

    from ratecli.models.base import Array, Features
    from ratecli.models.probabilities import SklearnModel, TreeEnsemble
    from ratecli.rates.matrix import RowKinds
    from ratecli.solvers.oracles.base import Oracle, OracleRows
    from ratecli.solvers.problem import Problem

LINEAR_ORACLE, REGRESSION_ORACLE, PLUGIN_ORACLE = "linear", "regression", "plugin"
PROBABILITIES_OPTION, GROUPS_OPTION = "probabilities", "groups"
ORACLE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    LINEAR_ORACLE: (),
    REGRESSION_ORACLE: (),
    PLUGIN_ORACLE: (PROBABILITIES_OPTION, GROUPS_OPTION),
}
"""Options of the oracles that are not classifiers of scikit-learn."""
LOGISTIC = "LogisticRegression"

CLASSIFIER_MODULES = {
    name: f"sklearn.{module}"
    for module, names in {
        "calibration": "CalibratedClassifierCV",
        "ensemble": "AdaBoostClassifier BaggingClassifier ExtraTreesClassifier "
        "GradientBoostingClassifier HistGradientBoostingClassifier RandomForestClassifier",
        "linear_model": "LogisticRegression LogisticRegressionCV Perceptron RidgeClassifier "
        "RidgeClassifierCV SGDClassifier",
        "naive_bayes": "BernoulliNB CategoricalNB ComplementNB GaussianNB MultinomialNB",
        "neural_network": "MLPClassifier",
        "svm": "LinearSVC NuSVC SVC",
        "tree": "DecisionTreeClassifier ExtraTreeClassifier",
    }.items()
    for name in names.split()
}
"""Modules of the scikit-learn classifiers that take sample weights and need no parameters.

Hard-coded because scanning scikit-learn takes seconds. A file that names one of these classes is
checked without any import if it sets no parameters. Before scikit-learn 1.7, `MLPClassifier` takes
no weights: its fits fail (E501).
"""
MAX_LOGISTIC_ITERATIONS = 1000
"""Iteration limit of the default logistic regression."""


@dataclass(frozen=True)
class _NamedOptions:
    """A name with options, and the location of the options within the value in the file."""

    name: str
    options: Mapping[str, Any]
    loc: tuple[str, ...]

    @classmethod
    def parse(cls, value: Any, loc: tuple[str, ...] = ()) -> _NamedOptions:
        if isinstance(value, str):
            return cls(value, {}, loc)
        if isinstance(value, dict) and len(value) == 1:
            ((name, options),) = value.items()
            if options is None or isinstance(options, dict):
                return cls(name, options or {}, (*loc, name))
        hint = "write a name, or {name: {option: value}}"
        message = "not an oracle: expected one name, or one name with options"
        raise InvalidValueError(Diagnostic("E103", message, hint, loc=loc))

    def probabilities(self) -> _NamedOptions:
        """Return the classifier that a plug-in oracle fits."""
        loc = (*self.loc, PROBABILITIES_OPTION)
        return _NamedOptions.parse(self.options.get(PROBABILITIES_OPTION, LOGISTIC), loc)

    def parameters(self, l2: float, rows: int) -> dict[str, Any]:
        """Return the parameters of a classifier with probabilities.

        By default, a logistic regression adds the penalty `l2 / 2 |w|^2` to its mean loss.
        """
        defaults = {"C": 1 / (rows * l2), "max_iter": MAX_LOGISTIC_ITERATIONS}
        return (defaults if self.name == LOGISTIC else {}) | dict(self.options)

    def check_names(self, known: Sequence[str]) -> None:
        """Raise E101 if there is an option of another name."""
        for key in self.options:
            if key not in known:
                hint = did_you_mean(key, known, f"options of {self.name}")
                message, loc = f"'{self.name}' has no option '{key}'", (*self.loc, key)
                raise InvalidValueError(Diagnostic("E101", message, hint, loc=loc, key=True))

    def check_learner(self, others: Iterable[str] = (), *, probabilities: bool = False) -> None:
        """Raise E101 or E104 unless this is a scikit-learn classifier that accepts sample weights.

        With `probabilities`, it must have `predict_proba`. `others` are names that are valid, too.
        """
        name, known = self.name, [*others, *CLASSIFIER_MODULES]
        if name not in CLASSIFIER_MODULES:
            hint = did_you_mean(name, known, "classifiers" if probabilities else "oracles")
            message = f"scikit-learn has no classifier '{name}' that accepts sample weights"
            raise self._error(message, hint)
        if not self.options and (name == LOGISTIC or not probabilities):
            return
        # importing scikit-learn is slow
        from ratecli.solvers.oracles import estimators

        model = estimators.classifier_class(name)
        self.check_names(list(model().get_params(deep=False)))
        for key, value in self.options.items():
            if refusal := estimators.parameter_error(model, key, value):
                raise InvalidValueError(Diagnostic("E104", refusal, loc=(*self.loc, key)))
        if probabilities and not hasattr(model(**self.options), "predict_proba"):
            message = f"{name} does not return probabilities"
            raise self._error(message, f"{LOGISTIC} does, for example")

    def _error(self, message: str, hint: str) -> InvalidValueError:
        """Return an error at the name."""
        key = self.loc[-1:] == (self.name,)
        return InvalidValueError(Diagnostic("E104", message, hint, loc=self.loc, key=key))


def check_oracle(value: Any) -> Any:
    """Return the value; raise E101, E103 or E104 if it does not name an oracle."""
    choice = _NamedOptions.parse(value)
    if choice.name not in ORACLE_OPTIONS:
        choice.check_learner(ORACLE_OPTIONS)
        return value
    choice.check_names(ORACLE_OPTIONS[choice.name])
    if choice.name == PLUGIN_ORACLE:
        if not isinstance(choice.options.get(GROUPS_OPTION, False), bool):
            loc = (*choice.loc, GROUPS_OPTION)
            message = f"'{GROUPS_OPTION}' must be true or false"
            raise InvalidValueError(Diagnostic("E103", message, loc=loc))
        choice.probabilities().check_learner(probabilities=True)
    return value


OracleOption = Annotated[str | dict[str, Any], BeforeValidator(check_oracle)]
"""Type of a solver option: the name of an oracle, or `{name: {option: value}}`."""


def check_probability_classifier(value: Any) -> Any:
    """Return the value, which must name a classifier with probabilities.

    Raises InvalidValueError with E101, E103 or E104 if it does not.
    """
    _NamedOptions.parse(value).check_learner(probabilities=True)
    return value


ChancesOption = Annotated[str | dict[str, Any], BeforeValidator(check_probability_classifier)]
"""Type of a solver option: the name of a scikit-learn classifier, or `{name: {option: value}}`."""


def fit_probability_classifier(
    value: Any, rows: tuple[Features, NDArray[np.intp], Array], l2: float, rng: np.random.Generator
) -> TreeEnsemble | SklearnModel:
    """Fit the classifier that a checked option names.

    `rows` are features (m, d), classes from 0, and weights. `l2` is the regularization of a
    logistic regression without a `C` of its own. Raises FaultError, E501, if the classifier cannot
    be fitted.
    """
    from ratecli.solvers.oracles.estimators import fit_estimator, make_estimator

    choice, (X, classes, weights) = _NamedOptions.parse(value), rows
    model = make_estimator(choice.name, choice.parameters(l2, X.shape[0]), rng)
    return fit_estimator(model, X, classes, weights / weights.mean())


def oracle_uses_groups(value: Any) -> bool:
    """Return whether the oracle that a checked option names uses the slices of the goals."""
    choice = _NamedOptions.parse(value)
    return choice.name == PLUGIN_ORACLE and bool(choice.options.get(GROUPS_OPTION, False))


def make_oracle_rows(value: Any, problem: Problem, kinds: RowKinds) -> OracleRows:
    """Return the rows in the form that the oracle of a checked option needs."""
    from ratecli.models.composed import append_memberships
    from ratecli.solvers.oracles.base import OracleRows
    from ratecli.solvers.problem import Groups

    if not oracle_uses_groups(value):
        return OracleRows.of(problem.X, kinds)
    slices = Groups.of_problem(problem).slices
    members = [problem.slices[text] for text in slices]
    return OracleRows.of(append_memberships(problem.X, members), kinds, slices)


def make_oracle(
    value: Any, rows: OracleRows, l2: float, rng: np.random.Generator, *, sweeps: int = 0
) -> Oracle:
    """Return the oracle that a checked option names; `l2` and `sweeps` are for `LinearOracle`."""
    from ratecli.solvers.oracles.linear import LinearOracle, PairedRegressionOracle

    choice = _NamedOptions.parse(value)
    if choice.name == LINEAR_ORACLE:
        return LinearOracle(rows, l2, sweeps, rng)
    if choice.name == REGRESSION_ORACLE:
        return PairedRegressionOracle(rows)
    # imports scikit-learn, which is slow
    from ratecli.solvers.oracles import estimators

    if choice.name != PLUGIN_ORACLE:
        return estimators.ClassifierOracle(rows, choice.name, choice.options, rng)
    model = choice.probabilities()
    parameters = model.parameters(l2, rows.count)
    if oracle_uses_groups(value):
        return estimators.GroupPlugInOracle(rows, model.name, parameters, rng)
    return estimators.PlugInOracle(rows, model.name, parameters, rng)
