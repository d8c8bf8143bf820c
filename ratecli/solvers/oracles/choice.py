"""The options `model` and `oracle` of solvers: a name, or a name with parameters.

A model is `linear`, `logistic` or a classifier: one of scikit-learn, `lightgbm`, `xgboost`,
`catboost`, one of an entry point, or `package.module:Class`; or it is an existing score. An oracle
is `linear`, `regression`, `plugin` or such a classifier. The functions check an option, fit the
model and make the oracle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from itertools import product
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator

from ratecli import plugins
from ratecli.errors import Diagnostic, InvalidValueError, did_you_mean
from ratecli.solvers.oracles.instances import find_instance

if TYPE_CHECKING:  # numpy is slow to import
    import numpy as np

    from ratecli.models.base import Classifier
    from ratecli.models.probabilities import ProbabilityModel
    from ratecli.rates.matrix import RowKinds
    from ratecli.solvers.oracles.base import FitRows, Oracle, OracleRows
    from ratecli.solvers.problem import Problem

LINEAR_ORACLE, REGRESSION_ORACLE, PLUGIN_ORACLE = "linear", "regression", "plugin"
PROBABILITIES_OPTION, GROUPS_OPTION = "probabilities", "groups"
ORACLE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    LINEAR_ORACLE: (),
    REGRESSION_ORACLE: (),
    PLUGIN_ORACLE: (PROBABILITIES_OPTION, GROUPS_OPTION),
}
"""Options of the oracles that are not classifiers of scikit-learn."""
EARLY_STOPPING = ("early_stopping_round", "early_stopping_rounds")
"""Parameters of the booster libraries that require validation rows."""
LOGISTIC = "LogisticRegression"
LINEAR_MODEL, LOGISTIC_MODEL = "linear", "logistic"
LINEAR_MODELS = (LINEAR_MODEL, LOGISTIC_MODEL)
"""Models that ratecli fits itself."""
SCORE_MODEL = "score"
"""A model that is not fitted: a column of scores and a threshold."""
DEFAULT_THRESHOLD = 0.5
CLASS_PATH = re.compile(r"\w+(\.\w+)*:\w+")
BOOSTING_LIBRARIES = {
    "lightgbm": "lightgbm:LGBMClassifier",
    "xgboost": "xgboost:XGBClassifier",
    "catboost": "catboost:CatBoostClassifier",
}
"""The classifier of each optional library, by the name of the library and of ratecli's extra."""

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
REGRESSOR_MODULES = {
    name: f"sklearn.{module}"
    for module, names in {
        "ensemble": "ExtraTreesRegressor GradientBoostingRegressor HistGradientBoostingRegressor "
        "RandomForestRegressor",
        "linear_model": "ElasticNet Lasso LinearRegression Ridge",
        "tree": "DecisionTreeRegressor ExtraTreeRegressor",
    }.items()
    for name in names.split()
} | {"LGBMRegressor": "lightgbm", "XGBRegressor": "xgboost"}
"""The module of each regressor with a short name; others are written `package.module:Class`."""
ENSEMBLES = frozenset(
    {
        *("ExtraTreesClassifier", "GradientBoostingClassifier", "HistGradientBoostingClassifier"),
        "RandomForestClassifier",
    }
)
"""Boosted trees and forests of scikit-learn."""
DEFAULT_FOLDS = 3
"""Number of folds of algorithms that fit a model repeatedly."""
MAX_FOLDS, MAX_HELD_OUT = 100, 0.9
"""Limits of `scores`: a model is fitted for each fold, and to the rows that are not held out."""
MAX_LOGISTIC_ITERATIONS = 1000
"""Iteration limit of the default logistic regression."""


