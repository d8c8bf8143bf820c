"""Classifiers as bytes and back: plain arrays in an npz, never a pickle."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ratecli.models.archives import BombError, refuse_bomb
from ratecli.models.base import Array, Classifier
from ratecli.models.grouped import GroupThreshold
from ratecli.models.hashed import HashedMixture, HashedRamp
from ratecli.models.linear import Chance, Estimate, Logistic, Ramp, Threshold
from ratecli.models.mixture import Mixture, Vote
from ratecli.models.proxies import Filter, Guess, Proxy, Sampled, SplitTree, guess_of
from ratecli.models.weighed import Weighed, chances_of

LINEAR = {model.kind: model for model in (Threshold, Logistic, Ramp, Chance)}
MIXTURES = {model.kind: model for model in (Mixture, Vote)}
BROKEN = (
    AttributeError,  # a part that is no array
    EOFError,
    ImportError,  # a type that is not there
    LookupError,  # a directory that names what is not there
    MemoryError,  # a shape that is no shape
    NotImplementedError,  # a compression that zipfile does not know
    OSError,
    RuntimeError,  # encrypted, or mixtures without end
    TypeError,  # a lone array, not an archive of several
    zipfile.BadZipFile,
    zlib.error,
)
"""What NumPy and zipfile raise, beside ValueError, for bytes that `dumps` did not write."""
ARCHIVE = (b"PK\x03\x04", b"PK\x05\x06")
"""What a zip file begins with, and one that holds nothing."""
Arrays = Mapping[str, NDArray[np.generic]]


def dumps(classifier: Classifier) -> bytes:
    """The same classifier gives the same bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, kind=np.asarray(classifier.kind), **classifier.state())  # type: ignore[arg-type]
    return buffer.getvalue()


def loads(blob: bytes) -> Classifier:
    """Raises ValueError if the bytes hold no classifier of a known kind."""
    if not blob.startswith(ARCHIVE):  # NumPy would take it for a pickle and say how to open that
        raise ValueError("no stored classifier: it is no .npz file")
    try:
        return _classifier(_arrays(blob))
    except BROKEN as error:
        raise ValueError(f"no stored classifier: {error}") from error


def _arrays(blob: bytes) -> Arrays:
    try:
        refuse_bomb(blob)
        with np.load(io.BytesIO(blob), allow_pickle=False) as arrays:
            found = dict(arrays)
    except BombError as error:
        raise ValueError(f"no stored classifier: {error}") from error
    except ValueError as error:  # such as an array of Python objects
        raise ValueError("no stored classifier: its arrays cannot be read") from error
    if any(array.size > len(blob) for array in found.values()):  # of elements without a byte
        raise ValueError("no stored classifier: it says it holds more than it does")
    return found


def _classifier(arrays: Arrays) -> Classifier:
    kind = str(_part(arrays, "kind"))
    if kind in LINEAR:
        return LINEAR[kind](*_line(arrays))
    if kind == Estimate.kind:
        return Estimate(*_line(arrays), _ends(arrays))
    if kind == HashedRamp.kind:
        return HashedRamp(*_line(arrays), _whole(_part(arrays, "salt")))
    if kind == GroupThreshold.kind:
        return _grouped(arrays)
    if kind in MIXTURES:
        return MIXTURES[kind](*_members(arrays))
    if kind == HashedMixture.kind:
        return HashedMixture(*_members(arrays), _whole(_part(arrays, "salt")))
    if kind == Weighed.kind:
        return _weighed(arrays)
    if kind == Filter.kind:
        return Filter(*_filtering(arrays))
    if kind == Sampled.kind:
        return Sampled(*_filtering(arrays), salt=_whole(_part(arrays, "salt")))
    raise ValueError(f"no stored classifier: kind '{kind}' is unknown")


def _part(arrays: Arrays, name: str) -> NDArray[np.generic]:
    if name not in arrays:
        raise ValueError(f"no stored classifier: it has no array '{name}'")
    return arrays[name]


def _line(arrays: Arrays) -> tuple[Array, float]:
    """Weights and bias."""
    weights, bias = _floats(_part(arrays, "weights"), 1), _floats(_part(arrays, "bias"), 0)
    return weights, float(bias)


def _ends(arrays: Arrays) -> tuple[float, float]:
    """Least and largest value of a label."""
    ends = _floats(_part(arrays, "range"), 1).tolist()
    if len(ends) != 2 or not ends[0] <= ends[1]:
        raise ValueError(f"no stored classifier: {ends} is no range")
    return ends[0], ends[1]


def _members(arrays: Arrays) -> tuple[tuple[Classifier, ...], Array]:
    """Members and chances."""
    chances = _floats(_part(arrays, "chances"), 1)
    return tuple(_classifier(_inside(arrays, str(k))) for k in range(len(chances))), chances


def _grouped(arrays: Arrays) -> GroupThreshold:
    slices, groups = _of_kind(arrays, "slices", "U", 1), _of_kind(arrays, "groups", "b", 2)
    scorer = _classifier(_inside(arrays, "scorer"))
    thresholds = _floats(_part(arrays, "thresholds"), 1)
    return GroupThreshold(scorer, tuple(slices.tolist()), groups.astype(bool), thresholds)


def _of_kind(arrays: Arrays, name: str, kind: str, dimensions: int) -> NDArray[np.generic]:
    array = _part(arrays, name)
    if array.dtype.kind != kind or array.ndim != dimensions:
        raise ValueError(f"no stored classifier: {array.dtype} of shape {array.shape}")
    return array


def _weighed(arrays: Arrays) -> Weighed:
    costs, cut = _floats(_part(arrays, "costs"), 1), _floats(_part(arrays, "cut"), 0)
    return Weighed(chances_of(_inside(arrays, "chances")), costs, float(cut))


def _filtering(arrays: Arrays) -> tuple[Proxy, Array]:
    """A proxy, and the chances of its values."""
    return _proxy(_inside(arrays, "proxy")), _floats(_part(arrays, "keep"), 1)


def _proxy(arrays: Arrays) -> Proxy:
    kind = str(_part(arrays, "kind"))
    if kind == Guess.kind:
        return guess_of(dict(arrays))
    if kind != SplitTree.kind:
        raise ValueError(f"no stored classifier: a proxy of the kind '{kind}' is unknown")
    children = _of_kind(arrays, "children", "i", 2)
    splits = tuple(
        _classifier(_inside(arrays, str(k))) for k in range(max(len(children) - 1, 0) // 2)
    )
    return SplitTree(_whole(_part(arrays, "width")), children.astype(np.intp), splits)


def _floats(array: NDArray[np.generic], dimensions: int) -> NDArray[np.float64]:
    if array.dtype.kind not in "iuf" or array.ndim != dimensions:
        raise ValueError(f"no stored classifier: {array.dtype} of shape {array.shape}")
    return array.astype(float)


def _whole(array: NDArray[np.generic]) -> int:
    if array.dtype.kind not in "iu" or array.ndim != 0:
        raise ValueError(f"no stored classifier: {array.dtype} of shape {array.shape}")
    return int(array)


def _inside(arrays: Arrays, part: str) -> Arrays:
    prefix = f"{part}."
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
