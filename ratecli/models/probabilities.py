"""Models of class probabilities: trees (`models.trees`), and fitted scikit-learn classifiers.

Classifiers other than trees are stored by skops as data of trusted types, never as a pickle.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli import plugins
from ratecli.models.base import Array, Features, width_of
from ratecli.models.layout import MAX_FEATURES
from ratecli.models.trees import TreeEnsemble


def reject_zip_bomb(blob: bytes) -> None:
    """Raise ValueError if a zip archive is compressed or counts some of its bytes more than once.

    The archives that ratecli writes are not, so reading one never takes more memory than the size
    of the file. Raises BadZipFile and similar errors for data that is not a zip archive.
    """
    with zipfile.ZipFile(io.BytesIO(blob)) as archive:
        parts = archive.infolist()
    if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
        raise ValueError("it is compressed, which ratecli's files are not")
    if sum(part.file_size for part in parts) > len(blob):
        raise ValueError("its contents are larger than the file")


TRUSTED_TYPES = (
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
)
"""Plain Python objects inside classifiers that skops does not trust by default.

Trees are not included: scikit-learn follows their node indices without bounds checks.
"""
KERNEL_MACHINES = ("NuSVC", "SVC")
UNNUMBERED_NODES = ("JsonNode", "TypeNode")
"""Numbers, words and types are not numbered: Python may or may not share equal ones."""
SCHEMA = "schema.json"
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class SklearnModel:
    """The class probabilities or scores of a fitted scikit-learn classifier with Q classes.

    A fitted regressor has one column, its predictions.

    Raises
    ------
    ValueError
        If the object is not a fitted classifier or regressor, or cannot classify a row.
    """

    model: Any

    def __post_init__(self) -> None:
        from sklearn.base import ClassifierMixin, RegressorMixin  # noqa: PLC0415  slow, and rarely needed

        width = getattr(self.model, "n_features_in_", None)
        right = isinstance(width, int) and 0 < width <= MAX_FEATURES
        if not isinstance(self.model, ClassifierMixin | RegressorMixin) or not right:
            raise ValueError("it is not a fitted classifier of scikit-learn")
        if self.probabilities(np.zeros((1, self.width))).shape != (1, self.classes):
            raise ValueError("it does not return a number for each class")

    @property
    def width(self) -> int:
        return int(self.model.n_features_in_)

    @property
    def classes(self) -> int:
        return len(getattr(self.model, "classes_", (None,)))

    @property
    def has_probabilities(self) -> bool:
        """Whether `probabilities` are more than minus and plus a score."""
        return hasattr(self.model, "predict_proba")

    def probabilities(self, X: Features) -> Array:
        """Return (n, Q) class probabilities of rows (n, d).

        A two-class classifier without probabilities gives minus and plus its score, a regressor
        its predictions.
        """
        if not isinstance(X, np.ndarray):  # the model may change its own matrix of shared arrays
            X = sparse.csr_array(X) if takes_sparse(self.model) else X.toarray()
        if self.has_probabilities:
            found = np.asarray(self.model.predict_proba(X), dtype=float)
        elif hasattr(self.model, "classes_"):
            scores = np.asarray(self.model.decision_function(X), dtype=float)
            found = np.stack([-scores, scores], axis=1)
        else:
            found = np.asarray(self.model.predict(X), dtype=float).reshape(-1, 1)
        if np.isnan(found).any():
            raise ValueError(f"a prediction of {type(self.model).__name__} is not a number")
        return found


def takes_sparse(model: Any) -> bool:
    """Return whether a classifier can be fitted to sparse features, and stored then.

    Support vectors would be sparse, too, and LIBSVM follows their indices without bounds checks.
    """
    from sklearn.utils import get_tags  # noqa: PLC0415

    return get_tags(model).input_tags.sparse and type(model).__name__ not in KERNEL_MACHINES


def dump_skops(model: Any) -> bytes:
    """Return the classifier in skops' format; equal classifiers give equal bytes.

    skops names objects by their memory addresses; here they are numbered in order of appearance.

    Raises
    ------
    ValueError
        If it has parts that `load_skops` would not trust.
    """
    from skops.io import dumps  # noqa: PLC0415  slow, and rarely needed

    try:
        blob = dumps(model)
        trusted_types(blob)
    except TypeError as error:
        raise ValueError(str(error).splitlines()[0]) from None
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(blob)) as old, zipfile.ZipFile(buffer, "w") as new:
        schema = json.loads(old.read(SCHEMA))
        files: dict[str, str] = {}
        _renumber(schema, {}, files)
        new.writestr(zipfile.ZipInfo(SCHEMA, ZIP_EPOCH), json.dumps(schema))
        for name, number in files.items():
            new.writestr(zipfile.ZipInfo(number, ZIP_EPOCH), old.read(name))
    return buffer.getvalue()


def load_skops(blob: bytes, others: Collection[str] = ()) -> Any:
    """Load an object in skops' format, such as a classifier that `dump_skops` wrote.

    Raise ValueError unless it is an object of trusted types, or one of `others`, stored by the
    installed version of scikit-learn.
    """
    from sklearn.exceptions import InconsistentVersionWarning  # noqa: PLC0415
    from skops.io import loads  # noqa: PLC0415

    reject_zip_bomb(blob)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InconsistentVersionWarning)
        try:
            return loads(blob, trusted=trusted_types(blob, others))
        except InconsistentVersionWarning as warning:
            made, here = warning.original_sklearn_version, warning.current_sklearn_version
            message = f"it was stored by scikit-learn {made}, but {here} is installed"
            raise ValueError(message) from warning


def trusted_types(blob: bytes, others: Collection[str] = ()) -> list[str]:
    """Return the types of a model that skops does not trust by default.

    These may be `TRUSTED_TYPES`, the `others`, and types of packages that the user trusts. The
    libraries whose classes a file may always name are not among these packages: not all their types
    are safe.

    Raises
    ------
    ValueError
        If there are more.
    """
    from skops.io import get_untrusted_types  # noqa: PLC0415

    found = sorted(get_untrusted_types(data=blob))
    packages = {name: name.partition(".")[0] for name in found}
    wrong = [
        name
        for name, package in packages.items()
        if name not in {*TRUSTED_TYPES, *others}
        and (package in plugins.TRUSTED_PACKAGES or not plugins.is_trusted_package(package))
    ]
    if wrong:
        raise ValueError(f"types that are not trusted: {', '.join(wrong)}")
    return found


def _renumber(node: Any, numbers: dict[int, int], files: dict[str, str]) -> None:
    """Number a schema's objects and array files in place, in order of appearance."""
    parts = node
    if isinstance(node, dict):
        own = node.pop("__id__", None)
        if own is not None and node.get("__loader__") not in UNNUMBERED_NODES:
            node["__id__"] = numbers.setdefault(own, len(numbers) + 1)
        name = node.get("file")
        if isinstance(name, str):
            node["file"] = files.setdefault(name, f"{len(files)}.{name.rpartition('.')[2]}")
        parts = node.values()
    if isinstance(node, dict | list):
        for part in parts:
            _renumber(part, numbers, files)


