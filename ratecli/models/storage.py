"""Save classifiers as bytes and load them: plain arrays in an npz file, never a pickle.

The arrays are the fields of the classifier's dataclass, by name. Those of a part, such as a member
of a mixture, are preceded by the part's name or number and a dot. Linear members are stacked: a
mixture may have hundreds, and each array of a file takes time.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from itertools import count, takewhile
from typing import Any, NamedTuple, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import (
    CostSensitiveClassifier,
    GroupThreshold,
    HashedMixture,
    HashedRamp,
    MajorityVote,
    MixtureClassifier,
    ModelRegressor,
    ProbabilityThreshold,
)
from ratecli.models.layout import ColumnLayout
from ratecli.models.linear import (
    Linear,
    LinearRegressor,
    Logistic,
    Ramp,
    RandomizedLogistic,
    Threshold,
)
from ratecli.models.policy import EpisodeLayout, SoftmaxPolicy
from ratecli.models.probabilities import (
    FactoredModel,
    ProbabilityModel,
    SklearnModel,
    dump_skops,
    load_skops,
    reject_zip_bomb,
)
from ratecli.models.proxies import ClassifierProxy, Proxy, ProxyFilter, SampledFilter, SplitTree
from ratecli.models.trees import TreeEnsemble

NamedArrays = Mapping[str, NDArray[np.generic]]

CLASSIFIERS: tuple[Any, ...] = (
    Threshold,
    Logistic,
    Ramp,
    RandomizedLogistic,
    LinearRegressor,
    ModelRegressor,
    HashedRamp,
    MixtureClassifier,
    MajorityVote,
    HashedMixture,
    GroupThreshold,
    CostSensitiveClassifier,
    ProbabilityThreshold,
    ProxyFilter,
    SampledFilter,
    SoftmaxPolicy,
)
PROBABILITY_MODELS: tuple[Any, ...] = (TreeEnsemble, SklearnModel, FactoredModel)
PARTS: dict[Any, tuple[Any, ...]] = {
    Classifier: CLASSIFIERS,
    tuple[Classifier, ...]: CLASSIFIERS,
    Proxy: (SplitTree, ClassifierProxy),
    ProbabilityModel: PROBABILITY_MODELS,
    tuple[ProbabilityModel, ...]: PROBABILITY_MODELS,
    ColumnLayout: (ColumnLayout,),
    EpisodeLayout: (EpisodeLayout,),
}
"""The types that a field of this type may have."""


class ArrayFormat(NamedTuple):
    """How a field is stored: kinds of NumPy data, number of dimensions if checked, conversion."""

    kinds: str
    dimensions: int | None
    read: Callable[[NDArray[Any]], Any]


FORMATS: dict[Any, ArrayFormat] = {
    float: ArrayFormat("iuf", 0, float),
    int: ArrayFormat("iu", 0, int),
    bool: ArrayFormat("b", 0, bool),
    tuple[str, ...]: ArrayFormat("U", 1, lambda array: tuple(array.tolist())),
    tuple[float, float]: ArrayFormat("iuf", 1, lambda array: tuple(array.tolist())),
    Array: ArrayFormat("iuf", None, lambda array: array.astype(float)),
    NDArray[np.intp]: ArrayFormat("i", None, lambda array: array.astype(np.intp)),
    NDArray[np.bool_]: ArrayFormat("b", None, lambda array: array),
}
"""How fields of each type are stored."""

STACKED = "stacked"
"""Instead of a number, before the names of arrays that hold a field of all members."""
OLD_TREES = "trees"
"""Kind of trees on features instead of columns, which are no longer read."""
ZIP_SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06")
"""First bytes of a zip file, and of an empty one."""


def dumps(model: Classifier | ProbabilityModel) -> bytes:
    """Return the model as bytes; equal models give equal bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, **model_arrays(model))  # type: ignore[arg-type]
    return buffer.getvalue()


def loads(blob: bytes) -> Classifier:
    """Load a classifier. Raise ValueError if the bytes contain no classifier of a known kind."""
    classifier: Classifier = _load(blob, CLASSIFIERS)
    return classifier


def load_probabilities(blob: bytes) -> ProbabilityModel:
    """Load a model of probabilities. Raise ValueError if the bytes contain none."""
    model: ProbabilityModel = _load(blob, PARTS[ProbabilityModel])
    return model


def _load(blob: bytes, allowed: tuple[Any, ...]) -> Any:
    try:
        return _read_model(_read_arrays(blob), allowed, {})
    except Exception as error:  # NumPy, zipfile and skops raise any kind for other bytes
        raise ValueError(f"no stored classifier: {error}") from error


