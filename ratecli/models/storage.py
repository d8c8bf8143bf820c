"""Save classifiers as bytes and load them: plain arrays in an npz file, never a pickle."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array, Classifier
from ratecli.models.fitted import ZipBombError, reject_zip_bomb
from ratecli.models.grouped import GroupThreshold
from ratecli.models.hashed import HashedMixture, HashedRamp
from ratecli.models.linear import LinearRegressor, Logistic, Ramp, RandomizedLogistic, Threshold
from ratecli.models.mixture import MajorityVote, MixtureClassifier
from ratecli.models.proxies import (
    ClassifierProxy,
    Proxy,
    ProxyFilter,
    SampledFilter,
    SplitTree,
    load_classifier_proxy,
)
from ratecli.models.weighed import CostSensitiveClassifier, load_probability_model

LINEAR_KINDS = {model.kind: model for model in (Threshold, Logistic, Ramp, RandomizedLogistic)}
MIXTURE_KINDS = {model.kind: model for model in (MixtureClassifier, MajorityVote)}
READ_ERRORS = (
    AttributeError,  # a part that is not an array
    EOFError,
    ImportError,  # a type that does not exist
    LookupError,  # a directory with an entry that does not exist
    MemoryError,  # an invalid shape
    NotImplementedError,  # a compression that zipfile does not know
    OSError,
    RuntimeError,  # encrypted, or endlessly nested mixtures
    TypeError,  # a single array instead of an archive
    zipfile.BadZipFile,
    zlib.error,
)
"""Errors of NumPy and zipfile, besides ValueError, for bytes that `dumps` did not write."""
ZIP_SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06")
"""First bytes of a zip file, and of an empty one."""
NamedArrays = Mapping[str, NDArray[np.generic]]


def dumps(classifier: Classifier) -> bytes:
    """Return the classifier as bytes; equal classifiers give equal bytes."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        kind=np.asarray(classifier.kind),
        **classifier.state(),  # type: ignore[arg-type]
    )
    return buffer.getvalue()


def loads(blob: bytes) -> Classifier:
    """Load a classifier. Raise ValueError if the bytes contain no classifier of a known kind."""
    # NumPy would take other bytes for a pickle and suggest how to load it
    if not blob.startswith(ZIP_SIGNATURES):
        raise ValueError("no stored classifier: it is no .npz file")
    try:
        return _read_classifier(_read_arrays(blob))
    except READ_ERRORS as error:
        raise ValueError(f"no stored classifier: {error}") from error


def _read_arrays(blob: bytes) -> NamedArrays:
    try:
        reject_zip_bomb(blob)
        with np.load(io.BytesIO(blob), allow_pickle=False) as arrays:
            found = dict(arrays)
    except ZipBombError as error:
        raise ValueError(f"no stored classifier: {error}") from error
    except ValueError as error:  # for example an array of Python objects
        raise ValueError("no stored classifier: its arrays cannot be read") from error
    if any(array.size > len(blob) for array in found.values()):  # elements of zero bytes
        raise ValueError("no stored classifier: it says it holds more than it does")
    return found


def _read_classifier(arrays: NamedArrays) -> Classifier:
    kind = str(_get_array(arrays, "kind"))
    if kind in LINEAR_KINDS:
        return LINEAR_KINDS[kind](*_read_linear(arrays))
    if kind == LinearRegressor.kind:
        return LinearRegressor(*_read_linear(arrays), _read_label_range(arrays))
    if kind == HashedRamp.kind:
        return HashedRamp(*_read_linear(arrays), _as_int(_get_array(arrays, "salt")))
    if kind == GroupThreshold.kind:
        return _read_group_threshold(arrays)
    if kind in MIXTURE_KINDS:
        return MIXTURE_KINDS[kind](*_read_members(arrays))
    if kind == HashedMixture.kind:
        return HashedMixture(*_read_members(arrays), _as_int(_get_array(arrays, "salt")))
    if kind == CostSensitiveClassifier.kind:
        return _read_cost_sensitive(arrays)
    if kind == ProxyFilter.kind:
        return ProxyFilter(*_read_filter(arrays))
    if kind == SampledFilter.kind:
        return SampledFilter(*_read_filter(arrays), salt=_as_int(_get_array(arrays, "salt")))
    raise ValueError(f"no stored classifier: kind '{kind}' is unknown")


