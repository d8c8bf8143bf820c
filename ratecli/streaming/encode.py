"""Encoding of a streamed table's columns as features, fitted on the training rows.

The result is that of the in-memory encoder for the same table, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ratecli.datasets.columns import MISSING_CATEGORY
from ratecli.datasets.encode import Encoder, NumericBlock, OneHotBlock
from ratecli.datasets.missing import check_scale, no_mean_error, out_of_range_error
from ratecli.errors import Diagnostic, FaultError
from ratecli.models.records import FeatureCoding, RecordBatch, RecordEncoder
from ratecli.streaming.split import CellTable, weight_position
from ratecli.streaming.store import ColumnFacts
from ratecli.streaming.stream import RowStream, SumArrays
from ratecli.streaming.table import StreamedTable

ColumnPositions = NDArray[np.intp]

CENTER_RUNS = 16
"""Runs of rows from which an approximate mean of each column is computed."""
DEVIATION_ROUNDING = 1e-14
"""A standard deviation below this share of the mean is a rounding error of 0."""


def unfitted_encoding(table: StreamedTable) -> RecordEncoder:
    """Return the table's features as stored in records, before fitting on the training rows."""
    names = table.roles.features
    numbers = [k for k, each in enumerate(table.store.numbers) if each.name in names]
    codes = [k for k, each in enumerate(table.store.texts) if each.name in names]
    sizes = [len(table.store.texts[k].levels or ()) for k in codes]
    none = np.zeros(0, dtype=np.intp)
    coding = FeatureCoding(
        np.array(numbers, dtype=np.intp),
        np.zeros(len(numbers)),
        np.ones(len(numbers)),
        np.zeros(len(numbers), dtype=np.intp),
        np.full(len(numbers), -1, dtype=np.intp),
        np.array(codes, dtype=np.intp),
        np.cumsum([0, *sizes])[:-1].astype(np.intp),
        np.full(sum(sizes), -1, dtype=np.intp),
    )
    return RecordEncoder(coding, 0, none, none, np.zeros(0))


def encoded_stream(table: StreamedTable, cells: CellTable) -> tuple[RowStream, Encoder]:
    """Return the rows of a table as features, and the encoder fitted on its training rows."""
    into = np.arange(len(cells.count), dtype=np.int32)
    rows = RowStream(
        table.store,
        cells.path,
        into,
        weight_position(table),
        unfitted_encoding(table),
        cells.count,
        cells.weight,
    )
    encoder, seen = fit_stream_encoder(table, rows[np.flatnonzero(cells.part == "train")])
    return replace(rows, encoded=apply_stream_encoder(table, encoder, seen)), encoder


@dataclass(frozen=True)
class FeatureShares:
    """Shares of training rows that have each number (P,) and each level (L,)."""

    numbers: NDArray[np.float64]
    levels: NDArray[np.float64]


def fit_stream_encoder(table: StreamedTable, train: RowStream) -> tuple[Encoder, FeatureShares]:
    """Fit the encoder in one pass over the training rows; also return the shares of present values.

    Raises
    ------
    FaultError
        E410 if there are no training rows, E407 if a column of numbers has none in them.
    """
    coding = train.encoded.coding
    if not train.count.sum():
        message = "there are no training rows"
        raise FaultError(Diagnostic("E410", message, "look at 'split'", loc=("split",)))
    center = _center(train)
    count, known, sums, squares, seen = train.sums(_Moments(coding, center))
    (rows,) = count
    numbers = [table.store.numbers[k].name for k in coding.of_number]
    blocks: dict[str, NumericBlock | OneHotBlock] = {}
    for name, a, n, total, each in zip(numbers, center, known, sums, squares.T, strict=True):
        if not np.isfinite(a):
            check_scale(name, np.inf)
        if not n:
            raise FaultError(no_mean_error(name))
        scale = _deviation(n, total, each)
        if scale <= DEVIATION_ROUNDING * abs(a):
            scale = 1.0
        check_scale(name, scale)
        block = NumericBlock(name, float(a + total / n), scale, bool(n < rows))
        _refuse_infinite(table.columns[name], block)
        blocks[name] = block
    for g, k in enumerate(coding.of_code):
        column = table.store.texts[k]
        there = seen[coding.first[g] :][: len(column.levels or ())] > 0
        names = {
            MISSING_CATEGORY if level is None else level
            for level, known in zip(column.levels or (), there, strict=True)
            if known
        }
        blocks[column.name] = OneHotBlock(column.name, tuple(sorted(names)))
    ordered = tuple(blocks[name] for name in table.roles.features)
    names_of = tuple(name for block in ordered for name in block.names)
    return Encoder(names_of, ordered), FeatureShares(known / rows, seen / rows)


