"""The option `oracle` of solvers: `linear`, `regression`, `plugin`, or a scikit-learn classifier.

The functions check such an option and make the oracle that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from ratecli.errors import Diagnostic, InvalidValueError, did_you_mean
from ratecli.solvers.oracles.homes import CLASSIFIER_MODULES

if TYPE_CHECKING:
    from ratecli.models.base import Array, Features
    from ratecli.models.sklearn_model import SklearnModel
    from ratecli.models.trees import TreeEnsemble
    from ratecli.rates.matrix import RowKinds
    from ratecli.solvers.oracles.base import Oracle, OracleRows
    from ratecli.solvers.problem import Problem

LINEAR_ORACLE, REGRESSION_ORACLE, PLUGIN_ORACLE = "linear", "regression", "plugin"
PROBABILITIES_OPTION, GROUPS_OPTION = "probabilities", "groups"
LOGISTIC = "LogisticRegression"
EXAMPLE_CLASSIFIERS = (
    "DecisionTreeClassifier, GaussianNB, HistGradientBoostingClassifier, LogisticRegression"
)
"""Classifiers that take sample weights, as suggestions in error messages."""


@dataclass(frozen=True)
class _NamedOptions:
    """A name with options, and the location of the options within the value in the file."""

    name: str
    options: Mapping[str, Any]
    loc: tuple[str, ...]


def check_oracle(value: Any) -> Any:
    """Return the value; raise E101, E103 or E104 if it does not name an oracle."""
    chosen = _parse_named_options(value, ())
    if chosen.name in (LINEAR_ORACLE, REGRESSION_ORACLE):
        _check_option_names(chosen, ())
    elif chosen.name == PLUGIN_ORACLE:
        _check_option_names(chosen, (PROBABILITIES_OPTION, GROUPS_OPTION))
        if not isinstance(chosen.options.get(GROUPS_OPTION, False), bool):
            loc = (*chosen.loc, GROUPS_OPTION)
            raise InvalidValueError(
                Diagnostic("E103", f"'{GROUPS_OPTION}' must be true or false", loc=loc)
            )
        _check_learner(_probability_options(chosen), [], chances=True)
    else:
        _check_learner(chosen, [LINEAR_ORACLE, REGRESSION_ORACLE, PLUGIN_ORACLE])
    return value


OracleOption = Annotated[str | dict[str, Any], BeforeValidator(check_oracle)]
"""Type of a solver option: the name of an oracle, or `{name: {option: value}}`."""


def check_probability_classifier(value: Any) -> Any:
    """Return the value, which must name a classifier with probabilities.

    Raises InvalidValueError with E101, E103 or E104 if it does not.
    """
    _check_learner(_parse_named_options(value, ()), [], chances=True)
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
    from ratecli.solvers.oracles.estimators import (
        fit_estimator_cached,
        make_estimator,
    )
    from ratecli.solvers.oracles.plugin import logistic_defaults

    chosen, (X, classes, weights) = _parse_named_options(value, ()), rows
    own = logistic_defaults(l2, X.shape[0]) if chosen.name == LOGISTIC else {}
    model = make_estimator(chosen.name, own | dict(chosen.options), rng)
    return fit_estimator_cached(model, X, classes, weights / weights.mean())


def oracle_uses_groups(value: Any) -> bool:
    """Return whether the oracle that a checked option names uses the slices of the goals."""
    chosen = _parse_named_options(value, ())
    return chosen.name == PLUGIN_ORACLE and bool(chosen.options.get(GROUPS_OPTION, False))


def make_oracle_rows(value: Any, problem: Problem, kinds: RowKinds) -> OracleRows:
    """Return the rows as the oracle that a checked option names needs them."""
    from ratecli.models.group_threshold import append_memberships
    from ratecli.solvers.groups import Groups
    from ratecli.solvers.oracles.base import OracleRows

    if not oracle_uses_groups(value):
        return OracleRows.of(problem.X, kinds)
    slices = Groups.of_problem(problem).slices
    members = [problem.slices[text] for text in slices]
    return OracleRows.of(append_memberships(problem.X, members), kinds, slices)


def make_oracle(
    value: Any, ground: OracleRows, l2: float, rng: np.random.Generator, *, sweeps: int = 0
) -> Oracle:
    """Return the oracle that a checked option names; `l2` and `sweeps` are for `LinearOracle`."""
    from ratecli.solvers.oracles.linear import LinearOracle
    from ratecli.solvers.oracles.regression import PairedRegressionOracle

    chosen = _parse_named_options(value, ())
    if chosen.name == LINEAR_ORACLE:
        return LinearOracle(ground, l2, sweeps, rng)
    if chosen.name == REGRESSION_ORACLE:
        return PairedRegressionOracle(ground)
    # estimators.py imports scikit-learn, which is slow
    from ratecli.solvers.oracles.estimators import ClassifierOracle
    from ratecli.solvers.oracles.plugin import (
        GroupPlugInOracle,
        PlugInOracle,
        logistic_defaults,
    )

    if chosen.name == PLUGIN_ORACLE:
        model = _probability_options(chosen)
        own = logistic_defaults(l2, ground.count) if model.name == LOGISTIC else {}
        found = GroupPlugInOracle if oracle_uses_groups(value) else PlugInOracle
        return found(ground, model.name, own | dict(model.options), rng)
    return ClassifierOracle(ground, chosen.name, chosen.options, rng)


def reweight_oracle(found: Oracle, ground: OracleRows) -> Oracle | None:
    """Return the oracle for other weights of the rows if its fitted model stays valid, else None.

    The weights must depend on the features alone.
    """
    from ratecli.solvers.oracles.plugin import PlugInOracle

    return found.weighing(ground) if isinstance(found, PlugInOracle) else None


def _parse_named_options(value: Any, loc: tuple[str, ...]) -> _NamedOptions:
    if isinstance(value, str):
        return _NamedOptions(value, {}, loc)
    if isinstance(value, dict) and len(value) == 1:
        ((name, options),) = value.items()
        if options is None or isinstance(options, dict):
            return _NamedOptions(name, options or {}, (*loc, name))
    hint = "write a name, or {name: {option: value}}"
    message = "no oracle: one name, or one name with options"
    raise InvalidValueError(Diagnostic("E103", message, hint, loc=loc))


def _probability_options(plugin: _NamedOptions) -> _NamedOptions:
    return _parse_named_options(
        plugin.options.get(PROBABILITIES_OPTION, LOGISTIC), (*plugin.loc, PROBABILITIES_OPTION)
    )


def _check_option_names(chosen: _NamedOptions, names: Iterable[str]) -> None:
    known = list(names)
    for key in chosen.options:
        if key not in known:
            hint = did_you_mean(key, known, f"options of {chosen.name}")
            message, loc = f"'{chosen.name}' has no option '{key}'", (*chosen.loc, key)
            raise InvalidValueError(Diagnostic("E101", message, hint, loc=loc, key=True))


def _check_learner(chosen: _NamedOptions, others: list[str], *, chances: bool = False) -> None:
    """Check that scikit-learn has the classifier with these options, and that it takes weights."""
    name = chosen.name
    if not chosen.options and name in ([LOGISTIC] if chances else CLASSIFIER_MODULES):
        return
    # importing scikit-learn is slow, and so is listing all its classifiers
    from ratecli.solvers.oracles import estimators

    if name not in CLASSIFIER_MODULES and name not in estimators.list_classifiers():
        what = "classifiers" if chances else "oracles"
        known = [*others, *estimators.weighted_classifier_names()]
        hint = f"{did_you_mean(name, known, what)}, or another of scikit-learn"
        raise _option_error(chosen, f"scikit-learn has no classifier '{name}'", hint)
    found = estimators.classifier_class(name)
    if not estimators.takes_sample_weights(found):
        raise _option_error(
            chosen, f"{name} takes no sample weights", f"these do: {EXAMPLE_CLASSIFIERS}"
        )
    _check_option_names(chosen, found().get_params(deep=False))
    refused = estimators.invalid_parameter(found, chosen.options)
    if refused is not None:
        key, message = refused
        raise InvalidValueError(Diagnostic("E104", message, loc=(*chosen.loc, key)))
    if chances and not hasattr(found(**chosen.options), "predict_proba"):
        raise _option_error(
            chosen, f"{name} gives no probabilities", f"these do: {EXAMPLE_CLASSIFIERS}"
        )


def _option_error(chosen: _NamedOptions, message: str, hint: str) -> InvalidValueError:
    key = chosen.loc[-1:] == (chosen.name,)
    return InvalidValueError(Diagnostic("E104", message, hint, loc=chosen.loc, key=key))
