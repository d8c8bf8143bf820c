"""A model or oracle as a file names it: its name, its options, and errors at their places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite
from typing import Any, Literal

from ratecli import plugins
from ratecli.errors import Diagnostic, InvalidValueError, did_you_mean
from ratecli.solvers.oracles.instances import find_instance

PROBABILITIES_OPTION = "probabilities"
EARLY_STOPPING = ("early_stopping_round", "early_stopping_rounds")
"""Parameters of the booster libraries that require validation rows."""
LOGISTIC = "LogisticRegression"
LOGISTIC_MODEL = "logistic"
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
MAX_LOGISTIC_ITERATIONS = 1000
"""Iteration limit of the default logistic regression."""


@dataclass(frozen=True)
class NamedOptions:
    """A name with options, and the location of the options within the value in the file."""

    name: str
    options: Mapping[str, Any]
    loc: tuple[str, ...]

    @classmethod
    def parse(cls, value: Any, loc: tuple[str, ...] = (), what: str = "an oracle") -> NamedOptions:
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

    def probabilities(self) -> NamedOptions:
        """Return the classifier that a plug-in oracle fits."""
        loc = (*self.loc, PROBABILITIES_OPTION)
        return NamedOptions.parse(self.options.get(PROBABILITIES_OPTION, LOGISTIC), loc)

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
        if regressor and name in BOOSTING_LIBRARIES:
            own = [each for each, module in REGRESSOR_MODULES.items() if module.startswith(name)]
            hint = f"write {own[0]}" if own else f"regressors: {', '.join(REGRESSOR_MODULES)}"
            raise self._error(f"'{name}' is a classifier, not a regressor", hint)
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