@dataclass(frozen=True)
class _NamedOptions:
    """A name with options, and the location of the options within the value in the file."""

    name: str
    options: Mapping[str, Any]
    loc: tuple[str, ...]

    @classmethod
    def parse(cls, value: Any, loc: tuple[str, ...] = (), what: str = "an oracle") -> _NamedOptions:
        if isinstance(value, str):
            return cls(value, {}, loc)
        if isinstance(value, dict) and len(value) == 1:
            ((name, options),) = value.items()
            if name == SCORE_MODEL and isinstance(options, str):
                options = {"name": options}
            if options is None or isinstance(options, dict):
                return cls(name, options or {}, (*loc, name))
            if name == SCORE_MODEL:
                cls(name, {}, (*loc, name)).check_score()
        hint = "write a name, or {name: {option: value}}"
        message = f"not {what}: expected one name, or one name with options"
        raise InvalidValueError(Diagnostic("E103", message, hint, loc=loc))

    def probabilities(self) -> _NamedOptions:
        """Return the classifier that a plug-in oracle fits."""
        loc = (*self.loc, PROBABILITIES_OPTION)
        return _NamedOptions.parse(self.options.get(PROBABILITIES_OPTION, LOGISTIC), loc)

    def parameters(self, l2: float, rows: float) -> dict[str, Any]:
        """Return the parameters of a classifier with probabilities.

        By default, a logistic regression adds the penalty `l2 / 2 |w|^2` to its mean loss.
        """
        defaults = {"C": 1 / (rows * l2), "max_iter": MAX_LOGISTIC_ITERATIONS}
        is_logistic = self.name in {LOGISTIC, LOGISTIC_MODEL}
        return (defaults if is_logistic else {}) | dict(self.options)

    def check_names(self, known: Sequence[str]) -> None:
        """Raise E101 if there is an option of another name."""
        for key in self.options:
            if key not in known:
                hint = did_you_mean(key, known, f"options of {self.name}")
                message, loc = f"'{self.name}' has no option '{key}'", (*self.loc, key)
                raise InvalidValueError(Diagnostic("E101", message, hint, loc=loc, key=True))

    def check_score(self) -> None:
        """Raise E101 or E103 unless this is the name of a score, with or without a threshold."""
        self.check_names(("name", "threshold"))
        threshold = self.options.get("threshold", DEFAULT_THRESHOLD)
        number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
        if not (isinstance(self.options.get("name"), str) and number and isfinite(threshold)):
            message = (
                "a score needs the name of a column and, optionally, a finite number as threshold"
            )
            hint = "write {score: NAME} or {score: {name: NAME, threshold: 0.5}}"
            raise InvalidValueError(Diagnostic("E103", message, hint, loc=self.loc))

    def check_learner(
        self, others: Iterable[str] = (), *, probabilities: bool = False, regressor: bool = False
    ) -> None:
        """Raise an error unless this is a classifier, or regressor, that accepts sample weights.

        With `probabilities`, it must have `predict_proba`. `others` are names that are valid, too.

        Raises
        ------
        InvalidValueError
            E101 for an unknown parameter, E104 for its value, for an unknown classifier and for a
            class that is none or whose package is not trusted, E202 if its package is missing.
        """
        name, path = self.name, class_path(self.name)
        instance = find_instance(name)
        kind: Literal["classifier", "regressor"] = "regressor" if regressor else "classifier"
        if instance is not None:
            self._check_instance(instance, kind)
            if probabilities and not hasattr(instance, "predict_proba"):
                raise self._error(f"{name} does not return probabilities", f"{LOGISTIC} does")
            return
        if path is None:
            known = [*others, *BOOSTING_LIBRARIES, *plugins.installed_models(), *CLASSIFIER_MODULES]
            known = [*others, *REGRESSOR_MODULES] if regressor else known
            hint = did_you_mean(name, known, f"{kind}s")
            message = f"there is no {kind} '{name}' that accepts sample weights"
            raise self._error(message, hint)
        if not CLASS_PATH.fullmatch(path):
            raise self._error(f"'{name}' is not the path of a class", "write package.module:Class")
        self._check_package(path.partition(":")[0].partition(".")[0])
        if (
            name in (REGRESSOR_MODULES if regressor else CLASSIFIER_MODULES)
            and not self.options
            and (name == LOGISTIC or not probabilities)
        ):
            return
        # importing scikit-learn is slow
        from ratecli.solvers.oracles import estimators
        from ratecli.solvers.oracles.boosters import FILE_PARAMETERS

        try:
            model = estimators.model_class(name, kind)
            names = estimators.parameter_names(model)
        except Exception as error:  # noqa: BLE001  a module may raise anything when imported
            hint = "name a class whose fit takes sample weights, like those of scikit-learn"
            hint += f": {', '.join(REGRESSOR_MODULES)}" if regressor else ""
            raise self._error(f"'{name}' cannot be used: {error}", hint) from None
        for key in FILE_PARAMETERS.intersection(self.options):
            message, loc = f"'{self.name}' has no option '{key}'", (*self.loc, key)
            hint = "it would let a fit read or write files"
            raise InvalidValueError(Diagnostic("E101", message, hint, loc=loc, key=True))
        self.check_names(names)
        self._check_parameters(model)
        if probabilities and not hasattr(model(**self.options), "predict_proba"):
            message = f"{name} does not return probabilities"
            raise self._error(message, f"{LOGISTIC} does, for example")

    def _check_instance(self, instance: Any, kind: Literal["classifier", "regressor"]) -> None:
        """Raise E101 or E104 unless this estimator object can be used as a model."""
        from ratecli.solvers.oracles import estimators

        try:
            estimators.check_estimator(type(instance), instance, kind)
        except TypeError as error:
            message = f"{type(instance).__name__} cannot be used as a model: {error}"
            hint = f"pass a {kind} whose fit takes sample weights, like those of scikit-learn"
            raise self._error(message, hint) from None
        self.check_names(sorted(instance.get_params()))

    def _check_parameters(self, model: type[Any]) -> None:
        """Raise E104 if a class does not accept the values of the parameters."""
        from ratecli.solvers.oracles import estimators

        if refusal := estimators.parameter_error(model, self.options):
            # some are valid only together: name one if it is invalid alone
            for key, value in self.options.items():
                if alone := estimators.parameter_error(model, {key: value}):
                    raise InvalidValueError(Diagnostic("E104", alone, loc=(*self.loc, key)))
            raise InvalidValueError(Diagnostic("E104", refusal, loc=self.loc))

    def check_fitted(self) -> None:
        """Raise E104 for an existing score."""
        if self.name == SCORE_MODEL:
            message, hint = "an existing score cannot be fitted", "'post_shift' takes it"
            raise InvalidValueError(Diagnostic("E104", message, hint, loc=self.loc, key=True))

    def check_fixed_length(self, why: str = "the model is not fitted to the labels") -> None:
        """Raise E104 for a parameter that stops a fit early."""
        for key in EARLY_STOPPING:
            if self.options.get(key):
                message = f"'{key}' is not possible here: {why}"
                loc = (*self.loc, key)
                raise InvalidValueError(Diagnostic("E104", message, loc=loc, key=True))

    def _check_package(self, package: str) -> None:
        """Raise E104 if a package is not trusted, E202 if it is not installed."""
        if not plugins.is_trusted_package(package):
            message = f"'{package}' is not a package whose classes a file may name"
            raise self._error(message, f"if you trust it: ratecli --trust {package} COMMAND FILE")
        if find_spec(package) is None:
            what = f"'ratecli[{package}]'" if package in BOOSTING_LIBRARIES else package
            hint = f"pip install {what}"
            message = f"'{self.name}' needs {package}, which is not installed"
            raise InvalidValueError(Diagnostic("E202", message, hint, loc=self.loc))

    def _error(self, message: str, hint: str) -> InvalidValueError:
        """Return an error at the name."""
        key = self.loc[-1:] == (self.name,)
        return InvalidValueError(Diagnostic("E104", message, hint, loc=self.loc, key=key))


