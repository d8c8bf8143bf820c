"""A solver's class and its options: what a file can say of it, and what goes to other processes."""

from __future__ import annotations

import dataclasses
import inspect
import json
import pickle
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import TypeAdapter

from ratecli.conformance.outcome import (
    CheckFailedError,
    CheckWarningError,
    PluginCheck,
    exception_line,
)
from ratecli.experiment.options import all_options, check_option_values
from ratecli.ledger.keys import trial_key
from ratecli.rates.analysis import Shape
from ratecli.solvers.base import OptionFaultError, Role, Solver


def _declares(solver: Solver) -> None:
    found = type(solver)
    if found.role not in get_args(Role):
        raise CheckFailedError(
            f"its role is '{found.role}', not one of {', '.join(get_args(Role))}"
        )
    for key in ("objectives", "constraints"):
        unknown = sorted(map(str, set(getattr(found, key)) - set(Shape)))
        if unknown:
            raise CheckFailedError(f"'{unknown[0]}' among its {key} is no class of goals")
        if not getattr(found, key) and found.role != "ignores":
            raise CheckFailedError(f"it says of no class of {key} that it takes them")
    if found.role == "ignores" and (found.objectives or found.constraints):
        raise CheckFailedError("it ignores goals, and names classes that it takes")
    if not isinstance(found.version, int) or found.version < 1:
        raise CheckFailedError(f"its version is {found.version!r}, not a whole number from 1")


def _options(solver: Solver) -> None:
    found = type(solver)
    parameters = vars(found).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise CheckFailedError("its class is no frozen dataclass")
    for each in dataclasses.fields(solver):  # type: ignore[arg-type]
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            raise CheckFailedError(f"the option '{each.name}' has no default")
    adapter: TypeAdapter[Solver] = TypeAdapter(found)
    text = json.dumps(all_options(solver))
    back = adapter.validate_json(text, strict=True)
    if back != solver:
        raise CheckFailedError(f"its options, written as {text}, are read as others")
    trial_key(all_options(solver))


def _typed(solver: Solver) -> None:
    adapter: TypeAdapter[Solver] = TypeAdapter(type(solver))
    for each in dataclasses.fields(solver):  # type: ignore[arg-type]
        odd = {"no": "such value"}
        given: Mapping[str, Any] = all_options(solver) | {each.name: odd}
        try:
            adapter.validate_json(json.dumps(given), strict=True)
        except (ValueError, OptionFaultError):
            continue
        if any(True for _ in check_option_values(type(solver), given)):
            continue
        raise CheckWarningError(f"the option '{each.name}' takes anything, even {odd}")


def _documented(solver: Solver) -> None:
    text = inspect.getdoc(type(solver)) or ""
    if not text or text.startswith(f"{type(solver).__name__}("):  # what a dataclass says by itself
        raise CheckFailedError("its class has no docstring")
    for each in dataclasses.fields(solver):  # type: ignore[arg-type]
        if f"\n{each.name}\n" not in text:
            raise CheckFailedError(f"its docstring says nothing of '{each.name}'")


def _travels(solver: Solver) -> None:
    try:
        back = pickle.loads(pickle.dumps(solver))  # noqa: S301  our own bytes
    except Exception as error:
        raise CheckFailedError(f"it cannot be pickled: {exception_line(error)}") from error
    if back != solver:
        raise CheckFailedError("pickled and back it is not equal to itself")


OPTION_CHECKS: tuple[PluginCheck[Solver], ...] = (
    PluginCheck("declares what it takes", "set role, objectives, constraints and version on the class", _declares),
    PluginCheck("has options with defaults", "a frozen dataclass of plain JSON values, each with a default", _options),
    PluginCheck("types its options", "annotate it, as in Annotated[int, Ge(1)] or Literal['a', 'b']", _typed),
    PluginCheck("documents its options", "a line for each under `Attributes` in the docstring", _documented),
    PluginCheck("goes to workers", "keep nothing in it that pickle does not know: a module-level class", _travels),
)  # fmt: skip
