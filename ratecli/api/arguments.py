"""The types of arguments of the Python interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from ratecli.config.validation import describe_type
from ratecli.errors import Diagnostic, FaultError


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    is_list = isinstance(value, Sequence | np.ndarray | pd.Index)
    return is_list and not _is_text(value) and all(_is_text(each) for each in value)


def _is_path(value: object) -> bool:
    return isinstance(value, str | PathLike)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


_MAPPING = (_is_mapping, "a mapping of names to values")
_NAMES = (_are_texts, "a list of column names")
_PATH = (_is_path, "a path")
_NAME = (_is_text, "the name of an algorithm")
ARGUMENT_TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "algorithm": _NAME,
    "by": (lambda value: _is_text(value) or _are_texts(value), "a column name, or a list of them"),
    "constraints": (
        lambda value: isinstance(value, str | list | tuple | Mapping),
        "a rule, a list of rules, or a mapping of names to rules",
    ),
    "disclosivity": (lambda value: isinstance(value, float | int | np.number), "a number"),
    "drop": _NAMES,
    "encode": (lambda value: isinstance(value, bool | str), "True, False or 'auto'"),
    "estimator": (lambda value: hasattr(value, "fit"), "a classifier"),
    "executor": (lambda value: _is_text(value) or hasattr(value, "run"), "text or an executor"),
    "groups": _MAPPING,
    "holds": (_is_text, "text"),
    "jobs": (lambda value: isinstance(value, int), "a whole number"),
    "missing": (_is_text, "text"),
    "name": (_is_text, "the name of a data set"),
    "output": _PATH,
    "parameters": _MAPPING,
    "path": _PATH,
    "settings": (
        lambda value: isinstance(value, str | Mapping) or _are_texts(value),
        "a mapping, or a list of texts",
    ),
    "solver": _NAME,
    "solver_options": _MAPPING,
    "source": (lambda value: _is_path(value) or isinstance(value, Mapping), "a path or a mapping"),
    "stratify": _NAMES,
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
            wrong = (key for key in value if not _is_text(key))
            faults += [
                Diagnostic("E103", f"a name in '{name}' must be text, not {key!r}") for key in wrong
            ]
    if faults:
        raise FaultError(faults)
