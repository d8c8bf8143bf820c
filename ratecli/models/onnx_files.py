"""Models of any library as ONNX, evaluated by onnxruntime, an optional package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array

NUMBER_TYPES = {
    "tensor(double)": np.float64,
    "tensor(float)": np.float32,
    "tensor(int64)": np.int64,
}
TEXT_TYPE = "tensor(string)"


class OnnxModel:
    """A classifier of two classes.

    Attributes
    ----------
    inputs
        The type of each input, by name.
    width
        Number of columns of its only input if that takes several, else 0: each input is a column.

    Raises
    ------
    ImportError
        If onnxruntime is not installed.
    ValueError
        If the bytes are no model, or it has inputs of other kinds.
    """

    def __init__(self, blob: bytes) -> None:
        import onnxruntime  # noqa: PLC0415  an optional package

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        try:
            providers = ["CPUExecutionProvider"]
            self._session = onnxruntime.InferenceSession(blob, options, providers=providers)
        except Exception as error:  # onnxruntime has its own errors
            raise ValueError(f"it is no ONNX model: {_line(error)}") from error
        found = self._session.get_inputs()
        self.inputs: Mapping[str, str] = {each.name: each.type for each in found}
        for name, kind in self.inputs.items():
            if kind != TEXT_TYPE and kind not in NUMBER_TYPES:
                raise ValueError(f"its input '{name}' is a {kind}")
        widths = [each.shape[1] if len(each.shape) == 2 else 0 for each in found]
        self.width = widths[0] if widths != [1] * len(widths) else 0
        if self.width and (len(found) > 1 or not isinstance(self.width, int)):
            raise ValueError("its number of input columns is unknown")

    def scores(self, columns: Sequence[NDArray[Any]]) -> Array:
        """Return the probability (n,) of the second class.

        `columns` are those of the inputs, (n,) each, or those of the only input.

        Raises
        ------
        ValueError
            If it fails, or returns no probabilities of two classes.
        """
        names, kinds = list(self.inputs), list(self.inputs.values())
        if self.width:
            given = {names[0]: np.column_stack(columns).astype(NUMBER_TYPES[kinds[0]])}
        else:
            given = {
                name: column.astype(NUMBER_TYPES.get(kind, object))[:, None]
                for name, kind, column in zip(names, kinds, columns, strict=True)
            }
        try:
            found = self._session.run(None, given)[-1]
        except Exception as error:  # onnxruntime has its own errors
            raise ValueError(f"it fails: {_line(error)}") from error
        if isinstance(found, list):  # a mapping of classes to probabilities for each row
            found = np.array([[each[key] for key in sorted(each)] for each in found])
        if found.ndim != 2 or found.shape[1] not in {1, 2} or found.dtype.kind != "f":
            raise ValueError("its last output is not the probabilities of two classes")
        return np.asarray(found[:, -1], dtype=np.float64)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
