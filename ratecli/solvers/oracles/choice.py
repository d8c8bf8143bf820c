"""The options `model` and `oracle` of solvers: a name, or a name with parameters.

A model is `linear`, `logistic` or a classifier: one of scikit-learn, `lightgbm`, `xgboost`,
`catboost`, one of an entry point, or `package.module:Class`; or it is an existing score. An oracle
is `linear`, `regression`, `plugin` or such a classifier. The functions check an option, fit the
model and make the oracle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import metadata
from itertools import product
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator

from ratecli.errors import Diagnostic, InvalidValueError
from ratecli.solvers.oracles.model_names import (
    BOOSTING_LIBRARIES,
    DEFAULT_THRESHOLD,
    EARLY_STOPPING,
    LOGISTIC,
    LOGISTIC_MODEL,
    PROBABILITIES_OPTION,
    REGRESSOR_MODULES,
    SCORE_MODEL,
    NamedOptions,
    class_path,
)

if TYPE_CHECKING:  # numpy is slow to import
    import numpy as np

    from ratecli.models.base import Classifier
    from ratecli.models.probabilities import ProbabilityModel
    from ratecli.rates.matrix import RowKinds
    from ratecli.solvers.oracles.base import FitRows, Oracle, OracleRows
    from ratecli.solvers.problem import Problem

LINEAR_ORACLE, REGRESSION_ORACLE, PLUGIN_ORACLE = "linear", "regression", "plugin"
GROUPS_OPTION = "groups"
ORACLE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    LINEAR_ORACLE: (),
    REGRESSION_ORACLE: (),
    PLUGIN_ORACLE: (PROBABILITIES_OPTION, GROUPS_OPTION),
}
"""Options of the oracles that are not classifiers of scikit-learn."""
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


def check_oracle(value: Any) -> Any:
    """Return the value; raise E101, E103 or E104 if it does not name an oracle."""
    choice = NamedOptions.parse(value)
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
    choice = NamedOptions.parse(value)
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

    choice = NamedOptions.parse(value)
    model = make_estimator(choice.name, choice.parameters(l2, rows.X.shape[0]), rng)
    return fit_estimator(model, rows, stopping)


def model_versions(solver: object) -> dict[str, str]:
    """Return the versions of the packages, other than scikit-learn, whose models a solver fits."""
    found = {}
    for value in (getattr(solver, option, None) for option in ("model", "oracle")):
        try:
            choice = NamedOptions.parse(value)
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
    choice = NamedOptions.parse(value, what="a model")
    if choice.name in LINEAR_MODELS:
        choice.check_names(())
    elif choice.name == SCORE_MODEL:
        choice.check_score()
    else:
        choice.check_learner((*LINEAR_MODELS, SCORE_MODEL))
    return value


def check_reduced_model(value: Any) -> Any:
    """Return the value; raise as `check_model` does, or E104 if it cannot be fitted repeatedly."""
    choice = NamedOptions.parse(check_model(value))
    choice.check_fitted()
    choice.check_fixed_length()
    return value


ModelOption = Annotated[str | dict[str, Any], BeforeValidator(check_model)]
"""Type of a solver option: the name of a model, or `{name: {parameter: value}}`."""


def check_regressor(value: Any) -> Any:
    """Return the value; raise E101, E103, E104 or E202 if it is not `linear` or a regressor."""
    choice = NamedOptions.parse(value, what="a model")
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
    return NamedOptions.parse(value, what="a model").name in REGRESSOR_MODULES


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
    choice = NamedOptions.parse(value)
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


def is_of_module(value: Any, module: str) -> bool:
    """Return whether a checked option names a model of a module, such as `sklearn.tree`."""
    return (class_path(model_name(value)) or "").partition(":")[0].startswith(module)


def check_tuned(value: Any, values: Mapping[str, Sequence[Any]]) -> None:
    """Check the option `tune`, values by parameter, of the model that a checked option names.

    Raises
    ------
    InvalidValueError
        E104 if the model is linear, for a value that it does not accept and for a parameter that
        the option sets as well, E101 for an unknown parameter.
    """
    choice = NamedOptions.parse(value)
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
    choice = NamedOptions.parse(value)
    settings = [dict(zip(values, each, strict=True)) for each in product(*values.values())]
    return [(each, {choice.name: {**choice.options, **each}}) for each in settings]


def stops_early(value: Any) -> bool:
    """Return whether the model of a checked option is to stop by validation rows."""
    return any(NamedOptions.parse(value).options.get(key) for key in EARLY_STOPPING)


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
    choice = NamedOptions.parse(value)
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

    choice = NamedOptions.parse(value)
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
