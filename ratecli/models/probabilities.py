"""Models of class probabilities: trees as plain arrays, and fitted scikit-learn classifiers.

Forests and boosting are stored as arrays, other classifiers by skops as data of trusted types,
never as a pickle.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax

from ratecli.models.base import Array, Features

LEAF = -1
BLOCK_ENTRIES = 2**22
"""Number of entries of X to make dense at a time (32 MiB)."""


@dataclass(frozen=True)
class TreeEnsemble:
    """T trees with N nodes in total; the leaf values for each of Q classes are summed over trees.

    Attributes
    ----------
    width
        d, the number of features.
    roots
        (T,) the root node of each tree.
    feature
        (N,) the feature that an inner node tests, or LEAF.
    threshold
        (N,) a row goes to the first child if its feature is at most this.
    children
        (N, 2) child nodes, which have larger indices than their parent; ignored for leaves.
    values
        (N, Q) values of leaves; ignored for inner nodes.
    start
        (Q,) initial values of the sums.
    rounded
        Whether features are compared as 32-bit floats, as in scikit-learn's exact trees.
    softmax
        Whether the sums are log-odds instead of probabilities of the classes.
    """

    kind: ClassVar[str] = "trees"
    width: int
    roots: NDArray[np.intp]
    feature: NDArray[np.intp]
    threshold: Array
    children: NDArray[np.intp]
    values: Array
    start: Array
    rounded: bool = False
    softmax: bool = False

    def __post_init__(self) -> None:
        n, inner = len(self.feature), self.feature != LEAF
        own = np.arange(n)[inner, None]
        fits = (
            self.start.ndim == self.roots.ndim == 1
            and self.threshold.shape == (n,)
            and self.children.shape == (n, 2)
            and self.values.shape == (n, len(self.start))
            and bool(((self.roots >= 0) & (self.roots < n)).all())
            and bool(((self.feature >= LEAF) & (self.feature < self.width)).all())
            # children after their parent: no cycles
            and bool(((self.children[inner] > own) & (self.children[inner] < n)).all())
        )
        if not fits:
            raise ValueError("the nodes are not trees")

    @property
    def classes(self) -> int:
        return len(self.start)

    def probabilities(self, X: Features) -> Array:
        """Return (n, Q) class probabilities of rows (n, d)."""
        found = [self._sums(rows) for rows in _dense_blocks(X)]
        sums = np.concatenate([np.empty((0, self.classes)), *found])
        return np.asarray(softmax(sums, axis=1)) if self.softmax else sums

    def _sums(self, rows: Array) -> Array:
        if self.rounded:
            rows = rows.astype(np.float32)
        return sum(
            (self.values[self._leaves(rows, root)] for root in self.roots),
            np.tile(self.start, (len(rows), 1)),
        )

    def _leaves(self, rows: Array, root: int) -> NDArray[np.intp]:
        """Return (n,) the leaf that each row reaches in one tree."""
        at = np.full(len(rows), root, dtype=np.intp)
        moving = np.arange(len(rows))
        while len(moving := moving[self.feature[at[moving]] != LEAF]):
            node = at[moving]
            second = ~(rows[moving, self.feature[node]] <= self.threshold[node])
            at[moving] = self.children[node, second.astype(np.intp)]
        return at


def _dense_blocks(X: Features) -> Iterator[Array]:
    """Yield blocks of rows of X as dense arrays."""
    if isinstance(X, np.ndarray):
        yield X
        return
    step = max(1, BLOCK_ENTRIES // max(X.shape[1], 1))
    for start in range(0, X.shape[0], step):
        yield sparse.csr_array(X[start : start + step]).toarray()


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
UNNUMBERED_NODES = ("JsonNode", "TypeNode")
"""Numbers, words and types are not numbered: Python may or may not share equal ones."""
SCHEMA = "schema.json"
MAX_FEATURES = 10**7
"""Maximum number of features of a classifier, since loading it tests it on one row."""
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class SklearnModel:
    """The class probabilities or scores of a fitted scikit-learn classifier with Q classes.

    Raises
    ------
    ValueError
        If the object is not a fitted classifier, or cannot classify a row.
    """

    kind: ClassVar[str] = "fitted"
    model: Any

    def __post_init__(self) -> None:
        from sklearn.base import ClassifierMixin  # noqa: PLC0415  slow, and rarely needed

        width = getattr(self.model, "n_features_in_", None)
        right = isinstance(width, int) and 0 < width <= MAX_FEATURES
        if not isinstance(self.model, ClassifierMixin) or not right:
            raise ValueError("it is not a fitted classifier of scikit-learn")
        if self.probabilities(np.zeros((1, self.width))).shape != (1, self.classes):
            raise ValueError("it does not return a number for each class")

    @property
    def width(self) -> int:
        return int(self.model.n_features_in_)

    @property
    def classes(self) -> int:
        return len(self.model.classes_)

    def probabilities(self, X: Features) -> Array:
        """Return (n, Q) class probabilities of rows (n, d).

        A two-class classifier without probabilities gives minus and plus its score.
        """
        from sklearn.utils import get_tags  # noqa: PLC0415

        if not isinstance(X, np.ndarray) and not get_tags(self.model).input_tags.sparse:
            X = X.toarray()
        if hasattr(self.model, "predict_proba"):
            return np.asarray(self.model.predict_proba(X), dtype=float)
        scores = np.asarray(self.model.decision_function(X), dtype=float)
        return np.stack([-scores, scores], axis=1)


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
        _refuse_untrusted(blob)
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


def load_skops(blob: bytes) -> SklearnModel:
    """Load a classifier that `dump_skops` wrote.

    Raise ValueError unless it is a scikit-learn classifier of trusted types, stored by the
    installed version of scikit-learn.
    """
    from sklearn.exceptions import InconsistentVersionWarning  # noqa: PLC0415
    from skops.io import loads  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("error", InconsistentVersionWarning)
        try:
            reject_zip_bomb(blob)
            _refuse_untrusted(blob)
            return SklearnModel(loads(blob, trusted=list(TRUSTED_TYPES)))
        except InconsistentVersionWarning as warning:
            made, here = warning.original_sklearn_version, warning.current_sklearn_version
            raise ValueError(
                f"it was stored by scikit-learn {made}, but {here} is installed"
            ) from warning


def _refuse_untrusted(blob: bytes) -> None:
    from skops.io import get_untrusted_types  # noqa: PLC0415

    wrong = set(get_untrusted_types(data=blob)) - set(TRUSTED_TYPES)
    if wrong:
        raise ValueError(f"types that are not trusted: {', '.join(sorted(wrong))}")


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


ProbabilityModel = TreeEnsemble | SklearnModel
"""A model with `width`, `classes` and `probabilities`."""
