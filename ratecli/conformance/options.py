"""A solver's class and its options: what a file can say of it, and what goes to other processes."""

from __future__ import annotations

import dataclasses
import inspect
import json
import pickle
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import TypeAdapter

from ratecli.conformance.outcome import DoubtError, FailsError, Trial, said
from ratecli.experiment.options import checked, settled
from ratecli.ledger.keys import trial_key
from ratecli.rates.analysis import Shape
from ratecli.solvers.base import OptionFaultError, Role, Solver


def _declares(solver: Solver) -> None:
    found = type(solver)
    if found.role not in get_args(Role):
        raise FailsError(f"its role is '{found.role}', not one of {', '.join(get_args(Role))}")
    for key in ("objectives", "constraints"):
        unknown = sorted(map(str, set(getattr(found, key)) - set(Shape)))
        if unknown:
            raise FailsError(f"'{unknown[0]}' among its {key} is no class of goals")
        if not getattr(found, key) and found.role != "ignores":
            raise FailsError(f"it says of no class of {key} that it takes them")
    if found.role == "ignores" and (found.objectives or found.constraints):
        raise FailsError("it ignores goals, and names classes that it takes")
    if not isinstance(found.version, int) or found.version < 1:
        raise FailsError(f"its version is {found.version!r}, not a whole number from 1")


def _options(solver: Solver) -> None:
    found = type(solver)
    parameters = vars(found).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise FailsError("its class is no frozen dataclass")
    for each in dataclasses.fields(solver):  # type: ignore[arg-type]
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            raise FailsError(f"the option '{each.name}' has no default")
    adapter: TypeAdapter[Solver] = TypeAdapter(found)
    text = json.dumps(settled(solver))
    back = adapter.validate_json(text, strict=True)
    if back != solver:
        raise FailsError(f"its options, written as {text}, are read as others")
    trial_key(settled(solver))


def _typed(solver: Solver) -> None:
    adapter: TypeAdapter[Solver] = TypeAdapter(type(solver))
    for each in dataclasses.fields(solver):  # type: ignore[arg-type]
        odd = {"no": "such value"}
        given: Mapping[str, Any] = settled(solver) | {each.name: odd}
        try:
            adapter.validate_json(json.dumps(given), strict=True)
        except (ValueError, OptionFaultError):
            continue
        if any(True for _ in checked(type(solver), given)):
            continue
        raise DoubtError(f"the option '{each.name}' takes anything, even {odd}")


def _documented(solver: Solver) -> None:
    text = inspect.getdoc(type(solver)) or ""
    if not text or text.startswith(f"{type(solver).__name__}("):  # what a dataclass says by itself
        raise FailsError("its class has no docstring")
    for each in dataclasses.fields(solver):  # type: ignore[arg-type]
        if f"\n{each.name}\n" not in text:
            raise FailsError(f"its docstring says nothing of '{each.name}'")


def _travels(solver: Solver) -> None:
    try:
        back = pickle.loads(pickle.dumps(solver))  # noqa: S301  our own bytes
    except Exception as error:
        raise FailsError(f"it cannot be pickled: {said(error)}") from error
    if back != solver:
        raise FailsError("pickled and back it is not equal to itself")


OPTIONS: tuple[Trial[Solver], ...] = (
    Trial("declares what it takes", "set role, objectives, constraints and version on the class", _declares),
    Trial("has options with defaults", "a frozen dataclass of plain JSON values, each with a default", _options),
    Trial("types its options", "annotate it, as in Annotated[int, Ge(1)] or Literal['a', 'b']", _typed),
    Trial("documents its options", "a line for each under `Attributes` in the docstring", _documented),
    Trial("goes to workers", "keep nothing in it that pickle does not know: a module-level class", _travels),
)  # fmt: skip
