"""Save models as bytes and load them: JSON and plain arrays in an npz file, never a pickle.

The JSON text `model` is an object with the name of a class, `kind`, and the fields of its
dataclass; parts of a model are objects inside. An array is stored as its start and shape in one
array of all numbers of its type: a mixture may have hundreds of members, and each array of a file
takes time.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import sha256
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ratecli.models import composed, layout, linear, policy, probabilities, proxies, trees
from ratecli.models.base import Classifier
from ratecli.models.probabilities import ProbabilityModel, dump_skops, load_skops, reject_zip_bomb
from ratecli.plugins import installed_classifiers

STORED_CLASSES: Mapping[str, Any] = {
    each.__name__: each
    for module in (composed, layout, linear, policy, probabilities, proxies, trees)
    for each in vars(module).values()
    if isinstance(each, type) and is_dataclass(each)
}
"""Classes that a stored model may consist of, by name; other packages add theirs (`plugins`)."""
SCALARS = (bool, float, int, str)
NamedArrays = Mapping[str, NDArray[Any]]
ZIP_SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06")
"""First bytes of a zip file, and of an empty one."""


def dumps(model: Classifier | ProbabilityModel) -> bytes:
    """Return the model as bytes; equal models give equal bytes."""
    numbers, buffer = _Numbers(), io.BytesIO()
    text = json.dumps(_write(model, type(model), numbers)).encode()
    np.savez(buffer, model=np.asarray(text), **numbers.arrays())  # type: ignore[arg-type]
    return buffer.getvalue()


def loads(blob: bytes) -> Classifier:
    """Load a classifier. Raise ValueError if the bytes contain no classifier of a known kind."""
    classifier: Classifier = _load(blob, Classifier)
    return classifier


def load_probabilities(blob: bytes) -> ProbabilityModel:
    """Load a model of probabilities. Raise ValueError if the bytes contain none."""
    model: ProbabilityModel = _load(blob, ProbabilityModel)
    return model


def _load(blob: bytes, hint: Any) -> Any:
    try:
        arrays = _read_arrays(blob)
        return _read(json.loads(arrays["model"].item()), hint, arrays, {})
    except Exception as error:  # NumPy, zipfile and skops raise any kind for other bytes
        raise ValueError(f"no stored classifier: {error}") from error


def _read_arrays(blob: bytes) -> NamedArrays:
    # NumPy would take other bytes for a pickle and suggest how to load it
    if not blob.startswith(ZIP_SIGNATURES):
        raise ValueError("it is not an .npz file")
    reject_zip_bomb(blob)
    with np.load(io.BytesIO(blob), allow_pickle=False) as archive:
        return {"model": np.asarray(b"null"), **archive}


class _Numbers:
    """The numbers of all arrays of a model, by the name of their type; equal arrays share them."""

    def __init__(self) -> None:
        self._parts: dict[str, list[NDArray[Any]]] = {}
        self._starts: dict[tuple[str, bytes], int] = {}

    def add(self, array: NDArray[Any]) -> list[int]:
        """Return where the array starts, and its shape."""
        key = array.dtype.name, sha256(array.tobytes()).digest()
        if key not in self._starts:
            parts = self._parts.setdefault(array.dtype.name, [])
            self._starts[key] = sum(map(len, parts))
            parts.append(array.ravel())
        return [self._starts[key], *array.shape]

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {name: np.concatenate(parts) for name, parts in self._parts.items()}


def _array_at(place: list[int], dtype: Any, arrays: NamedArrays) -> NDArray[Any]:
    """Return the array of a type whose start and shape is `place`."""
    start, *shape = place
    numbers = arrays.get(np.dtype(dtype).name, np.zeros(0, dtype))
    end = start + math.prod(shape)
    fits = numbers.ndim == 1 and numbers.dtype == dtype and 0 <= start <= end <= len(numbers)
    if not fits or min(shape, default=0) < 0:
        raise ValueError(f"it has no array of {np.dtype(dtype)} at {place}")
    return numbers[start:end].reshape(shape)


def _write(value: Any, hint: Any, numbers: _Numbers) -> Any:
    """Return a field of type `hint`, or a model, as JSON."""
    if hint is Any:
        return numbers.add(np.frombuffer(dump_skops(value), dtype=np.uint8))
    if (number := _number_type(hint)) is not None:
        return numbers.add(np.asarray(value, dtype=number))
    if get_origin(hint) is tuple:
        return [_write(each, get_args(hint)[0], numbers) for each in value]
    if hint in SCALARS:
        return hint(value)
    kind: Any = type(value)
    own = _field_types(kind).items()
    return {"kind": kind.__name__} | {n: _write(getattr(value, n), t, numbers) for n, t in own}


def _read(value: Any, hint: Any, arrays: NamedArrays, known: dict[str, Any]) -> Any:
    """Return what `_write` wrote.

    Equal parts become one object, so that the members of a mixture share what they score rows by.
    """
    if hint is Any:
        return load_skops(_array_at(value, np.uint8, arrays).tobytes())
    if (number := _number_type(hint)) is not None:
        return _array_at(value, number, arrays)
    if get_origin(hint) is tuple:
        first, last = get_args(hint)
        if not isinstance(value, list) or (last is not ... and len(value) != 2):
            raise ValueError(f"{value} is not a list of {hint}")
        return tuple(_read(each, first, arrays, known) for each in value)
    if hint in SCALARS:
        if type(value) not in {hint, int if hint is float else hint}:
            raise ValueError(f"{value!r} is not a {hint.__name__}")
        return hint(value)
    text, found = json.dumps(value), _stored_class(value["kind"])
    if text not in known and found is not object:
        own = _field_types(found).items()
        known[text] = found(**{n: _read(value[n], t, arrays, known) for n, t in own})
    if text in known and isinstance(known[text], hint):
        return known[text]
    raise ValueError(f"kind '{value['kind']}' is unknown here")


def _stored_class(name: str) -> Any:
    """Return the class of a name, `object` if there is none.

    Raises ValueError if the class of another package is no dataclass.
    """
    if name in STORED_CLASSES or name not in (others := installed_classifiers()):
        return STORED_CLASSES.get(name, object)
    found = others[name].load()
    if not is_dataclass(found):
        raise ValueError(f"'{name}' is no dataclass")
    return found


def _number_type(hint: Any) -> Any:
    """Return the type of numbers of an array's type, None for other types."""
    match get_origin(hint), get_args(hint):
        case np.ndarray, (_, numbers):
            return get_args(numbers)[0]
        case origin, (numbers,) if origin is NDArray:  # an alias with a name since NumPy 2.5
            return numbers
    return None


@cache
def _field_types(model: Any) -> dict[str, Any]:
    """Return the type of each field of a dataclass."""
    hints = get_type_hints(model)
    return {field.name: hints[field.name] for field in fields(model) if field.init}
