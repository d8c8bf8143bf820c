"""Models of other programs that give scores: ONNX files, and scikit-learn's stored by skops.

ONNX is evaluated by onnxruntime, an optional package. scikit-learn follows the node indices of its
trees without bounds checks, so trees of a file are converted to arrays, which are checked. They may
only be those of the last step of a pipeline.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import exception_line
from ratecli.models.base import Array
from ratecli.models.layout import ColumnLayout
from ratecli.models.probabilities import load_skops, trusted_types
from ratecli.models.tree_formats.scikit_learn import convert_sklearn_trees

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
            raise ValueError(f"it is no ONNX model: {exception_line(error)}") from error
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
            raise ValueError(f"it fails: {exception_line(error)}") from error
        if isinstance(found, list):  # a mapping of classes to probabilities for each row
            found = np.array([[each[key] for key in sorted(each)] for each in found])
        if found.ndim != 2 or found.shape[1] not in {1, 2} or found.dtype.kind != "f":
            raise ValueError("its last output is not the probabilities of two classes")
        return np.asarray(found[:, -1], dtype=np.float64)


TREE_TYPES = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
)
PLAIN_TYPES = ("numpy.dtype",)
"""Types of steps before a classifier, such as imputers."""
LOADED_TYPES = (*PLAIN_TYPES, *TREE_TYPES)
CHECKED_TREES = (
    "DecisionTreeClassifier",
    "ExtraTreeClassifier",
    "ExtraTreesClassifier",
    "HistGradientBoostingClassifier",
    "RandomForestClassifier",
)
"""Classes whose trees can be converted without a call of their `predict`."""


class StoredPipeline:
    """A classifier of two classes, or a pipeline that ends in one.

    Attributes
    ----------
    names
        The columns that it takes.

    Raises
    ------
    ValueError
        If the bytes are no such classifier of trusted types, stored by the installed version of
        scikit-learn.
    """

    def __init__(self, blob: bytes) -> None:
        try:
            self._model, self._before, self._last = _load(blob)
            has_trees = not set(TREE_TYPES).isdisjoint(trusted_types(blob, LOADED_TYPES))
            if has_trees and self._before is not None:
                trusted_types(_dump(self._before), PLAIN_TYPES)
            classes = len(self._model.classes_)
            self.names = [str(name) for name in getattr(self._model, "feature_names_in_", [])]
        except Exception as error:  # whatever a broken file makes skops raise
            raise ValueError(
                f"it is no classifier of scikit-learn: {exception_line(error)}"
            ) from error
        if classes != 2:
            raise ValueError(f"it has {classes} classes, not two")
        if not self.names:
            raise ValueError("it was not trained on a DataFrame, so its columns have no names")
        if not hasattr(self._model, "predict_proba"):
            raise ValueError("it does not return probabilities")
        if has_trees and type(self._last).__name__ not in CHECKED_TREES:
            raise ValueError(f"trees of {type(self._last).__name__} cannot be checked")
        self._has_trees = has_trees

    def scores(self, frame: Any) -> Array:
        """Return the probability (n,) of the second class for a DataFrame of its columns.

        Raises
        ------
        ValueError
            If it does not accept the values.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if not self._has_trees:
                    return np.asarray(self._model.predict_proba(frame)[:, 1], dtype=float)
                X = frame if self._before is None else self._before.transform(frame)
                X = X if hasattr(X, "tocsr") else np.asarray(X, dtype=float)
                self._last.classes_ = np.arange(2)  # as the conversion expects
                layout = ColumnLayout.numbers(X.shape[1])
                return convert_sklearn_trees(self._last, layout).probabilities(X)[:, 1]
        except Exception as error:
            raise ValueError(f"it does not accept the table: {exception_line(error)}") from error


def _load(blob: bytes) -> tuple[Any, Any, Any]:
    """Return a model, all its steps but the last (None without some), and its last step."""
    from sklearn.pipeline import Pipeline  # noqa: PLC0415  slow, and rarely needed

    model = load_skops(blob, LOADED_TYPES)
    if not hasattr(model, "classes_"):
        raise TypeError(f"{type(model).__name__} is none, or it is not fitted")
    if not isinstance(model, Pipeline):
        return model, None, model
    return model, model[:-1] if len(model) > 1 else None, model[-1]


def _dump(model: Any) -> bytes:
    from skops.io import dumps  # noqa: PLC0415

    return bytes(dumps(model))
