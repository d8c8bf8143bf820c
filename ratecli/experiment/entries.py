"""An entry of an algorithm in a file: its options, alone and with `tune`, and its safety test."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from ratecli.certify.trees import SafetyTestSpec
from ratecli.config import base
from ratecli.config.dataset import RESAMPLE_RANGE
from ratecli.config.document import LOCATION_MARK
from ratecli.config.experiment import Problem, validate_penalty
from ratecli.config.sweep import SweepPoint, SweepValue, sweep_points
from ratecli.config.trials import (
    AIM_RANGE,
    DEFAULT_DELTA,
    LABEL_HINT,
    LABEL_WORDS,
    PROBABILITY_RANGE,
    AlgorithmSpec,
    SafetySpec,
)
from ratecli.datasets.split import Holdout
from ratecli.errors import Diagnostic, FaultError, Loc, did_you_mean, errors_under, unknown_name
from ratecli.rates.scope import Scope
from ratecli.solvers.base import ConstraintName, Solver
from ratecli.solvers.oracles.choice import (
    installed_version,
    is_regressor,
    named_options,
    uses_penalty,
)
from ratecli.solvers.oracles.model_names import LOGISTIC, PLUGIN_ORACLE, PROBABILITIES_OPTION
from ratecli.solvers.registry import all_algorithms
from ratecli.solvers.tuned import L2, Setting

TUNE = "tune"
"""The key of an algorithm's entry that lists the settings to choose from."""


@cache
def solver_class(name: str) -> type[Solver]:
    """Return the class of an algorithm; raise E202 if it does not exist."""
    known = all_algorithms()
    if name not in known:
        raise FaultError(unknown_name("E202", "algorithm", name, known))
    return known[name].load()


def usable_solver_class(name: str) -> type[Solver]:
    """Return the class of an algorithm; raise E202 if it or a package that it needs is missing."""
    found = solver_class(name)
    for needed in found.needs:
        if installed_version(needed) is None:
            message = f"'{name}' needs {needed}, which is not installed"
            raise FaultError(Diagnostic("E202", message, f"pip install {needed}"))
    return found


def usable_solvers() -> Iterator[tuple[str, type[Solver]]]:
    """Yield name and class of every algorithm, except those that cannot be used here."""
    for name in all_algorithms():
        with suppress(FaultError):
            yield name, usable_solver_class(name)


def option_names(name: str) -> tuple[str, ...]:
    """Return the names of an algorithm's options; raise E202 if it does not exist."""
    found: Any = solver_class(name)
    return tuple(field.name for field in dataclasses.fields(found))


def make_solver(
    name: str, options: Mapping[str, Any], constraints: Collection[str], *, idle: bool = False
) -> Solver:
    """Return the algorithm with its options; raise FaultError with locations in the options.

    `constraints` are the names of the file's constraints. Options without effect are refused
    unless `idle`.
    """
    found, fields = solver_class(name), option_names(name)
    given, options = options, {**all_algorithms()[name].preset, **options}
    known = fields if found.hides_groups else (*fields, TUNE)
    wrong = [unknown_option(found, key, known) for key in options if key not in fields]
    for key, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):  # not valid in JSON
            wrong += (fault.under(key) for fault in base.value_error("finite", value).faults)
    if wrong:
        raise FaultError(wrong)
    try:
        # via JSON: strict validation of Python input requires an instance of the class
        made: Solver = _type_adapter(found).validate_json(json.dumps(options), strict=True)
    except ValidationError as error:
        raise FaultError(base.diagnostics_of(error)) from None
    wrong += [] if idle else idle_options([made], given)
    for key, rule in _constraint_options(made).items():
        if rule not in constraints:
            wrong.append(unknown_name("E203", "constraint", rule, constraints, key))
    if wrong:
        raise FaultError(wrong)
    return made


def idle_options(solvers: Sequence[Solver], given: Collection[str]) -> list[Diagnostic]:
    """Return an E104 for each given option that has no effect in any of the solvers."""
    return [
        Diagnostic("E104", why, "leave it out", loc=(key,), key=True)
        for key, why in solvers[0].idle.items()
        if key in given and all(key in each.idle for each in solvers)
    ]


def unknown_option(found: type[Solver], key: str, known: Collection[str]) -> Diagnostic:
    """Return an E101 for an option that a class does not have."""
    fault, hint = base.unknown_key((key,), known), found.absent.get(key)
    if not hint and key in LABEL_WORDS:
        hint = LABEL_HINT
    if not hint and "model" in known:
        hint = f"{fault.help}; parameters of a model belong to `model`: {{NAME: {{{key}: ...}}}}"
    return dataclasses.replace(fault, help=hint) if hint else fault


