"""Diagnostics as Python exceptions and warnings, and the types of arguments."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd

from ratecli.config.base import describe_type
from ratecli.errors import Diagnostic
from ratecli.errors import FaultError as FaultError  # noqa: PLC0414  public name
from ratecli.render import render_diagnostics, terminal_safe

MESSAGE_WIDTH = 100
PACKAGE_FOLDER = f"{Path(__file__).parents[1]}{os.sep}"
"""Folder of the package `ratecli`, with a separator at its end."""


class InvalidInputError(FaultError, ValueError):
    """Invalid input; `str` is the message of the command line, `faults` has its parts."""

    def __str__(self) -> str:
        return render_diagnostics(self.faults, color=False, width=MESSAGE_WIDTH)


class NoSolutionFoundError(ValueError):
    """No usable model: none was found, or none passed its safety test."""


class RatecliWarning(UserWarning):
    """A result that may not be what the user expects."""


@contextmanager
def convert_errors() -> Iterator[None]:
    """Convert a FaultError to an InvalidInputError, which is a ValueError."""
    try:
        yield
    except FaultError as error:
        raise InvalidInputError(error.faults) from None


def issue_warnings(notices: Iterable[Diagnostic | str]) -> None:
    """Issue a warning for each text or diagnostic, attributed to the caller outside of ratecli."""
    texts = (each if isinstance(each, str) else f"{each.code}: {each.message}" for each in notices)
    for text in dict.fromkeys(texts):
        warnings.warn(terminal_safe(text), RatecliWarning, stacklevel=_caller_level())


def _caller_level() -> int:
    """Return the stack level of the first caller outside of ratecli."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  warnings count from there
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        frame, level = frame.f_back, level + 1
    return level


def _is(*types: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types)


def _are_texts(value: Any) -> bool:
    is_list = isinstance(value, Sequence | np.ndarray | pd.Index) and not isinstance(value, str)
    return is_list and all(isinstance(each, str) for each in value)


def _is_text_or(other: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) or other(value)


_NAMES = "a mapping of names to values", _is(Mapping)
_RULES = "a rule, a list of rules, or a mapping of names to rules"
ARGUMENT_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("algorithm", "solver"), ("the name of an algorithm", _is(str))),
    "at": _NAMES,
    "by": ("a column name, or a list of them", _is_text_or(_are_texts)),
    "constraints": (_RULES, _is(str, list, tuple, Mapping)),
    "disclosivity": ("a number", _is(float, int, np.number)),
    **dict.fromkeys(("drop", "stratify"), ("a list of column names", _are_texts)),
    "encode": ("True, False or 'auto'", _is(bool, str)),
    "estimator": ("a classifier", lambda value: hasattr(value, "fit")),
    "executor": ("text or an executor", _is_text_or(lambda value: hasattr(value, "run"))),
    **dict.fromkeys(("groups", "parameters", "solver_options"), _NAMES),
    **dict.fromkeys(("holds", "missing"), ("text", _is(str))),
    "jobs": ("a whole number", _is(int)),
    "name": ("the name of a data set", _is(str)),
    **dict.fromkeys(("output", "path"), ("a path", _is(str, PathLike))),
    "settings": (
        "a mapping, or a list of texts",
        _is_text_or(lambda value: isinstance(value, Mapping) or _are_texts(value)),
    ),
    "source": ("a path or a mapping", _is(str, PathLike, Mapping)),
}
"""The type of an argument in words, and whether a value has it."""


def check_parameters(estimator: Any) -> None:
    """Check the types of an estimator's parameters, as `check_types` does.

    None is allowed where it is the default.
    """
    optional = {each.name for each in fields(estimator) if each.default is None}
    values = {each.name: getattr(estimator, each.name) for each in fields(estimator)}
    known = [name for name in values if name in ARGUMENT_TYPES]
    check_types(**{x: values[x] for x in known if not (values[x] is None and x in optional)})


def check_types(**values: Any) -> None:
    """Check the types of arguments by their names.

    Raises
    ------
    FaultError
        E103 if an argument, or a name in a mapping, has another type than in `ARGUMENT_TYPES`.
    """
    faults = []
    for name, value in values.items():
        wanted, has_type = ARGUMENT_TYPES[name]
        if not has_type(value):
            shown = "None" if value is None else describe_type(value)
            if isinstance(value, Sequence) and not isinstance(value, str):
                shown = f"{list(value)!r}"
            faults.append(Diagnostic("E103", f"'{name}' must be {wanted}, not {shown}"))
        elif isinstance(value, Mapping):
            wrong = (key for key in value if not isinstance(key, str))
            faults += [
                Diagnostic("E103", f"a name in '{name}' must be text, not {key!r}") for key in wrong
            ]
    if faults:
        raise FaultError(faults)
