"""The options `model`, `oracle`, `scores` and `tune` of solvers: their checks and what they name.

A model is `linear`, `logistic` or a classifier: one of scikit-learn, `lightgbm`, `xgboost`,
`catboost`, one of an entry point, or `package.module:Class`; or it is an existing score. An oracle
is `linear`, `regression`, `plugin` or such a classifier. Parameters follow the name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from math import isfinite
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator

from ratecli import plugins
from ratecli.errors import Diagnostic, FaultError, InvalidValueError, did_you_mean
from ratecli.solvers.oracles.model_names import (
    BOOSTING_LIBRARIES,
    CLASSIFIER_MODULES,
    DEFAULT_THRESHOLD,
    EARLY_STOPPING,
    LOGISTIC,
    LOGISTIC_MODEL,
    PLUGIN_ORACLE,
    PROBABILITIES_OPTION,
    REGRESSOR_MODULES,
    SCORE_MODEL,
    ModelKind,
    NamedOptions,
    class_path,
    find_instance,
    name_instance,
)

LINEAR_ORACLE, REGRESSION_ORACLE = "linear", "regression"
GROUPS_OPTION = "groups"
LINEAR_MODEL = "linear"
LINEAR_MODELS = (LINEAR_MODEL, LOGISTIC_MODEL)
"""Models that ratecli fits itself."""
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
CLASS_PATH = re.compile(r"\w+(\.\w+)*:\w+")
NO_LABELS = "the model is not fitted to the labels"


def _check_names(choice: NamedOptions, known: Sequence[str]) -> None:
    """Raise E101 if there is an option of another name."""
    for key in choice.options:
        if key not in known:
            hint = did_you_mean(key, known, f"options of {choice.name}")
            message, loc = f"'{choice.name}' has no option '{key}'", (*choice.loc, key)
            raise InvalidValueError(Diagnostic("E101", message, hint, loc=loc, key=True))


def _check_score(choice: NamedOptions) -> None:
    """Raise E101 or E103 unless this is the name of a score, with or without a threshold."""
    _check_names(choice, ("name", "threshold"))
    threshold = choice.options.get("threshold", DEFAULT_THRESHOLD)
    number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    if not (isinstance(choice.options.get("name"), str) and number and isfinite(threshold)):
        message = "a score needs the name of a column and, optionally, a finite number as threshold"
        hint = "write {score: NAME} or {score: {name: NAME, threshold: 0.5}}"
        raise InvalidValueError(Diagnostic("E103", message, hint, loc=choice.loc))


def _check_fixed_length(choice: NamedOptions, why: str) -> None:
    """Raise E104 for a parameter that stops a fit early."""
    for key in EARLY_STOPPING:
        if choice.options.get(key):
            message, loc = f"'{key}' is not possible here: {why}", (*choice.loc, key)
            raise InvalidValueError(Diagnostic("E104", message, loc=loc, key=True))


def _check_learner(
    choice: NamedOptions,
    others: Sequence[str] = (),
    *,
    kind: ModelKind = "classifier",
    probabilities: bool = False,
) -> None:
    """Raise an error unless this names a class of the kind that accepts sample weights.

    With `probabilities`, it must have `predict_proba`. `others` are names that are valid, too.

    Raises
    ------
    InvalidValueError
        E101 for an unknown parameter, E104 for its value, for an unknown class and for one of
        another kind or whose package is not trusted, E202 if its package is missing.
    """
    name, options, instance = choice.name, choice.options, find_instance(choice.name)
    modules = REGRESSOR_MODULES if kind == "regressor" else CLASSIFIER_MODULES
    if instance is None:
        _check_class_path(choice, others, kind)
    if name in modules and not options and (name == LOGISTIC or not probabilities):
        return
    from ratecli.solvers.oracles import estimators  # importing scikit-learn is slow

    try:
        if instance is None:
            model = estimators.model_class(name, kind)
            names = estimators.parameter_names(model)
        else:
            model, name = type(instance), type(instance).__name__
            estimators.check_estimator(model, instance, kind)
            names = sorted(instance.get_params())
    except Exception as error:  # noqa: BLE001  a module may raise anything when imported
        hint = "name a class whose fit takes sample weights, like those of scikit-learn"
        hint += f": {', '.join(REGRESSOR_MODULES)}" if kind == "regressor" else ""
        raise _name_error(choice, f"'{name}' cannot be used: {error}", hint) from None
    _check_names(choice, names)
    if instance is None and (refusal := estimators.parameter_error(model, options)):
        # some are valid only together: name one if it is invalid alone
        for key, value in options.items():
            if alone := estimators.parameter_error(model, {key: value}):
                raise InvalidValueError(Diagnostic("E104", alone, loc=(*choice.loc, key)))
        raise InvalidValueError(Diagnostic("E104", refusal, loc=choice.loc))
    made = model(**options) if instance is None else instance
    if probabilities and not hasattr(made, "predict_proba"):
        message = f"{name} does not return probabilities"
        raise _name_error(choice, message, f"{LOGISTIC} does, for example")


def _check_class_path(choice: NamedOptions, others: Sequence[str], kind: ModelKind) -> None:
    """Raise E104 or E202 unless the name is that of a class of a trusted package."""
    name, path, regressor = choice.name, class_path(choice.name), kind == "regressor"
    if regressor and name in BOOSTING_LIBRARIES:
        message = f"'{name}' is a classifier, not a regressor"
        raise _name_error(choice, message, f"regressors: {', '.join(REGRESSOR_MODULES)}")
    if path is None:
        known = [*BOOSTING_LIBRARIES, *plugins.installed_models(), *CLASSIFIER_MODULES]
        known = [*others, *(REGRESSOR_MODULES if regressor else known)]
        hint = did_you_mean(name, known, f"{kind}s")
        raise _name_error(choice, f"there is no {kind} '{name}' that accepts sample weights", hint)
    if not CLASS_PATH.fullmatch(path):
        message = f"'{name}' is not the path of a class"
        raise _name_error(choice, message, "write package.module:Class")
    package = path.partition(":")[0].partition(".")[0]
    if not plugins.is_trusted_package(package):
        message = f"'{package}' is not a package whose classes a file may name"
        raise _name_error(
            choice, message, f"if you trust it: ratecli --trust {package} COMMAND FILE"
        )
    if find_spec(package) is None:
        what = f"'ratecli[{package}]'" if package in BOOSTING_LIBRARIES else package
        message = f"'{name}' needs {package}, which is not installed"
        fault = Diagnostic("E202", message, f"pip install {what}", loc=choice.loc)
        raise InvalidValueError(fault)


def _name_error(choice: NamedOptions, message: str, hint: str) -> InvalidValueError:
    """Return an error at the name."""
    key = choice.loc[-1:] == (choice.name,)
    return InvalidValueError(Diagnostic("E104", message, hint, loc=choice.loc, key=key))


@dataclass(frozen=True, eq=False)
class ModelCheck:
    """The check of an option that names a model: call it with the value, which it returns.

    Attributes
    ----------
    own
        Names of models that ratecli fits itself, each with its options.
    kind
        The kind of all other models.
    what
        What the option names, for messages.
    score
        Whether the model may be an existing score.
    no_stopping
        Why the model cannot stop early by validation rows, "" if it can.
    probabilities
        Whether the model must return probabilities; `logistic` then names scikit-learn's.
    """

    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kind: ModelKind = "classifier"
    what: str = "an oracle"
    score: bool = False
    no_stopping: str = ""
    probabilities: bool = False

    def __call__(self, value: Any) -> Any:
        """Return the value; raise E101, E103, E104 or E202 if it names no model of this kind."""
        value = LOGISTIC if self.probabilities and value == LOGISTIC_MODEL else value
        choice = NamedOptions.parse(value, what=self.what)
        if choice.name in self.own:
            _check_names(choice, self.own[choice.name])
            if choice.name == PLUGIN_ORACLE:
                _check_plugin(choice)
            return value
        if choice.name == SCORE_MODEL and self.score:
            _check_score(choice)
            return value
        if choice.name == SCORE_MODEL and self.own and self.kind == "classifier":
            message, hint = "an existing score cannot be fitted", "'post_shift' takes it"
            raise InvalidValueError(Diagnostic("E104", message, hint, loc=choice.loc, key=True))
        others = (*self.own, *([SCORE_MODEL] if self.score else []))
        _check_learner(choice, others, kind=self.kind, probabilities=self.probabilities)
        if self.no_stopping:
            _check_fixed_length(choice, self.no_stopping)
        return value


def _check_plugin(choice: NamedOptions) -> None:
    if not isinstance(choice.options.get(GROUPS_OPTION, False), bool):
        loc, message = (*choice.loc, GROUPS_OPTION), f"'{GROUPS_OPTION}' must be true or false"
        raise InvalidValueError(Diagnostic("E103", message, loc=loc))
    _check_learner(choice.fitted, probabilities=True)
    _check_fixed_length(choice.fitted, NO_LABELS)


_OWN_ORACLES = {
    LINEAR_ORACLE: (),
    REGRESSION_ORACLE: (),
    PLUGIN_ORACLE: (PROBABILITIES_OPTION, GROUPS_OPTION),
}
_OWN_MODELS: Mapping[str, tuple[str, ...]] = dict.fromkeys(LINEAR_MODELS, ())
check_oracle = ModelCheck(_OWN_ORACLES, no_stopping=NO_LABELS)
check_probability_classifier = ModelCheck(no_stopping=NO_LABELS, probabilities=True)
check_model = ModelCheck(_OWN_MODELS, what="a model", score=True)
_check_reduced_model = ModelCheck(_OWN_MODELS, what="a model", no_stopping=NO_LABELS)
check_regressor = ModelCheck(
    {LINEAR_MODEL: ()},
    kind="regressor",
    what="a model",
    no_stopping="no rows are held out from a regressor",
)


def is_regressor(value: Any) -> bool:
    """Return whether a value names a regressor."""
    return NamedOptions.parse(value, what="a model").name in REGRESSOR_MODULES


def check_model_or_regressor(value: Any) -> Any:
    """Return the value; raise as `check_regressor` or `check_model` does."""
    return check_regressor(value) if is_regressor(value) else check_model(value)


OracleOption = Annotated[str | dict[str, Any], BeforeValidator(check_oracle)]
"""Type of a solver option: the name of an oracle, or `{name: {option: value}}`."""
ChancesOption = Annotated[str | dict[str, Any], BeforeValidator(check_probability_classifier)]
"""Type of a solver option: a classifier with probabilities, or `{name: {parameter: value}}`."""
ModelOption = Annotated[str | dict[str, Any], BeforeValidator(check_model)]
"""Type of a solver option: the name of a model, or `{name: {parameter: value}}`."""
ReducedModelOption = Annotated[str | dict[str, Any], BeforeValidator(_check_reduced_model)]
"""Type of a solver option: a model that is fitted repeatedly, to other labels than the rows'."""
RegressorOption = Annotated[str | dict[str, Any], BeforeValidator(check_regressor)]
"""Type of a solver option: the name of a regressor, or `{name: {parameter: value}}`."""
ModelOrRegressorOption = Annotated[str | dict[str, Any], BeforeValidator(check_model_or_regressor)]
"""Type of a solver option that names a model of classes, or one of scikit-learn's regressors."""


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


