"""Names of models in files and Python programs, and the classes that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal
from weakref import WeakValueDictionary

from ratecli import plugins
from ratecli.errors import Diagnostic, InvalidValueError

ModelKind = Literal["classifier", "regressor"]
PLUGIN_ORACLE = "plugin"
PROBABILITIES_OPTION = "probabilities"
EARLY_STOPPING = ("early_stopping_round", "early_stopping_rounds")
"""Parameters of the booster libraries that require validation rows."""
LOGISTIC = "LogisticRegression"
LOGISTIC_MODEL = "logistic"
SCORE_MODEL = "score"
"""A model that is not fitted: a column of scores and a threshold."""
DEFAULT_THRESHOLD = 0.5
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
    """The name of a model or oracle with options, and their location within the value of a file."""

    name: str
    options: Mapping[str, Any]
    loc: tuple[str, ...] = ()

    @classmethod
    def parse(cls, value: Any, loc: tuple[str, ...] = (), what: str = "an oracle") -> NamedOptions:
        """Return what a value names; raise E103 if it is no name, with or without options."""
        if isinstance(value, str):
            return cls(value, {}, loc)
        if isinstance(value, dict) and len(value) == 1:
            ((name, options),) = value.items()
            if name == SCORE_MODEL and not isinstance(options, dict):
                options = {"name": options}
            if options is None or isinstance(options, dict):
                return cls(name, options or {}, (*loc, name))
        hint = "write a name, or {name: {option: value}}"
        message = f"not {what}: expected one name, or one name with options"
        raise InvalidValueError(Diagnostic("E103", message, hint, loc=loc))

    @property
    def fitted(self) -> NamedOptions:
        """The model that is fitted: a plug-in oracle's classifier, else this one."""
        if self.name != PLUGIN_ORACLE:
            return self
        loc = (*self.loc, PROBABILITIES_OPTION)
        return NamedOptions.parse(self.options.get(PROBABILITIES_OPTION, LOGISTIC), loc)

    def parameters(self, l2: float, rows: float) -> dict[str, Any]:
        """Return the parameters of a classifier with probabilities.

        By default, a logistic regression adds the penalty `l2 / 2 |w|^2` to its mean loss.
        """
        defaults = {"C": 1 / (rows * l2), "max_iter": MAX_LOGISTIC_ITERATIONS}
        is_logistic = self.name in {LOGISTIC, LOGISTIC_MODEL}
        return (defaults if is_logistic else {}) | dict(self.options)


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


_instances: WeakValueDictionary[str, Any] = WeakValueDictionary()
_numbers = count()


def find_instance(name: str) -> Any | None:
    """Return the estimator of a name that `name_instance` gave, None for other names."""
    return _instances.get(name)


def name_instance(value: Any) -> str:
    """Return a name under which an unfitted estimator is found as long as the program keeps it."""
    name = f"{type(value).__module__}:{type(value).__qualname__} {next(_numbers)}"
    _instances[name] = value
    return name
