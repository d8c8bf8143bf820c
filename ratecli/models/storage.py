"""Classifiers as bytes and back: plain arrays in an npz, never a pickle."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Classifier
from ratecli.models.hashed import HashedRamp
from ratecli.models.linear import Logistic, Ramp, Threshold
from ratecli.models.mixture import Mixture

LINEAR = {model.kind: model for model in (Threshold, Logistic, Ramp)}
BROKEN = (
    AttributeError,  # a part that is no array
    EOFError,
    KeyError,
    MemoryError,  # a shape that is no shape
    NotImplementedError,  # a compression that zipfile does not know
    OSError,
    RuntimeError,  # encrypted, or mixtures without end
    TypeError,  # a lone array, not an archive of several
    zipfile.BadZipFile,
    zlib.error,
)
"""What NumPy and zipfile raise, beside ValueError, for bytes that `dumps` did not write."""
Arrays = Mapping[str, NDArray[np.generic]]


def dumps(classifier: Classifier) -> bytes:
    """The same classifier gives the same bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, kind=np.asarray(classifier.kind), **classifier.state())  # type: ignore[arg-type]
    return buffer.getvalue()


def loads(blob: bytes) -> Classifier:
    """Raises ValueError if the bytes hold no classifier of a known kind."""
    try:
        with np.load(io.BytesIO(blob), allow_pickle=False) as arrays:
            return _classifier(dict(arrays))
    except BROKEN as error:
        raise ValueError(f"no stored classifier: {error}") from error


def _classifier(arrays: Arrays) -> Classifier:
    kind = str(arrays["kind"])
    if kind in LINEAR:
        return LINEAR[kind](_floats(arrays["weights"], 1), float(_floats(arrays["bias"], 0)))
    if kind == HashedRamp.kind:
        weights, bias = _floats(arrays["weights"], 1), float(_floats(arrays["bias"], 0))
        return HashedRamp(weights, bias, _whole(arrays["salt"]))
    if kind == Mixture.kind:
        chances = _floats(arrays["chances"], 1)
        members = tuple(_classifier(_member(arrays, k)) for k in range(len(chances)))
        return Mixture(members, chances)
    raise ValueError(f"no stored classifier: kind '{kind}' is unknown")


def _floats(array: NDArray[np.generic], dimensions: int) -> NDArray[np.float64]:
    if array.dtype.kind not in "iuf" or array.ndim != dimensions:
        raise ValueError(f"no stored classifier: {array.dtype} of shape {array.shape}")
    return array.astype(float)


def _whole(array: NDArray[np.generic]) -> int:
    if array.dtype.kind not in "iu" or array.ndim != 0:
        raise ValueError(f"no stored classifier: {array.dtype} of shape {array.shape}")
    return int(array)


def _member(arrays: Arrays, k: int) -> Arrays:
    prefix = f"{k}."
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