@dataclass(frozen=True)
class FactoredModel:
    """Probabilities of Q classes, each a part of a label: P(label) times P(class | label).

    Attributes
    ----------
    labels
        Returns the probabilities of the labels.
    parts
        Models of the classes given a label, for labels that have several.
    label
        (Q,) label of each class.
    column
        (Q,) place of P(class | label) among the columns 1 and the probabilities of all parts.
    """

    labels: ProbabilityModel
    parts: tuple[ProbabilityModel, ...]
    label: NDArray[np.intp]
    column: NDArray[np.intp]

    def __post_init__(self) -> None:
        columns = 1 + sum(part.classes for part in self.parts)
        places = [(self.label, self.labels.classes), (self.column, columns)]
        fits = self.label.shape == self.column.shape == (len(self.label),) and all(
            bool(((place >= 0) & (place < count)).all()) for place, count in places
        )
        if not fits or {part.width for part in self.parts} - {self.width}:
            raise ValueError("the parts do not fit the labels")

    width = width_of("labels")

    @property
    def classes(self) -> int:
        return len(self.label)

    def probabilities(self, X: Features) -> Array:
        """Return (n, Q) class probabilities of rows (n, d)."""
        given = [np.ones((X.shape[0], 1)), *(part.probabilities(X) for part in self.parts)]
        labels = self.labels.probabilities(X)[:, self.label]
        return np.asarray(labels * np.hstack(given)[:, self.column])


ProbabilityModel = TreeEnsemble | SklearnModel | FactoredModel
"""A model with `width`, `classes` and `probabilities`."""