def model_name(value: Any) -> str:
    """Return the name of the model that a checked option names."""
    return NamedOptions.parse(value).name


def named_options(value: Any) -> tuple[str, Mapping[str, Any]]:
    """Return name and parameters of the model that a checked option names."""
    choice = NamedOptions.parse(value)
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
    choice = NamedOptions.parse(value).fitted
    return choice.name in {*LINEAR_MODELS, LOGISTIC} and "C" not in choice.options


def is_ensemble(value: Any) -> bool:
    """Return whether a checked option names boosted trees or a forest."""
    module, _, name = (class_path(model_name(value)) or "").partition(":")
    # the name of an instance ends with its address
    return module.partition(".")[0] in BOOSTING_LIBRARIES or name.partition(" ")[0] in ENSEMBLES


def is_of_module(value: Any, module: str) -> bool:
    """Return whether a checked option names a model of a module, such as `sklearn.tree`."""
    return (class_path(model_name(value)) or "").partition(":")[0].startswith(module)


def stops_early(value: Any) -> bool:
    """Return whether the model of a checked option is to stop by validation rows."""
    return any(NamedOptions.parse(value).options.get(key) for key in EARLY_STOPPING)


def oracle_uses_groups(value: Any) -> bool:
    """Return whether the oracle that a checked option names uses the slices of the goals."""
    choice = NamedOptions.parse(value)
    return choice.name == PLUGIN_ORACLE and bool(choice.options.get(GROUPS_OPTION, False))