def check_oracle(value: Any) -> Any:
    """Return the value; raise E101, E103 or E104 if it does not name an oracle."""
    choice = _NamedOptions.parse(value)
    if choice.name not in ORACLE_OPTIONS:
        choice.check_fitted()
        choice.check_learner(ORACLE_OPTIONS)
        choice.check_fixed_length()
        return value
    choice.check_names(ORACLE_OPTIONS[choice.name])
    if choice.name == PLUGIN_ORACLE:
        if not isinstance(choice.options.get(GROUPS_OPTION, False), bool):
            loc = (*choice.loc, GROUPS_OPTION)
            message = f"'{GROUPS_OPTION}' must be true or false"
            raise InvalidValueError(Diagnostic("E103", message, loc=loc))
        choice.probabilities().check_learner(probabilities=True)
        choice.probabilities().check_fixed_length()
    return value


OracleOption = Annotated[str | dict[str, Any], BeforeValidator(check_oracle)]
"""Type of a solver option: the name of an oracle, or `{name: {option: value}}`."""


def check_probability_classifier(value: Any) -> Any:
    """Return the value, which must name a classifier with probabilities.

    `logistic` names that of scikit-learn. Raises InvalidValueError with E101, E103, E104 or E202 if
    the value names no such classifier.
    """
    value = LOGISTIC if value == LOGISTIC_MODEL else value
    choice = _NamedOptions.parse(value)
    choice.check_learner(probabilities=True)
    choice.check_fixed_length()
    return value


ChancesOption = Annotated[str | dict[str, Any], BeforeValidator(check_probability_classifier)]
"""Type of a solver option: a classifier with probabilities, or `{name: {parameter: value}}`."""


def fit_probability_classifier(
    value: Any,
    rows: FitRows,
    l2: float,
    rng: np.random.Generator,
    stopping: FitRows | None = None,
) -> ProbabilityModel:
    """Fit the classifier that a checked option names to rows of several classes.

    `l2` is the regularization of a logistic regression without a `C` of its own, `stopping` are
    rows for early stopping. Raises FaultError, E501, if the classifier cannot be fitted.
    """
    from ratecli.solvers.oracles.estimators import fit_estimator, make_estimator

    choice = _NamedOptions.parse(value)
    model = make_estimator(choice.name, choice.parameters(l2, rows.X.shape[0]), rng)
    return fit_estimator(model, rows, stopping)


