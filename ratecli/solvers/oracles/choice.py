"""An oracle as a file names it: `linear`, `regression`, `plugin`, or a classifier of scikit-learn, with options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import Fault, did_you_mean
from ratecli.models.base import Array, Features
from ratecli.models.fitted import Fitted
from ratecli.models.grouped import with_members
from ratecli.models.trees import Trees
from ratecli.rates.kinds import Kinds
from ratecli.solvers.base import Checked, OptionFaultError
from ratecli.solvers.groups import Groups
from ratecli.solvers.oracles.base import Oracle
from ratecli.solvers.oracles.ground import Ground
from ratecli.solvers.oracles.homes import HOMES
from ratecli.solvers.oracles.linear import LinearOracle
from ratecli.solvers.oracles.regression import PairedRegression
from ratecli.solvers.problem import Problem

LINEAR, REGRESSION, PLUGIN = "linear", "regression", "plugin"
CHANCES, GROUPS = "probabilities", "groups"
LOGISTIC = "LogisticRegression"
SOME = "DecisionTreeClassifier, GaussianNB, HistGradientBoostingClassifier, LogisticRegression"
"""Classifiers that take sample weights, for those who do not know any."""


@dataclass(frozen=True)
class _Named:
    """A name with options, and where in the file's value the options stand."""

    name: str
    options: Mapping[str, Any]
    loc: tuple[str, ...]


def check_oracle(value: Any) -> None:
    """Raises OptionFaultError, E101, E103 or E104, for what names no oracle."""
    chosen = _named(value, ())
    if chosen.name in (LINEAR, REGRESSION):
        _only(chosen, ())
    elif chosen.name == PLUGIN:
        _only(chosen, (CHANCES, GROUPS))
        if not isinstance(chosen.options.get(GROUPS, False), bool):
            fault = Fault("E103", f"'{GROUPS}' must be true or false")
            raise OptionFaultError((*chosen.loc, GROUPS), fault)
        _check_learner(_chances(chosen), [], chances=True)
    else:
        _check_learner(chosen, [LINEAR, REGRESSION, PLUGIN])


OracleOption = Annotated[Any, Checked(check_oracle)]
"""An option of a solver: the name of an oracle, or `{name: {option: value}}`."""


def check_chances(value: Any) -> None:
    """Raises OptionFaultError, E101, E103 or E104, for what names no classifier that gives probabilities."""
    _check_learner(_named(value, ()), [], chances=True)


ChancesOption = Annotated[Any, Checked(check_chances)]
"""An option of a solver: the name of a classifier of scikit-learn, or `{name: {option: value}}`."""


def fitted_chances(
    value: Any, rows: tuple[Features, NDArray[np.intp], Array], l2: float, rng: np.random.Generator
) -> Trees | Fitted:
    """The classifier that a checked option names, of rows (m, d), their classes from 0 and weights.

    `l2` is that of a logistic regression that is given no other. Raises FaultError, E501, where it refuses.
    """
    from ratecli.solvers.oracles.estimators import made  # noqa: PLC0415
    from ratecli.solvers.oracles.memory import remembered  # noqa: PLC0415
    from ratecli.solvers.oracles.plugin import defaults  # noqa: PLC0415

    chosen, (X, classes, weights) = _named(value, ()), rows
    own = defaults(l2, X.shape[0]) if chosen.name == LOGISTIC else {}
    model = made(chosen.name, own | dict(chosen.options), rng)
    return remembered(model, X, classes, weights / weights.mean())


def knows_groups(value: Any) -> bool:
    """Whether the oracle that a checked option names looks at the slices of the goals."""
    chosen = _named(value, ())
    return chosen.name == PLUGIN and bool(chosen.options.get(GROUPS, False))


def ground_of(value: Any, problem: Problem, kinds: Kinds) -> Ground:
    """The rows as the oracle that a checked option names looks at them."""
    if not knows_groups(value):
        return Ground.of(problem.X, kinds)
    slices = Groups.of_problem(problem).slices
    members = [problem.slices[text] for text in slices]
    return Ground.of(with_members(problem.X, members), kinds, slices)


