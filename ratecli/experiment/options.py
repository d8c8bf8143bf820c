"""Checks an algorithm's options in a file against the fields of its class."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from ratecli.config.base import diagnostics_of, unknown_key, value_error
from ratecli.config.sweep import SweepPoint
from ratecli.config.training import LABEL_HINT, LABEL_WORDS
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.solvers.base import ConstraintName, Solver
from ratecli.solvers.registry import all_algorithms

TUNE = "tune"
"""The key of an algorithm's entry that lists the settings to choose from."""


@cache
def solver_class(name: str) -> type[Solver]:
    """Return the class of an algorithm; raise E202 if it does not exist."""
    known = all_algorithms()
    if name not in known:
        hint = did_you_mean(name, known, "algorithms")
        raise FaultError(Diagnostic("E202", f"no algorithm is called '{name}'", hint))
    return known[name].load()


def usable_solver_class(name: str) -> type[Solver]:
    """Return the class of an algorithm; raise E202 if it or a package that it needs is missing."""
    found, missing = solver_class(name), all_algorithms()[name].missing()
    if missing is not None:
        raise FaultError(missing)
    return found


def usable_solvers() -> Iterator[tuple[str, type[Solver]]]:
    """Yield name and class of every algorithm, except those that cannot be used here."""
    for name in all_algorithms():
        with suppress(FaultError):
            yield name, usable_solver_class(name)


def option_names(name: str) -> tuple[str, ...]:
    """Return the names of an algorithm's options; raise E202 if it does not exist."""
    return tuple(
        field.name
        for field in dataclasses.fields(solver_class(name))  # type: ignore[arg-type]
    )


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
            wrong += (fault.under(key) for fault in value_error("finite", value).faults)
    if wrong:
        raise FaultError(wrong)
    try:
        # via JSON: strict validation of Python input requires an instance of the class
        made: Solver = _type_adapter(found).validate_json(json.dumps(options), strict=True)
    except ValidationError as error:
        raise FaultError(diagnostics_of(error)) from None
    wrong += [] if idle else idle_options([made], given)
    for key, rule in _constraint_options(made).items():
        if rule not in constraints:
            hint = did_you_mean(rule, constraints, "constraints")
            message = f"no constraint is called '{rule}'"
            wrong.append(Diagnostic("E203", message, hint, loc=(key,)))
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
    fault, hint = unknown_key((key,), known), found.absent.get(key)
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


# which algorithm to choose: the table of the docs, `explain`, E308 and `init`

_TABLE = tomllib.loads(Path(__file__).with_name("choices.toml").read_text("utf-8"))
CHOICES = {name: (row["use"], row["limits"]) for name, row in _TABLE.items()}
"""What each algorithm is chosen for, as the end of a sentence, and its limits.

Those that serve most purposes come first.
"""


def in_order_of_choice(algorithms: Iterable[str]) -> list[str]:
    """Sort algorithms as in `CHOICES`, those of other packages last."""
    order = list(CHOICES)
    return sorted(algorithms, key=lambda name: order.index(name) if name in order else len(order))


def use_and_limits_of(algorithm: str) -> str:
    """Return what an algorithm is chosen for, and its limits."""
    limits = f" ({CHOICES[algorithm][1]})" if algorithm in CHOICES else ""
    return use_of(algorithm) + limits


def use_of(algorithm: str) -> str:
    """Return what an algorithm is chosen for."""
    return CHOICES[algorithm][0] if algorithm in CHOICES else f"see `ratecli show {algorithm}`"