def class_path(name: str) -> str | None:
    """Return `module:Class` of the classifier of a name, None if there is none."""
    if ":" in name:
        return name
    name = LOGISTIC if name == LOGISTIC_MODEL else name
    for modules in (CLASSIFIER_MODULES, REGRESSOR_MODULES):
        if name in modules:
            return f"{modules[name]}:{name}"
    if name in BOOSTING_LIBRARIES:
        return BOOSTING_LIBRARIES[name]
    return plugins.installed_models().get(name)


def model_versions(solver: object) -> dict[str, str]:
    """Return the versions of the packages, other than scikit-learn, whose models a solver fits."""
    found = {}
    for value in (getattr(solver, option, None) for option in ("model", "oracle")):
        try:
            choice = _NamedOptions.parse(value)
        except InvalidValueError:  # not set, or an option of a plugin
            continue
        if choice.name == PLUGIN_ORACLE:
            choice = choice.probabilities()
        package = (class_path(choice.name) or "").partition(":")[0].partition(".")[0]
        if version := package not in {"", "sklearn"} and _installed_version(package):
            found[package] = version
    return found


@cache
def _installed_version(package: str) -> str | None:
    """Return the version of a package, None for a module of the user's own."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def check_model(value: Any) -> Any:
    """Return the value; raise E101, E103, E104 or E202 if it does not name a model."""
    choice = _NamedOptions.parse(value, what="a model")
    if choice.name in LINEAR_MODELS:
        choice.check_names(())
    elif choice.name == SCORE_MODEL:
        choice.check_score()
    else:
        choice.check_learner((*LINEAR_MODELS, SCORE_MODEL))
    return value


def check_reduced_model(value: Any) -> Any:
    """Return the value; raise as `check_model` does, or E104 if it cannot be fitted repeatedly."""
    choice = _NamedOptions.parse(check_model(value))
    choice.check_fitted()
    choice.check_fixed_length()
    return value


ModelOption = Annotated[str | dict[str, Any], BeforeValidator(check_model)]
"""Type of a solver option: the name of a model, or `{name: {parameter: value}}`."""


def check_regressor(value: Any) -> Any:
    """Return the value; raise E101, E103, E104 or E202 if it is not `linear` or a regressor."""
    choice = _NamedOptions.parse(value, what="a model")
    if choice.name == LINEAR_MODEL:
        choice.check_names(())
    else:
        choice.check_learner((LINEAR_MODEL,), regressor=True)
        choice.check_fixed_length("no rows are held out from a regressor")
    return value


RegressorOption = Annotated[str | dict[str, Any], BeforeValidator(check_regressor)]
"""Type of a solver option: the name of a regressor, or `{name: {parameter: value}}`."""


def is_regressor(value: Any) -> bool:
    """Return whether a value names a regressor."""
    return _NamedOptions.parse(value, what="a model").name in REGRESSOR_MODULES


def check_model_or_regressor(value: Any) -> Any:
    """Return the value; raise as `check_regressor` or `check_model` does."""
    return check_regressor(value) if is_regressor(value) else check_model(value)


ModelOrRegressorOption = Annotated[str | dict[str, Any], BeforeValidator(check_model_or_regressor)]
"""Type of a solver option that names a model of classes, or one of scikit-learn's regressors."""


def fit_regressor(value: Any, rows: FitRows, rng: np.random.Generator) -> ProbabilityModel:
    """Fit the regressor of a checked option to rows with numbers; raise E501 if it fails."""
    from ratecli.solvers.oracles.estimators import fit_estimator, make_estimator

    name, options = named_options(value)
    return fit_estimator(make_estimator(name, options, rng), rows)


def model_name(value: Any) -> str:
    """Return the name of the model that a checked option names."""
    return _NamedOptions.parse(value).name


def named_options(value: Any) -> tuple[str, Mapping[str, Any]]:
    """Return name and parameters of the model that a checked option names."""
    choice = _NamedOptions.parse(value)
    return choice.name, choice.options


class ExistingScore(NamedTuple):
    """A column of scores, and the threshold above which decisions are positive."""

    name: str
    threshold: float


def existing_score(value: Any) -> ExistingScore | None:
    """Return the score that a checked option names, None if it names a model to be fitted."""
    name, options = named_options(value)
    if name != SCORE_MODEL:
        return None
    return ExistingScore(options["name"], float(options.get("threshold", DEFAULT_THRESHOLD)))