def value_at_point(value: Any, point: SweepPoint) -> Any:
    """Return an option's value at a sweep point; swept names may occur anywhere in it."""
    if isinstance(value, str):
        return point.get(value, value)
    if isinstance(value, dict):
        return {key: value_at_point(part, point) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [value_at_point(part, point) for part in value]
    return value


@cache
def _option_types(found: type[Solver]) -> dict[str, Any]:
    """Return the types of the options with their annotations, cached for sweeps."""
    return get_type_hints(found, include_extras=True)


def _constraint_options(made: Solver) -> dict[str, str]:
    """Return the constraint named by each option of type `ConstraintName` that is set."""
    hints = _option_types(type(made))
    keys = [key for key, hint in hints.items() if ConstraintName in {hint, *get_args(hint)}]
    return {key: name for key in keys if (name := getattr(made, key)) is not None}


@cache
def _type_adapter(found: type[Solver]) -> TypeAdapter[Solver]:
    return TypeAdapter(found)


def all_options(made: Solver) -> dict[str, Any]:
    """Return every option of an algorithm, including defaults."""
    return dataclasses.asdict(made)  # type: ignore[call-overload,no-any-return]


def default_options(name: str) -> dict[str, Any]:
    """Return the options of an algorithm with their defaults; none if it is not known here.

    Tuples are lists, as in options that were stored.
    """
    known = all_algorithms().get(name)
    found = all_options(known.load()(**known.preset)) if known else {}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


def options_in_key(made: Solver, rules: Mapping[str, str]) -> dict[str, Any]:
    """Return the options for a trial's key; `rules` are the constraints' texts by name."""
    return all_options(made) | {key: rules[name] for key, name in _constraint_options(made).items()}


# settings of `tune`

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
    chooses among these values itself (`Solver.tunes`).

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
    if tune.keys() <= {*found.tunes} & own:
        return ()
    by_loss = found.tunes_by_loss and not (tune.keys() & own or has_penalty)
    if found.hides_groups:
        raise _error(f"'{name}' is a filter: its goals are not measured on unseen rows")
    if twice := [key for key in tune if key in own and key in options]:
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
            by_loss = by_loss and not is_regressor(getattr(solver, "model", ""))
            settings.append(Setting(setting, solver, l2, by_loss))
        except FaultError as error:
            raise FaultError(_relocated(name, each, at, own) for each in error.faults) from None
    _check_settings(settings, {*options, *own.intersection(tune)}, tune, has_penalty=has_penalty)
    return tuple(settings)


def _check_settings(
    settings: Sequence[Setting], given: Collection[str], tune: Collection[str], *, has_penalty: bool
) -> None:
    """Raise E104 for what has no effect in any setting, and for settings of different features.

    `given` are the options that are set or tuned.
    """
    solvers = [setting.solver for setting in settings]
    if has_penalty and not any(map(_uses_penalty, solvers)):
        raise _error("'l2' is for linear models: this model has its own regularization", L2)
    if idle := idle_options(solvers, given):
        raise FaultError(each.under(*([TUNE] if each.loc[0] in tune else [])) for each in idle)
    if len({solver.score_column for solver in solvers}) > 1:
        raise _error("some settings have an existing score as their only feature, others do not")


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


def _error(message: str, *inside: str) -> FaultError:
    """Return an E104 at the key `tune`, or at a key in it."""
    return FaultError(Diagnostic("E104", message, loc=(TUNE, *inside), key=True))


def _default_models(name: str) -> dict[str, Any]:
    """Return the default of each option of an algorithm that names a model."""
    defaults = default_options(name)
    return {key: defaults[key] for key in MODEL_OPTIONS if key in defaults}


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
    name: str, fault: Diagnostic, at: Mapping[str, int], own: Collection[str]
) -> Diagnostic:
    """Return an error of a setting with its location in `tune`.

    `at` is the position of each tuned value of the setting in its list.
    """
    if not fault.loc:
        return dataclasses.replace(fault, loc=(TUNE,), key=True)
    key = next((str(each) for each in fault.loc if each in at), "")
    if fault.loc[0] == TUNE or not key:
        return fault
    rest = fault.loc[fault.loc.index(key) + 1 :]
    if fault.code == "E101" and key not in own:
        message = f"'{key}' is neither an option of '{name}' nor a parameter of its model"
        hint = did_you_mean(key, option_names(name), f"options of {name}")
        fault = dataclasses.replace(fault, message=message, help=hint)
    place = () if fault.key and not rest else (at[key],)
    return dataclasses.replace(fault, loc=(TUNE, key, *place, *rest))


