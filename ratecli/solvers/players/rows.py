"""Rows as the gradient player sees them: all lanes in one pass, equal rows once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Features
from ratecli.rates.kinds import RowKinds
from ratecli.solvers.players.kernel import (
    add_hinge_sums,
    add_transposed_product,
    multiply_rows,
    pass_over_parts,
    pass_over_scores,
)
from ratecli.solvers.players.lanes import WIDTH, Floats32
from ratecli.solvers.players.parts import CsrArrays, SharedRowParts, Uint32Array, find_shared_parts


class RowSelection(NamedTuple):
    """Rows looked at, sorted by kind.

    Attributes
    ----------
    rows
        (m,) which.
    starts
        (Q + 1,) where each kind begins.
    weight
        (m,) how often each counts.
    """

    rows: Uint32Array
    starts: NDArray[np.int64]
    weight: Floats32


@dataclass(frozen=True)
class PassResult:
    """What a pass over rows finds, for B lanes.

    Attributes
    ----------
    yes
        (L, Q, WIDTH) weight decided yes of each kind.
    slopes
        (L, d + 1, WIDTH) derivatives of the sum of all hinges in weights and bias.
    """

    yes: Array
    slopes: Floats32


@dataclass(frozen=True)
class LaneRows:
    """Rows, sorted by kind, that differ in features or kind; lanes are blocks as `lanes` has them.

    Weights W are (L, d + 1, WIDTH), bias last.

    Attributes
    ----------
    kinds
        Of the rows before equal ones were put together.
    X
        (m, d) features.
    all
        The m rows.
    member
        (n,) which of them each row is that a rate counts, in the order of `used`.
    used
        (n,) the rows that a rate counts, sorted by kind.
    """

    kinds: RowKinds
    X: Features
    all: RowSelection
    member: Uint32Array
    used: NDArray[np.intp]

    @classmethod
    def of(cls, X: Features, kinds: RowKinds) -> LaneRows:
        """Rows of one kind with equal features are one; rows that no rate counts are left out."""
        used = np.flatnonzero(kinds.weight)
        products = np.asarray(X @ np.random.default_rng(0).normal(size=X.shape[1]))[used]
        order = np.lexsort((products, kinds.of[used]))
        kind, key, used = kinds.of[used][order], products[order], used[order]
        new = np.concatenate([[True], (np.diff(key) != 0) | (np.diff(kind) != 0)])
        weight = np.add.reduceat(kinds.weight[used], np.flatnonzero(new)).astype(np.float32)
        starts = np.searchsorted(kind[new], np.arange(kinds.count + 1)).astype(np.int64)
        every = RowSelection(np.arange(len(weight), dtype=np.uint32), starts, weight)
        member = (np.cumsum(new) - 1).astype(np.uint32)
        return cls(kinds, X[used[new]], every, member, used)

    def run(self, W: Floats32, sides: Floats32, some: RowSelection | None = None) -> PassResult:
        """Decisions counted and hinges' slopes; prices (L, 2 Q, WIDTH) of either, not negative."""
        seen = some or self.all
        if self._parts is None:
            return pass_over_rows(self._taken(seen), seen, W, sides)
        yes = np.zeros((len(W), sides.shape[1] // 2, WIDTH))
        slopes = np.zeros(W.shape, np.float32)
        of, table = self._parts
        scores = lane_scores(table, W)
        pull = np.zeros_like(scores)
        pass_over_parts(of, *seen, scores, W, sides, yes, pull, slopes)
        _add_feature_slopes(table, pull, slopes)
        return PassResult(yes, slopes)

    def counted(self, answers: Sequence[Floats32]) -> list[Array]:
        """What `run` finds of weight decided yes on all rows, of each of several weights."""
        nothing = np.zeros((len(answers[0]), 2 * self.kinds.count, WIDTH), np.float32)
        return [self.run(W, nothing).yes for W in answers]

    def hinges(self, W: Floats32, some: RowSelection | None = None) -> tuple[Array, Array]:
        """(L, Q, WIDTH) sums of `max(0, 1 + score)` and of `max(0, 1 - score)` over rows of each kind."""
        seen = some or self.all
        above, below = np.zeros((2, len(W), len(seen.starts) - 1, WIDTH))
        add_hinge_sums(seen.starts, seen.weight, lane_scores(self._taken(seen), W), W, above, below)
        return above, below

    def _taken(self, some: RowSelection) -> Floats32 | CsrArrays:
        """The features of some rows."""
        if isinstance(self._features, CsrArrays):
            return self._features._replace(rows=some.rows)
        return self._features if some is self.all else self._features[some.rows]

    @property
    def width(self) -> int:
        """D."""
        return int(self.X.shape[1])

    @cached_property
    def _features(self) -> Floats32 | CsrArrays:
        if isinstance(self.X, np.ndarray):
            return self.X.astype(np.float32)
        return CsrArrays.of(self.X)

    @cached_property
    def _parts(self) -> SharedRowParts | None:
        return find_shared_parts(sparse.csc_array(self.X))


def pass_over_rows(
    X: Floats32 | CsrArrays, some: RowSelection, W: Floats32, sides: Floats32
) -> PassResult:
    """A pass over rows with the features X (m, d)."""
    yes = np.zeros((len(W), sides.shape[1] // 2, WIDTH))
    slopes = np.zeros(W.shape, np.float32)
    scores = lane_scores(X, W)
    pass_over_scores(some.starts, some.weight, scores, W, sides, yes, slopes)
    _add_feature_slopes(X, scores, slopes)
    return PassResult(yes, slopes)


def lane_scores(X: Floats32 | CsrArrays, W: Floats32) -> Floats32:
    """(L, m, WIDTH), without the bias."""
    if not isinstance(X, CsrArrays):
        return np.asarray(X @ W[:, :-1])
    scores = np.empty((len(W), len(X.rows), WIDTH), np.float32)
    multiply_rows(*X, W, scores)
    return scores


def _add_feature_slopes(X: Floats32 | CsrArrays, given: Floats32, slopes: Floats32) -> None:
    """Add to the slopes of features those of lanes (L, m, WIDTH) given to the rows."""
    if isinstance(X, CsrArrays):
        add_transposed_product(*X, given, slopes)
    else:
        slopes[:, :-1] += X.T @ given
