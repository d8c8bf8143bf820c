"""Unfitted estimators that a Python program passes as models.

Options are text, so an estimator is named: by its class and parameters if a file could name them,
else by a name under which it is found as long as the program keeps it.
"""

from __future__ import annotations

import json
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from ratecli import plugins
from ratecli.errors import Diagnostic, FaultError

_instances: WeakValueDictionary[str, Any] = WeakValueDictionary()
_numbers = count()


def find_instance(name: str) -> Any | None:
    """Return the estimator of a name that `named_estimators` gave, None for other names."""
    return _instances.get(name)


def named_estimators(value: Any) -> Any:
    """Return an option in which each estimator is replaced by its name, in mappings
    and lists, too.

    Raises
    ------
    FaultError
        E104 for a class. The kind of an estimator is checked where its name is read.
    """
    if isinstance(value, dict):
        return {key: named_estimators(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [named_estimators(part) for part in value]
    if not hasattr(value, "get_params"):
        return value
    if isinstance(value, type):
        name = value.__name__
        message = f"{name} is a class, not an estimator"
        raise FaultError(Diagnostic("E104", message, f"pass an instance, such as {name}()"))
    from ratecli.solvers.oracles.estimators import class_name, parameter_names

    found = type(value)
    try:
        defaults = found().get_params(deep=False)
        own = {key: each for key, each in value.get_params(deep=False).items()
               if repr(each) != repr(defaults.get(key))}  # fmt: skip
        as_text = json.loads(json.dumps(own, allow_nan=False)) == own
    except (TypeError, ValueError):
        as_text = False
    trusted = plugins.is_trusted_package(found.__module__.partition(".")[0])
    # a library takes more parameters than a file may set, such as LightGBM's `verbosity`
    if as_text and trusted and set(own) <= set(parameter_names(found)):
        name = class_name(found)
        return {name: own} if own else name
    name = f"{found.__module__}:{found.__qualname__} {next(_numbers)}"
    _instances[name] = value
    return name