# numbers of an entry at a sweep point, and its safety test


@dataclasses.dataclass(frozen=True)
class EntryAtPoint:
    """One algorithm's entry at one sweep point; `scope` resolves names there."""

    problem: Problem
    entry: AlgorithmSpec
    point: SweepPoint
    scope: Scope

    def share(self) -> Fraction | None:
        """Return the share of rows to sample for training; raise E104, E203 if it is invalid."""
        share = self.problem.resample
        return None if share is None else self.number(share, ("resample",), RESAMPLE_RANGE)

    def safety(self) -> tuple[Holdout | None, SafetyTestSpec | None, float | None]:
        """Return the rows to hold out, the test on them, whose number is not known yet, and its
        aim; None where the entry has none. Without a test, rows may be held out all the same.

        Raises
        ------
        FaultError
            E104 or E203 if names have no value or an invalid one.
        """
        test = merged_safety(self.problem, self.entry)
        if test is None:
            return None, None, None
        if test.stratify and test.order == "positional":
            message = "the last rows of the file are held out, so they cannot be stratified"
            hint = "leave out 'stratify', or set order: shuffled"
            loc = self._loc("stratify")
            raise FaultError(Diagnostic("E104", message, hint, loc=loc, key=True))
        joint = self._tested_algorithms() if test.guarantee == "joint" else 0
        loc, delta = self._loc("delta"), {}
        for name in self.problem.constraints:
            own, place = test.delta, loc
            if isinstance(own, dict):
                own, place = own.get(name, DEFAULT_DELTA), (*loc, name)
            delta[name] = float(self.number(own, place, PROBABILITY_RANGE)) / max(joint, 1)
        fraction = self.number(test.fraction, self._loc("fraction"), PROBABILITY_RANGE)
        holdout, aim = Holdout(fraction, test.stratify or (), test.order == "positional"), None
        if test.aim is not None:
            aim = float(self.number(test.aim, self._loc("aim"), AIM_RANGE))
        if not test.test:
            return holdout, None, None
        return holdout, SafetyTestSpec(delta, 0, test.bound, test.method, joint=joint), aim

    def _tested_algorithms(self) -> int:
        """Return how many algorithms are tested at this point of the file's sweep.

        An algorithm with a sweep of its own counts once for each of its points.
        """
        problem, common = self.problem, self.problem.sweep.names
        tests = ((entry, merged_safety(problem, entry)) for entry in problem.algorithms)
        return sum(
            all(point.get(name) == self.point.get(name) for name in common)
            for entry, test in tests
            if test is not None and test.test
            for point in sweep_points(problem.sweep, entry.sweep)
        )

    def _loc(self, key: str) -> Loc:
        return safety_key_loc(self.problem, self.entry.label, key)

    def number(self, written: SweepValue, loc: Loc, limits: base.NumberRange) -> Fraction:
        """Return a number, or the value of a name at this point after checking it."""
        number = base.exact_number(written)
        if number is not None:
            return number
        name = str(written)
        if name in self.scope.unset:
            raise FaultError(dataclasses.replace(self.scope.unset[name], loc=loc))
        if name not in self.point:
            message = f"{base.quote_value(name)} is not a swept name"
            hint = did_you_mean(name, self.point, "names of the sweep")
            raise FaultError(Diagnostic("E203", message, hint, loc=loc))
        value = self.point[name]
        number = base.exact_number(value)
        if number is None or value not in limits:
            found = base.describe_type(value)
            message = f"{LOCATION_MARK} must be {limits.words}, and '{name}' is {found}"
            raise FaultError(Diagnostic("E104", message, loc=loc))
        return number


def safety_key_loc(problem: Problem, label: str, key: str) -> Loc:
    """Return the location of a key of an algorithm's safety test, whether or not it is present."""
    if key in own_safety_keys(problem.entry(label)) or problem.safety is None:
        return problem.entry_loc(label, "safety", key)
    return ("safety", key)


def merged_safety(problem: Problem, entry: AlgorithmSpec) -> SafetySpec | None:
    """Return the settings of an algorithm's safety test: the file's, updated by its own entry."""
    if entry.safety is False or (entry.safety is None and problem.safety is None):
        return None
    return (problem.safety or SafetySpec()).model_copy(update=own_safety_keys(entry))


def own_safety_keys(entry: AlgorithmSpec) -> dict[str, Any]:
    """Return the keys of the safety test that an entry sets itself."""
    own = entry.safety
    if not isinstance(own, SafetySpec):
        return {}
    return {key: getattr(own, key) for key in own.model_fields_set}