def _read_arrays(blob: bytes) -> NamedArrays:
    # NumPy would take other bytes for a pickle and suggest how to load it
    if not blob.startswith(ZIP_SIGNATURES):
        raise ValueError("it is not an .npz file")
    reject_zip_bomb(blob)
    with np.load(io.BytesIO(blob), allow_pickle=False) as archive:
        arrays = dict(archive)
    if any(array.size > len(blob) for array in arrays.values()):  # elements of zero bytes
        raise ValueError("its contents are larger than the file")
    return arrays


def model_arrays(model: Any) -> dict[str, NDArray[np.generic]]:
    """Return the kind of a classifier or of a part of one, its fields, and those of its parts."""
    arrays: dict[str, NDArray[np.generic]] = {"kind": np.asarray(model.kind)}
    if isinstance(model, SklearnModel):
        return arrays | {"skops": np.frombuffer(dump_skops(model.model), dtype=np.uint8)}
    parts: dict[str, NDArray[np.generic]] = {}
    for name, hint in _field_types(model.__class__).items():
        value = getattr(model, name)
        if hint in FORMATS:
            arrays[name] = np.asarray(value, dtype=str if FORMATS[hint].kinds == "U" else None)
            continue
        members = (
            _member_arrays(value) if get_origin(hint) is tuple else {name: model_arrays(value)}
        )
        for prefix, inner in members.items():
            parts |= {f"{prefix}.{field}": array for field, array in inner.items()}
    return arrays | parts


def _member_arrays(members: Sequence[Any]) -> dict[str, NamedArrays]:
    """Return the arrays of members by number, or stacked if they are linear and of one form."""
    arrays = [model_arrays(member) for member in members]
    linear = all(isinstance(member, Linear) for member in members)
    forms = {tuple((n, a.dtype, a.shape) for n, a in each.items()) for each in arrays}
    if linear and len(forms) == 1:
        return {STACKED: {name: np.stack([each[name] for each in arrays]) for name in arrays[0]}}
    return {str(k): each for k, each in enumerate(arrays)}


def _read_model(arrays: NamedArrays, allowed: tuple[Any, ...], known: dict[bytes, Any]) -> Any:
    """Return the model of one of the allowed types that is stored in the arrays.

    Equal parts become one object, so that the members of a mixture share what they score rows by.
    """
    kind = str(_get_array(arrays, "kind"))
    found = next((each for each in allowed if each.kind == kind), None)
    if kind == OLD_TREES:
        raise ValueError("an older ratecli stored its trees: run the experiment again")
    if found is None:
        raise ValueError(f"kind '{kind}' is unknown")
    if found is SklearnModel:
        return load_skops(_get_array(arrays, "skops").astype(np.uint8, casting="no").tobytes())
    values: dict[str, Any] = {}
    for name, hint in _field_types(found).items():
        if hint in FORMATS:
            array, form = _get_array(arrays, name), FORMATS[hint]
            if array.dtype.kind not in form.kinds or form.dimensions not in {None, array.ndim}:
                raise ValueError(f"'{name}' is {array.dtype} of shape {array.shape}")
            values[name] = form.read(array)
        elif get_origin(hint) is tuple:
            values[name] = tuple(_read_part(each, hint, known) for each in _members(arrays))
        else:
            values[name] = _read_part(_arrays_of_part(arrays, name), hint, known)
    return found(**values)


def _arrays_of_part(arrays: NamedArrays, name: str) -> NamedArrays:
    start = len(name) + 1
    return {each[start:]: array for each, array in arrays.items() if each.startswith(f"{name}.")}


def _members(arrays: NamedArrays) -> Iterator[NamedArrays]:
    """Yield the arrays of each member; raise ValueError if stacked ones differ in length."""
    stacked = _arrays_of_part(arrays, STACKED)
    if not stacked:
        numbers = takewhile(lambda k: f"{k}.kind" in arrays, count())
        yield from (_arrays_of_part(arrays, str(k)) for k in numbers)
        return
    for each in zip(*stacked.values(), strict=True):
        yield dict(zip(stacked, map(np.asarray, each), strict=True))


def _read_part(inner: NamedArrays, hint: Any, known: dict[bytes, Any]) -> Any:
    digest = hashlib.sha256(f"{hint} ".encode())
    for field, array in inner.items():
        digest.update(f"{field} {array.dtype} {array.shape} ".encode())
        digest.update(array.tobytes())
    key = digest.digest()
    if key not in known:
        known[key] = _read_model(inner, PARTS[hint], known)
    return known[key]


def _get_array(arrays: NamedArrays, name: str) -> NDArray[np.generic]:
    if name not in arrays:
        raise ValueError(f"it has no array '{name}'")
    return arrays[name]


@cache
def _field_types(model: Any) -> dict[str, Any]:
    """Return the type of each field of a dataclass."""
    hints = get_type_hints(model)
    return {field.name: hints[field.name] for field in fields(model)}