def _get_array(arrays: NamedArrays, name: str) -> NDArray[np.generic]:
    if name not in arrays:
        raise ValueError(f"no stored classifier: it has no array '{name}'")
    return arrays[name]


def _read_linear(arrays: NamedArrays) -> tuple[Array, float]:
    """Return weights and bias."""
    weights, bias = (
        _as_floats(_get_array(arrays, "weights"), 1),
        _as_floats(_get_array(arrays, "bias"), 0),
    )
    return weights, float(bias)


def _read_label_range(arrays: NamedArrays) -> tuple[float, float]:
    """Return the minimum and maximum of a label."""
    ends = _as_floats(_get_array(arrays, "range"), 1).tolist()
    if len(ends) != 2 or not ends[0] <= ends[1]:
        raise ValueError(f"no stored classifier: {ends} is no range")
    return ends[0], ends[1]


def _read_members(arrays: NamedArrays) -> tuple[tuple[Classifier, ...], Array]:
    """Return the members and their probabilities."""
    chances = _as_floats(_get_array(arrays, "chances"), 1)
    return tuple(
        _read_classifier(_strip_prefix(arrays, str(k))) for k in range(len(chances))
    ), chances


def _read_group_threshold(arrays: NamedArrays) -> GroupThreshold:
    slices, groups = (
        _get_typed_array(arrays, "slices", "U", 1),
        _get_typed_array(arrays, "groups", "b", 2),
    )
    scorer = _read_classifier(_strip_prefix(arrays, "scorer"))
    thresholds = _as_floats(_get_array(arrays, "thresholds"), 1)
    return GroupThreshold(scorer, tuple(slices.tolist()), groups.astype(bool), thresholds)


def _get_typed_array(
    arrays: NamedArrays, name: str, kind: str, dimensions: int
) -> NDArray[np.generic]:
    array = _get_array(arrays, name)
    if array.dtype.kind != kind or array.ndim != dimensions:
        raise ValueError(f"no stored classifier: {array.dtype} of shape {array.shape}")
    return array


def _read_cost_sensitive(arrays: NamedArrays) -> CostSensitiveClassifier:
    costs, cut = (
        _as_floats(_get_array(arrays, "costs"), 1),
        _as_floats(_get_array(arrays, "cut"), 0),
    )
    return CostSensitiveClassifier(
        load_probability_model(_strip_prefix(arrays, "chances")), costs, float(cut)
    )


def _read_filter(arrays: NamedArrays) -> tuple[Proxy, Array]:
    """Return a proxy, and the probabilities of its values."""
    return _read_proxy(_strip_prefix(arrays, "proxy")), _as_floats(_get_array(arrays, "keep"), 1)


def _read_proxy(arrays: NamedArrays) -> Proxy:
    kind = str(_get_array(arrays, "kind"))
    if kind == ClassifierProxy.kind:
        return load_classifier_proxy(dict(arrays))
    if kind != SplitTree.kind:
        raise ValueError(f"no stored classifier: a proxy of the kind '{kind}' is unknown")
    children = _get_typed_array(arrays, "children", "i", 2)
    splits = tuple(
        _read_classifier(_strip_prefix(arrays, str(k)))
        for k in range(max(len(children) - 1, 0) // 2)
    )
    return SplitTree(_as_int(_get_array(arrays, "width")), children.astype(np.intp), splits)


def _as_floats(array: NDArray[np.generic], dimensions: int) -> NDArray[np.float64]:
    if array.dtype.kind not in "iuf" or array.ndim != dimensions:
        raise ValueError(f"no stored classifier: {array.dtype} of shape {array.shape}")
    return array.astype(float)


def _as_int(array: NDArray[np.generic]) -> int:
    if array.dtype.kind not in "iu" or array.ndim != 0:
        raise ValueError(f"no stored classifier: {array.dtype} of shape {array.shape}")
    return int(array)


def _strip_prefix(arrays: NamedArrays, part: str) -> NamedArrays:
    prefix = f"{part}."
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
