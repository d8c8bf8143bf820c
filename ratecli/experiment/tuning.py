"""The settings that `tune` describes: an algorithm with each combination of the tuned values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any

from ratecli.config.experiment import validate_penalty
from ratecli.errors import Diagnostic, FaultError, did_you_mean, errors_under
from ratecli.experiment.options import (
    TUNE,
    idle_options,
    make_solver,
    option_names,
    solver_class,
    unknown_option,
)
from ratecli.solvers.base import Solver
from ratecli.solvers.oracles.choice import PLUGIN_ORACLE, named_options, uses_penalty
from ratecli.solvers.oracles.model_names import LOGISTIC, PROBABILITIES_OPTION
from ratecli.solvers.registry import all_algorithms
from ratecli.solvers.tuned import L2, Setting

MODEL_OPTIONS = ("oracle", "model")
"""Options that name a model; parameters of the first one that is set can be tuned."""
MAX_SETTINGS = 1000


def make_settings(
    name: str,
    options: Mapping[str, Any],
    tune: Mapping[str, Sequence[Any]],
    constraints: Collection[str],
) -> tuple[Setting, ...]:
    """Return an algorithm with each combination of the values of `tune`, in the order of the file.

    A tuned name is an option of the algorithm, unless the model makes that option idle, the penalty
    `l2` of linear models, else a parameter of the model. The result is empty if the algorithm
    chooses among these values itself (see `Solver.tunes`).

    Raises
    ------
    FaultError
        E101 for a name that is neither, E104 for one that is set as well, for an option without
        effect in all settings, for too many combinations and for filters, and the errors of
        `make_solver`; with locations in the entry's options.
    """
    found, models = solver_class(name), _default_models(name)
    own = {*option_names(name)} - {TUNE} - _idle_by_model(name, options)
    parameters = [key for key in tune if key not in {*own, L2}]
    has_penalty = L2 in tune and L2 not in own
    if parameters and not models:
        raise FaultError(unknown_option(found, parameters[0], own).under(TUNE))
    count = math.prod(map(len, tune.values()))
    if count > MAX_SETTINGS:
        raise _error(f"these are {count:,} combinations; at most {MAX_SETTINGS:,} are allowed")
    if not has_penalty and found.tunes(tune.keys() & own, parameters):
        return ()
    if found.hides_groups:
        raise _error(f"'{name}' is a filter: its goals are not measured on unseen rows")
    twice = [key for key in tune if key in own and key in options]
    if twice:
        raise _error(f"'{twice[0]}' is set and tuned", twice[0])
    settings = []
    for places in product(*(range(len(values)) for values in tune.values())):
        at = dict(zip(tune, places, strict=True))
        setting = {key: tune[key][place] for key, place in at.items()}
        try:
            chosen = _tuned_options(options, setting, own, models)
            with errors_under(L2):
                l2 = validate_penalty(setting[L2]) if has_penalty else None
            solver = make_solver(name, chosen, constraints, idle=True)
            settings.append(Setting(setting, solver, l2))
        except FaultError as error:
            raise FaultError(
                _relocated(name, each, at, parameters) for each in error.faults
            ) from None
    solvers = [setting.solver for setting in settings]
    if has_penalty and not any(map(_uses_penalty, solvers)):
        raise _error("'l2' is for linear models: this model has its own regularization", L2)
    _check_idle(name, solvers, options, own.intersection(tune))
    if len({solver.score_column for solver in solvers}) > 1:
        raise _error("some settings have an existing score as their only feature, others do not")
    return tuple(settings)


def _tuned_options(
    options: Mapping[str, Any],
    setting: Mapping[str, Any],
    own: Collection[str],
    models: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the options updated by a setting; names that are not in `own` are the model's."""
    chosen = {**options, **{key: value for key, value in setting.items() if key in own}}
    parameters = {key: value for key, value in setting.items() if key not in {*own, L2}}
    if parameters:
        values = {**models, **chosen}
        place = next((key for key in MODEL_OPTIONS if values.get(key) is not None), "model")
        chosen[place] = _with_parameters(values[place], parameters)
    return chosen


def _uses_penalty(solver: Solver) -> bool:
    """Return whether `l2` applies: the model is linear, or cannot be chosen."""
    models = [getattr(solver, key, None) for key in MODEL_OPTIONS]
    named = [model for model in models if model is not None]
    return not named or any(map(uses_penalty, named))


def _check_idle(
    name: str, solvers: Sequence[Solver], options: Collection[str], tuned: Collection[str]
) -> None:
    """Raise E104 if an option has no effect in any setting."""
    if idle := idle_options(solvers, {*options, *tuned}):
        raise FaultError(_relocated(name, each, dict.fromkeys(tuned, 0), ()) for each in idle)


def _error(message: str, *inside: str) -> FaultError:
    """Return an E104 at the key `tune`, or at a key in it."""
    return FaultError(Diagnostic("E104", message, loc=(TUNE, *inside), key=True))


def _default_models(name: str) -> dict[str, Any]:
    """Return the default of each option of an algorithm that names a model."""
    fields = dataclasses.fields(solver_class(name))  # type: ignore[arg-type]
    found = {field.name: field.default for field in fields} | dict(all_algorithms()[name].preset)
    return {key: found[key] for key in MODEL_OPTIONS if key in found}


def _idle_by_model(name: str, options: Mapping[str, Any]) -> set[str]:
    """Return the options without effect because of the model, such as another model's loss."""
    models = {key: options[key] for key in MODEL_OPTIONS if key in options}
    idle, before = (make_solver(name, each, ()).idle.keys() for each in (models, {}))
    return {*idle} - {*before}


def _with_parameters(model: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the option `model` with more parameters; for `plugin`, of its classifier."""
    name, options = named_options(model)
    if name == PLUGIN_ORACLE:
        inner = _with_parameters(options.get(PROBABILITIES_OPTION, LOGISTIC), parameters)
        return {name: {**options, PROBABILITIES_OPTION: inner}}
    for key in options.keys() & parameters.keys():
        raise _error(f"'{key}' is set in '{name}' and tuned", key)
    return {name: {**options, **parameters}}


def _relocated(
    name: str, fault: Diagnostic, at: Mapping[str, int], parameters: Sequence[str]
) -> Diagnostic:
    """Return an error of a setting with its location in `tune`.

    `at` is the position of each tuned value of the setting in its list.
    """
    if not fault.loc:
        return dataclasses.replace(fault, loc=(TUNE,), key=True)
    inside = next((key for key in fault.loc if key in parameters), None)
    key, rest = fault.loc[0], fault.loc[1:]
    if key != TUNE and inside is not None:
        key, rest = inside, ()
        if fault.code == "E101":
            message = f"'{key}' is neither an option of '{name}' nor a parameter of its model"
            hint = did_you_mean(str(key), option_names(name), f"options of {name}")
            fault = dataclasses.replace(fault, message=message, help=hint)
    if key not in at:
        return fault
    place = () if fault.key and not rest else (at[str(key)],)
    return dataclasses.replace(fault, loc=(TUNE, key, *place, *rest))
