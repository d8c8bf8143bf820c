"""Keys of trials, and the random streams derived from seeds and names."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def trial_key(content: Mapping[str, Any]) -> str:
    """Return the sha256 of `content`, independent of the order of its keys.

    1 and 1.0 are equal, and so are a tuple and a list; True differs from 1. Types unknown to JSON
    raise TypeError, since their text may change between runs. NaN raises ValueError.
    """
    return hashlib.sha256(_text(_canonical(content)).encode()).hexdigest()


def random_stream(root_seed: int, *names: str) -> np.random.Generator:
    """Return the random numbers for one purpose, independent of those under any other names.

    The bit generator is explicit, since NumPy may change its default.
    """
    digest = hashlib.sha256(_text([int(root_seed), *map(str, names)]).encode()).digest()
    words = [int.from_bytes(digest[at : at + 4], "big") for at in range(0, len(digest), 4)]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _canonical(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return _number(float(value))
        case Mapping():
            return {_name(name): _canonical(item) for name, item in value.items()}
        case list() | tuple():
            return [_canonical(item) for item in value]
        case _:
            raise TypeError(f"{type(value).__name__} cannot be part of a key: {value!r}")


def _number(value: float) -> int | float:
    if math.isnan(value):
        raise ValueError("NaN cannot be part of a key: it is not equal to itself")
    return int(value) if value.is_integer() else value


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"names in a key are strings, not {type(name).__name__}: {name!r}")
    return name
