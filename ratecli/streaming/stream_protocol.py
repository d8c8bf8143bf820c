"""The interface of streamed rows, which take the place of a feature matrix.

How a row counts in rates depends on its label, its split and its slices, not on its features. Rows
that agree in all of these form one *cell*: all rates of an experiment are sums over a few cells,
and what a solver or a measurement needs of a classifier is a sum over the rows of each cell. So a
stream replaces the features of C rows: `shape` is (C, d), and `stream[cells]` are the rows of some
of the cells.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array, Classifier
from ratecli.models.coded import RecordBatch, RecordEncoder
from ratecli.models.linear import Linear, Logistic, Ramp, RandomizedLogistic, Threshold
from ratecli.models.mixture import MajorityVote, MixtureClassifier

SumArrays: TypeAlias = tuple[Array, ...]


class RowSum(Protocol):
    """A sum over rows. It must be picklable, because sums may be computed on a cluster."""

    def zeros(self) -> SumArrays:
        """Return the sums over no rows."""
        ...

    def add(self, rows: RecordBatch, sums: SumArrays) -> None:
        """Add some rows to `sums`; rows of cell -1 are ignored."""
        ...


RUN_LENGTH = 64
"""Adjacent rows that are read together when rows from anywhere are needed."""


class RowStream(ABC):
    """Rows of C cells.

    Attributes
    ----------
    encoded
        Conversion of the rows to features.
    count, weight
        (C,) number of rows of each cell, and their total weight.
    """

    encoded: RecordEncoder
    count: Array
    weight: Array

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.count), self.encoded.width

    def __len__(self) -> int:
        return len(self.count)

    @abstractmethod
    def __getitem__(self, cells: NDArray[np.intp]) -> RowStream:
        """Return the rows of some cells, renumbered in the given order."""

    @abstractmethod
    def sums(self, part: RowSum, every: int = 1) -> SumArrays:
        """Return sums over all rows, or over one in `every` runs.

        They are added in a fixed order, so the numbers are the same wherever they are computed.
        """

    @abstractmethod
    def runs(self) -> int:
        """Return the number of runs of `RUN_LENGTH` rows; the last one may be shorter."""

    @abstractmethod
    def taken(self, runs: Sequence[int]) -> RecordBatch:
        """Return the rows of some runs, in their order, without excluded rows."""

    @abstractmethod
    def drawn(self, chances: Array, seed: int) -> RecordBatch:
        """Sample rows, each with the probability (C,) of its cell."""

    def means(self, measure: RowMeasure) -> list[Array]:
        """Return the mean (C,) of each measurement in each cell."""
        sums = self.sums(_CellSums(measure, len(self)))
        return [
            np.divide(each, self.weight, where=self.weight > 0, out=np.zeros_like(each))
            for each in sums
        ]

    def decisions(self, classifiers: Sequence[Classifier]) -> list[Array]:
        """Return the mean probability (C,) of a positive decision for each classifier: one pass."""
        return self.means(DecisionMeasure(ClassifierInputs(self.encoded, tuple(classifiers))))


class RowMeasure(Protocol):
    """Measurements of rows that are all in a cell: returns `count` arrays (m,)."""

    @property
    def count(self) -> int: ...

    def __call__(self, rows: RecordBatch) -> Sequence[Array]: ...


@dataclass(frozen=True)
class DecisionMeasure:
    """Probabilities of positive decisions of classifiers."""

    shown: ClassifierInputs

    @property
    def count(self) -> int:
        return len(self.shown.classifiers)

    def __call__(self, rows: RecordBatch) -> list[Array]:
        seen = self.shown.of(rows)
        return [classifier.decide(X) for classifier, X in seen]


@dataclass(frozen=True)
class ClassifierInputs:
    """Inputs of classifiers: features, or scores computed for all linear classifiers at once.

    Scores are used for linear classifiers and for mixtures of them.
    """

    encoded: RecordEncoder
    classifiers: tuple[Classifier, ...]

    def of(self, rows: RecordBatch) -> list[tuple[Classifier, Any]]:
        """Return each classifier with the input to evaluate it on."""
        scores = self.encoded.scores(rows, self.weights)
        known = {w.tobytes(): scores[:, k] for k, w in enumerate(self.weights.T)}
        scored = KnownScores((len(rows.cell), self.encoded.width), known)
        simple = [_linear_parts(each) is not None for each in self.classifiers]
        X: Any = None if all(simple) else self.encoded.features(rows)
        return [
            (each, scored if plain else X)
            for each, plain in zip(self.classifiers, simple, strict=True)
        ]

    @cached_property
    def weights(self) -> Array:
        """(d, M) distinct weights of the linear classifiers."""
        members = (part for each in self.classifiers for part in _linear_parts(each) or ())
        distinct = {part.weights.tobytes(): part.weights for part in members}
        found = np.array(list(distinct.values())).reshape(-1, self.encoded.width)
        return np.ascontiguousarray(found.T)


@dataclass(frozen=True)
class KnownScores:
    """Stands in for features (m, d) that are only multiplied by weights with known products."""

    shape: tuple[int, int]
    known: Mapping[bytes, Array]

    def __matmul__(self, weights: Array) -> Array:
        return self.known[weights.tobytes()]


def _linear_parts(classifier: Classifier) -> Sequence[Linear] | None:
    """Return the linear classifiers whose scores determine the decisions.

    Return None if the classifier needs features.
    """
    own: type = type(classifier)  # the exact type, because subclasses may use features
    if own in {Threshold, Logistic, RandomizedLogistic, Ramp}:
        return [cast("Linear", classifier)]
    if own in {MixtureClassifier, MajorityVote}:
        parts = [_linear_parts(member) for member in cast("MixtureClassifier", classifier).members]
        return None if None in parts else [part for each in parts for part in each or ()]
    return None


@dataclass(frozen=True)
class _CellSums:
    """Weighted sums of measurements over the rows of each cell."""

    measure: RowMeasure
    cells: int

    def zeros(self) -> SumArrays:
        return tuple(np.zeros((self.measure.count, self.cells)))

    def add(self, rows: RecordBatch, sums: SumArrays) -> None:
        inside = rows.cell >= 0
        kept = rows if inside.all() else rows.some(inside)
        for total, each in zip(sums, self.measure(kept), strict=True):
            total += np.bincount(kept.cell, kept.weight * each, self.cells)  # noqa: PLW2901


def sum_pieces(part: RowSum, pieces: Iterable[RecordBatch]) -> SumArrays:
    """Sum over pieces of rows, one after the other."""
    sums = part.zeros()
    for rows in pieces:
        part.add(rows, sums)
    return sums