def model_versions(solver: object) -> dict[str, str]:
    """Return the versions of the packages, other than scikit-learn, whose models a solver fits."""
    found = {}
    for value in (getattr(solver, option, None) for option in ("model", "oracle")):
        with suppress(InvalidValueError):  # not set, or an option of a plugin
            path = class_path(NamedOptions.parse(value).fitted.name) or ""
            package = path.partition(":")[0].partition(".")[0]
            if version := package not in {"", "sklearn"} and installed_version(package):
                found[package] = version
    return found


@cache
def installed_version(package: str) -> str | None:
    """Return the version of a package, None for a module of the user's own."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def named_estimators(value: Any) -> Any:
    """Return an option in which each estimator is replaced by a name, in mappings and lists, too.

    Options are text: an estimator that a Python program passes is named by its class and parameters
    if a file could name them, else by a name under which `find_instance` finds it.

    Raises
    ------
    FaultError
        E104 for a class. The kind of an estimator is checked where its name is read.
    """
    if isinstance(value, dict):
        return {key: named_estimators(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [named_estimators(part) for part in value]
    if not hasattr(value, "get_params"):
        return value
    if isinstance(value, type):
        name = value.__name__
        message = f"{name} is a class, not an estimator"
        raise FaultError(Diagnostic("E104", message, f"pass an instance, such as {name}()"))
    from ratecli.solvers.oracles.estimators import class_name, parameter_names

    found = type(value)
    try:
        defaults = found().get_params(deep=False)
        parameters = value.get_params(deep=False).items()
        own = {key: each for key, each in parameters if repr(each) != repr(defaults.get(key))}
        as_text = json.loads(json.dumps(own, allow_nan=False)) == own
    except (TypeError, ValueError):
        as_text = False
    trusted = plugins.is_trusted_package(found.__module__.partition(".")[0])
    # a library takes more parameters than a file may set, such as LightGBM's `verbosity`
    if as_text and trusted and set(own) <= set(parameter_names(found)):
        name = class_name(found)
        return {name: own} if own else name
    return name_instance(value)