def oracle(
    value: Any, ground: Ground, l2: float, rng: np.random.Generator, *, sweeps: int = 0
) -> Oracle:
    """The oracle that a checked option names; `l2` and `sweeps` are those of `LinearOracle`."""
    chosen = _named(value, ())
    if chosen.name == LINEAR:
        return LinearOracle(ground, l2, sweeps, rng)
    if chosen.name == REGRESSION:
        return PairedRegression(ground)
    # the rest of scikit-learn is slow to import
    from ratecli.solvers.oracles.group_plugin import GroupPlugIn  # noqa: PLC0415
    from ratecli.solvers.oracles.learner import Learner  # noqa: PLC0415
    from ratecli.solvers.oracles.plugin import PlugIn, defaults  # noqa: PLC0415

    if chosen.name == PLUGIN:
        model = _chances(chosen)
        own = defaults(l2, ground.count) if model.name == LOGISTIC else {}
        found = GroupPlugIn if knows_groups(value) else PlugIn
        return found(ground, model.name, own | dict(model.options), rng)
    return Learner(ground, chosen.name, chosen.options, rng)


def reweighed(found: Oracle, ground: Ground) -> Oracle | None:
    """The oracle on the same rows with other weights, chosen by the features alone, if what it has fitted
    still holds there; else None.
    """
    from ratecli.solvers.oracles.plugin import PlugIn  # noqa: PLC0415

    return found.weighing(ground) if isinstance(found, PlugIn) else None


def _named(value: Any, loc: tuple[str, ...]) -> _Named:
    if isinstance(value, str):
        return _Named(value, {}, loc)
    if isinstance(value, dict) and len(value) == 1:
        ((name, options),) = value.items()
        if options is None or isinstance(options, dict):
            return _Named(name, options or {}, (*loc, name))
    hint = "write a name, or {name: {option: value}}"
    raise OptionFaultError(
        loc, Fault("E103", "no oracle: one name, or one name with options", hint)
    )


def _chances(plugin: _Named) -> _Named:
    return _named(plugin.options.get(CHANCES, LOGISTIC), (*plugin.loc, CHANCES))


def _only(chosen: _Named, names: Iterable[str]) -> None:
    known = list(names)
    for key in chosen.options:
        if key not in known:
            hint = did_you_mean(key, known, f"options of {chosen.name}")
            fault = Fault("E101", f"'{chosen.name}' has no option '{key}'", hint)
            raise OptionFaultError((*chosen.loc, key), fault, key=True)


def _check_learner(chosen: _Named, others: list[str], *, chances: bool = False) -> None:
    """That scikit-learn has such a classifier, which takes weights and these options."""
    name = chosen.name
    if not chosen.options and name in ([LOGISTIC] if chances else HOMES):
        return
    # scikit-learn is slow to import, and its list of all classifiers slow to make
    from ratecli.solvers.oracles import estimators  # noqa: PLC0415

    if name not in HOMES and name not in estimators.classifiers():
        what = "classifiers" if chances else "oracles"
        known = [*others, *estimators.weighted()]
        hint = f"{did_you_mean(name, known, what)}, or another of scikit-learn"
        raise _refused(chosen, f"scikit-learn has no classifier '{name}'", hint)
    found = estimators.classifier(name)
    if not estimators.takes_weights(found):
        raise _refused(chosen, f"{name} takes no sample weights", f"these do: {SOME}")
    _only(chosen, found().get_params(deep=False))
    refused = estimators.refusal(found, chosen.options)
    if refused is not None:
        key, message = refused
        raise OptionFaultError((*chosen.loc, key), Fault("E104", message))
    if chances and not hasattr(found(**chosen.options), "predict_proba"):
        raise _refused(chosen, f"{name} gives no probabilities", f"these do: {SOME}")


def _refused(chosen: _Named, message: str, hint: str) -> OptionFaultError:
    key = chosen.loc[-1:] == (chosen.name,)
    return OptionFaultError(chosen.loc, Fault("E104", message, hint), key=key)