def is_linear(value: Any) -> bool:
    """Return whether the model that a checked option names is one that ratecli fits itself."""
    return model_name(value) in LINEAR_MODELS


def uses_penalty(value: Any) -> bool:
    """Return whether the problem's `l2` applies to the model that a checked option names."""
    choice = _NamedOptions.parse(value)
    if choice.name == PLUGIN_ORACLE:
        choice = choice.probabilities()
    return choice.name in {*LINEAR_MODELS, LOGISTIC} and "C" not in choice.options


def check_scores(value: Any) -> Any:
    """Return the value; raise E104 unless it is `in_sample`, 2 to 100 folds or a share up to .9."""
    match value:
        case None | "in_sample":
            return value
        case {"folds": int() | float() as count, **others} if not others:
            if isfinite(count) and 2 <= count <= MAX_FOLDS and count == int(count):
                return value
        case {"held_out": float() as share, **others} if 0 < share <= MAX_HELD_OUT and not others:
            return value
    message = (
        f"not a way to score rows: in_sample, 2 to {MAX_FOLDS} folds, or a share of more than 0 "
        f"and at most {MAX_HELD_OUT} held out"
    )
    hint = "write in_sample, {folds: 5} or {held_out: 0.25}"
    raise InvalidValueError(Diagnostic("E104", message, hint))


Scores = Annotated[
    Literal["in_sample"] | Mapping[Literal["folds", "held_out"], float],
    BeforeValidator(check_scores),
]
"""Type of a solver option: by which scores of training rows decisions are chosen."""


def is_ensemble(value: Any) -> bool:
    """Return whether a checked option names boosted trees or a forest."""
    module, _, name = (class_path(model_name(value)) or "").partition(":")
    # the name of an instance ends with its address
    return module.partition(".")[0] in BOOSTING_LIBRARIES or name.partition(" ")[0] in ENSEMBLES


def is_linear_class(value: Any) -> bool:
    """Return whether a checked option names a model of `sklearn.linear_model`."""
    module = (class_path(model_name(value)) or "").partition(":")[0]
    return module.startswith("sklearn.linear_model")


def check_tuned(value: Any, values: Mapping[str, Sequence[Any]]) -> None:
    """Check the option `tune`, values by parameter, of the model that a checked option names.

    Raises
    ------
    InvalidValueError
        E104 if the model is linear, for a value that it does not accept and for a parameter that
        the option sets as well, E101 for an unknown parameter.
    """
    choice = _NamedOptions.parse(value)
    if choice.name in {*LINEAR_MODELS, SCORE_MODEL}:
        message = f"the model '{choice.name}' has no parameters to tune"
        hint = f"tune l2, its penalty, or name another model: {LOGISTIC} has C, for example"
        raise InvalidValueError(Diagnostic("E104", message, hint, loc=("tune",), key=True))
    for name, own in values.items():
        if name in choice.options:
            message = f"'{name}' is set in 'model' and tuned"
            raise InvalidValueError(Diagnostic("E104", message, loc=("tune", name), key=True))
        for each in own:
            options = {**choice.options, name: each}
            replace(choice, options=options, loc=("tune",)).check_learner()


def tuned_models(
    value: Any, values: Mapping[str, Sequence[Any]]
) -> list[tuple[dict[str, Any], Any]]:
    """Return all combinations of the tuned values, each with the option that names its model."""
    choice = _NamedOptions.parse(value)
    settings = [dict(zip(values, each, strict=True)) for each in product(*values.values())]
    return [(each, {choice.name: {**choice.options, **each}}) for each in settings]


def stops_early(value: Any) -> bool:
    """Return whether the model of a checked option is to stop by validation rows."""
    return any(_NamedOptions.parse(value).options.get(key) for key in EARLY_STOPPING)


def fit_classifier(
    value: Any,
    rows: FitRows,
    l2: float,
    rng: np.random.Generator,
    stopping: FitRows | None = None,
) -> Classifier:
    """Fit the model of a checked option that is not linear to rows of two classes.

    As `fit_probability_classifier`; E501 also if the model cannot be stored.
    """
    from ratecli.solvers.oracles.estimators import as_classifier

    return as_classifier(fit_probability_classifier(value, rows, l2, rng, stopping))


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
        return OracleRows.of(problem.X, kinds, layout=problem.column_layout)
    slices = Groups.of_problem(problem).slices
    members = [problem.slices[text] for text in slices]
    X = append_memberships(problem.X, members)
    return OracleRows.of(X, kinds, slices, problem.column_layout)


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
