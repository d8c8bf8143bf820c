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


ARGUMENT_TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    name: (has_type, words)
    for names, has_type, words in (
        ("algorithm solver", _is(str), "the name of an algorithm"),
        (
            "by",
            lambda value: _is(str)(value) or _are_texts(value),
            "a column name, or a list of them",
        ),
        (
            "constraints",
            _is(str, list, tuple, Mapping),
            "a rule, a list of rules, or a mapping of names to rules",
        ),
        ("disclosivity", _is(float, int, np.number), "a number"),
        ("drop stratify", _are_texts, "a list of column names"),
        ("encode", _is(bool, str), "True, False or 'auto'"),
        ("estimator", lambda value: hasattr(value, "fit"), "a classifier"),
        ("executor", lambda value: _is(str)(value) or hasattr(value, "run"), "text or an executor"),
        ("groups parameters solver_options", _is(Mapping), "a mapping of names to values"),
        ("holds missing", _is(str), "text"),
        ("jobs", _is(int), "a whole number"),
        ("name", _is(str), "the name of a data set"),
        ("output path", _is(str, PathLike), "a path"),
        (
            "settings",
            lambda value: _is(str, Mapping)(value) or _are_texts(value),
            "a mapping, or a list of texts",
        ),
        ("source", _is(str, PathLike, Mapping), "a path or a mapping"),
    )
    for name in names.split()
}
"""Whether a value has the type of an argument, and the type in words."""


def check_parameters(estimator: Any) -> None:
    """Check the types of an estimator's parameters, as `check_types` does.

    None is allowed where it is the default.
    """
    values = {each.name: getattr(estimator, each.name) for each in fields(estimator)}
    optional = {each.name for each in fields(estimator) if each.default is None}
    check_types(
        **{
            name: value
            for name, value in values.items()
            if name in ARGUMENT_TYPES and not (value is None and name in optional)
        }
    )


def check_types(**values: Any) -> None:
    """Check the types of arguments by their names.

    Raises
    ------
    FaultError
        E103 if an argument, or a name in a mapping, has another type than in `ARGUMENT_TYPES`.
    """
    faults = []
    for name, value in values.items():
        has_type, wanted = ARGUMENT_TYPES[name]
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