def _deviation(n: float, total: float, squares: NDArray[np.float64]) -> float:
    """Return the standard deviation of n numbers from their sum and the squares of `add_moments`.

    `squares` (3,) are sums of squares for three ranges of magnitude, scaled by powers of 2.
    """
    from ratecli.models.record_loops import SQUARE_SHIFT  # noqa: PLC0415

    powers = np.array([-SQUARE_SHIFT, 0, SQUARE_SHIFT])
    power = powers[np.flatnonzero(squares)[-1]] if squares.any() else 0
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        below = powers <= power
        square = np.ldexp(squares[below], 2 * (powers[below] - power)).sum()
        variance = square / n - np.ldexp(total / n, -power) ** 2
        return float(np.ldexp(np.sqrt(max(variance, 0.0)), power))


def _refuse_infinite(column: ColumnFacts, block: NumericBlock) -> None:
    """Raise E407 if a number of any row is too far from those of the training rows."""
    assert column.numbers is not None
    for value in (column.numbers.least, column.numbers.most):
        if not np.isfinite((value - block.mean) / block.scale):
            raise FaultError(
                out_of_range_error(block.column, f"{value:g}", block.mean, block.scale)
            )


def _center(train: RowStream) -> NDArray[np.float64]:
    """Return column means over a few runs from all over the table, for centering."""
    runs = train.runs()
    some = train.taken(sorted({k * runs // CENTER_RUNS for k in range(CENTER_RUNS)}))
    found = some.numbers[:, train.encoded.coding.of_number].astype(np.float64)
    known = ~np.isnan(found)
    found[~known] = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # `check_scale` rejects what is not finite
        return np.asarray(found.sum(axis=0) / np.maximum(known.sum(axis=0), 1))


@dataclass(frozen=True)
class _Moments:
    """Counts and sums of the training rows.

    Sums the rows, the rows that have each number, the centered numbers, their squares (in three
    ranges of size, against overflow), and the rows of each level.
    """

    coding: FeatureCoding
    center: NDArray[np.float64]

    def zeros(self) -> SumArrays:
        known, sums = np.zeros((2, len(self.center)))
        squares = np.zeros((3, len(self.center)))
        return np.zeros(1), known, sums, squares, np.zeros(len(self.coding.level_at))

    def add(self, rows: RecordBatch, sums: SumArrays) -> None:
        # imports numba, which takes 0.2 s in every process
        from ratecli.models.record_loops import add_moments  # noqa: PLC0415

        add_moments(rows.numbers, rows.codes, rows.cell, self.coding, self.center, *sums)


def apply_stream_encoder(
    table: StreamedTable, encoder: Encoder, seen: FeatureShares
) -> RecordEncoder:
    """Return the conversion of records to the features of a fitted encoder."""
    known = unfitted_encoding(table).coding
    place = {block.column: k for k, block in enumerate(encoder.blocks)}
    first = np.cumsum([0, *(len(block.names) for block in encoder.blocks)])
    mean, scale, number_at = known.mean, known.scale, known.number_at
    missing_at, level_at = known.missing_at, known.level_at
    places = list[int]()
    for k, n in enumerate(known.of_number):
        at = place[table.store.numbers[n].name]
        block = encoder.blocks[at]
        assert isinstance(block, NumericBlock)
        mean[k], scale[k], number_at[k] = block.mean, block.scale, first[at]
        if block.missing:
            missing_at[k] = first[at] + 1
        places.append(at)
    for g, n in enumerate(known.of_code):
        column = table.store.texts[n]
        at = place[column.name]
        block = encoder.blocks[at]
        assert isinstance(block, OneHotBlock)
        levels = {level: int(first[at]) + k for k, level in enumerate(block.levels)}
        level_at[known.first[g] :][: len(column.levels or ())] = [
            levels.get(MISSING_CATEGORY if level is None else level, -1)
            for level in column.levels or ()
        ]
        places.append(at)
    shares, width = np.ones(int(first[-1])), int(first[-1])
    shares[number_at] = seen.numbers
    shares[missing_at[missing_at >= 0]] = 1.0 - seen.numbers[missing_at >= 0]
    shares[level_at[level_at >= 0]] = seen.levels[level_at >= 0]
    return RecordEncoder(known, width, _positions(places), _positions(first[places]), shares)


def _positions(found: Sequence[int] | NDArray[np.int64]) -> ColumnPositions:
    return np.asarray(found, dtype=np.intp)
