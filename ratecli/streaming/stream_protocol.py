"""Rows that are in no memory, in the place of their features.

A row counts in rates by its label, its split and the slices that it is in, whatever its features are.
Rows that are alike in all of that are one *cell*: all of an experiment's rates are sums over a few cells,
and what a solver or a measurement needs of a classifier is a sum over the rows of each. So a stream of
rows stands where the features of C rows would: `shape` is (C, d), and `stream[cells]` are the rows of
some of the cells.
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
    """What is to be summed over rows. It must be picklable: sums may be taken elsewhere."""

    def zeros(self) -> SumArrays:
        """What no rows add up to."""
        ...

    def add(self, rows: RecordBatch, sums: SumArrays) -> None:
        """Add what some rows have to `sums`; those of cell -1 count nothing."""
        ...


RUN_LENGTH = 64
"""Rows beside one another that are read together where rows from anywhere are wanted."""


class RowStream(ABC):
    """Rows of C cells.

    Attributes
    ----------
    encoded
        Their features.
    count, weight
        (C,) how many rows each cell has, and what they weigh together.
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
        """The rows of some cells, which are numbered anew in the order given."""

    @abstractmethod
    def sums(self, part: RowSum, every: int = 1) -> SumArrays:
        """Of all rows, or those of every so manieth run, added up in a fixed order: the same numbers
        wherever they are added.
        """

    @abstractmethod
    def runs(self) -> int:
        """How many runs of RUN rows there are, the last of which may be shorter."""

    @abstractmethod
    def taken(self, runs: Sequence[int]) -> RecordBatch:
        """The rows of some runs, in their order, but for those that are left out."""

    @abstractmethod
    def drawn(self, chances: Array, seed: int) -> RecordBatch:
        """Rows drawn at random, each with the chance (C,) of its cell."""

    def means(self, measure: RowMeasure) -> list[Array]:
        """(C,) means of each of what rows measure."""
        sums = self.sums(_CellSums(measure, len(self)))
        return [np.divide(each, self.weight, where=self.weight > 0, out=np.zeros_like(each))
                for each in sums]  # fmt: skip

    def decisions(self, classifiers: Sequence[Classifier]) -> list[Array]:
        """(C,) mean probabilities of a yes of each classifier, in one pass."""
        return self.means(DecisionMeasure(ClassifierInputs(self.encoded, tuple(classifiers))))


class RowMeasure(Protocol):
    """Of rows, all of which are in a cell, `count` arrays (m,)."""

    @property
    def count(self) -> int: ...

    def __call__(self, rows: RecordBatch) -> Sequence[Array]: ...


@dataclass(frozen=True)
class DecisionMeasure:
    shown: ClassifierInputs

    @property
    def count(self) -> int:
        return len(self.shown.classifiers)

    def __call__(self, rows: RecordBatch) -> list[Array]:
        seen = self.shown.of(rows)
        return [classifier.decide(X) for classifier, X in seen]


@dataclass(frozen=True)
class ClassifierInputs:
    """What classifiers are shown of rows: features, or scores that are found for all of them at once.

    Those are of the linear ones and of linear members of mixtures.
    """

    encoded: RecordEncoder
    classifiers: tuple[Classifier, ...]

    def of(self, rows: RecordBatch) -> list[tuple[Classifier, Any]]:
        """Each classifier, and what to ask it of."""
        scores = self.encoded.scores(rows, self.weights)
        known = {w.tobytes(): scores[:, k] for k, w in enumerate(self.weights.T)}
        scored = KnownScores((len(rows.cell), self.encoded.width), known)
        simple = [_linear_parts(each) is not None for each in self.classifiers]
        X: Any = None if all(simple) else self.encoded.features(rows)
        return [(each, scored if plain else X)
                for each, plain in zip(self.classifiers, simple, strict=True)]  # fmt: skip

    @cached_property
    def weights(self) -> Array:
        """(d, M) distinct ones."""
        members = (part for each in self.classifiers for part in _linear_parts(each) or ())
        distinct = {part.weights.tobytes(): part.weights for part in members}
        found = np.array(list(distinct.values())).reshape(-1, self.encoded.width)
        return np.ascontiguousarray(found.T)


@dataclass(frozen=True)
class KnownScores:
    """Stands for features (m, d) of which only products with some weights are asked for, and known."""

    shape: tuple[int, int]
    known: Mapping[bytes, Array]

    def __matmul__(self, weights: Array) -> Array:
        return self.known[weights.tobytes()]


def _linear_parts(classifier: Classifier) -> Sequence[Linear] | None:
    """The linear classifiers by whose scores it decides; None where it may look at features."""
    own: type = type(classifier)  # some that are made of these look at features
    if own in {Threshold, Logistic, RandomizedLogistic, Ramp}:
        return [cast("Linear", classifier)]
    if own in {MixtureClassifier, MajorityVote}:
        parts = [_linear_parts(member) for member in cast("MixtureClassifier", classifier).members]
        return None if None in parts else [part for each in parts for part in each or ()]
    return None


@dataclass(frozen=True)
class _CellSums:
    """Sums of measurements over the rows of each cell, times their weights."""

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
    """Over pieces of rows, one after the other."""
    sums = part.zeros()
    for rows in pieces:
        part.add(rows, sums)
    return sums
