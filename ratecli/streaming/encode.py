"""Encoding of a streamed table's columns as features, fitted on the training rows.

The result equals that of the in-memory encoder for the same table, up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ratecli.datasets.columns import (
    MISSING_CATEGORY,
    check_scale,
    no_mean_error,
    out_of_range_error,
)
from ratecli.datasets.encode import Encoder, NumericBlock, OneHotBlock, check_training_rows
from ratecli.models.records import FeatureCoding, RecordBatch, RecordEncoder
from ratecli.streaming.split import CellTable, weight_position
from ratecli.streaming.store import ColumnFacts
from ratecli.streaming.stream import RowStream, SumArrays
from ratecli.streaming.table import StreamedTable

CENTER_RUNS = 16
"""Runs of rows from which an approximate mean of each column is computed."""
DEVIATION_ROUNDING = 1e-14
"""A standard deviation below this share of the mean is a rounding error of 0."""


def encoded_stream(table: StreamedTable, cells: CellTable) -> tuple[RowStream, Encoder]:
    """Return the rows of a table as features, and the encoder fitted on its training rows."""
    into = np.arange(len(cells.count), dtype=np.int32)
    rows = RowStream(
        table.store,
        cells.path,
        into,
        weight_position(table),
        record_encoder(table, plain_encoder(table)),
        cells.count,
        cells.weight,
    )
    encoder, shares = fit_stream_encoder(table, rows[np.flatnonzero(cells.part == "train")])
    return replace(rows, encoded=record_encoder(table, encoder, shares)), encoder


def plain_encoder(table: StreamedTable) -> Encoder:
    """Return the features as stored in records, before fitting on the training rows."""
    columns = [table.columns[name] for name in table.features]
    return Encoder.of(
        [
            OneHotBlock(column.name, tuple(map(_level_name, column.levels or ())))
            if column.numbers is None
            else NumericBlock(column.name, 0.0, 1.0)
            for column in columns
        ]
    )


def _level_name(level: str | None) -> str:
    return MISSING_CATEGORY if level is None else level


def fit_stream_encoder(table: StreamedTable, train: RowStream) -> tuple[Encoder, dict[str, float]]:
    """Fit the encoder in one pass over the training rows; also return shares of rows by feature.

    A share is that of the training rows in which the feature is known and, unless it is a number,
    is 1.

    Raises
    ------
    FaultError
        E410 if there are no training rows, E407 if a column of numbers has none in them.
    """
    coding = train.encoded.coding
    check_training_rows(train.count.sum())
    center = _center(train)
    count, known, sums, squares, seen = train.sums(_Moments(coding, center))
    (rows,) = count
    numbers = [table.store.numbers[k].name for k in coding.of_number]
    blocks: dict[str, NumericBlock | OneHotBlock] = {}
    shares: dict[str, float] = {}
    for name, a, n, total, each in zip(numbers, center, known, sums, squares.T, strict=True):
        if not np.isfinite(a):
            check_scale(name, np.inf)
        if not n:
            raise no_mean_error(name)
        scale = _deviation(n, total, each)
        if scale <= DEVIATION_ROUNDING * abs(a):
            scale = 1.0
        check_scale(name, scale)
        block = NumericBlock(name, float(a + total / n), scale, bool(n < rows))
        _refuse_infinite(table.columns[name], block)
        blocks[name] = block
        shares |= {name: n / rows, f"{name}={MISSING_CATEGORY}": 1.0 - n / rows}
    for start, k in zip(coding.first, coding.of_code, strict=True):
        column = table.store.texts[k]
        levels = np.array(list(map(_level_name, column.levels or ())), dtype=object)
        there = levels[seen[start : start + len(levels)] > 0]
        blocks[column.name] = OneHotBlock(column.name, tuple(sorted(set(there))))
        shares |= {f"{column.name}={n}": seen[start + k] / rows for k, n in enumerate(levels)}
    return Encoder.of([blocks[name] for name in table.features]), shares


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
            raise out_of_range_error(block.column, f"{value:g}", block.mean, block.scale)


def _center(train: RowStream) -> NDArray[np.float64]:
    """Return column means over a few runs from all over the table, for centering."""
    runs = train.runs()
    some = train.read_runs(sorted({k * runs // CENTER_RUNS for k in range(CENTER_RUNS)}))
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


def record_encoder(
    table: StreamedTable, encoder: Encoder, shares: Mapping[str, float] | None = None
) -> RecordEncoder:
    """Return the conversion of records to an encoder's features; shares are 1 by default."""
    place = {block.column: k for k, block in enumerate(encoder.blocks)}
    starts = np.cumsum([0, *(len(block.names) for block in encoder.blocks)])
    numbers = [(k, place[c.name]) for k, c in enumerate(table.store.numbers) if c.name in place]
    codes = [(k, place[c.name]) for k, c in enumerate(table.store.texts) if c.name in place]
    scaled = [b for _, at in numbers if isinstance(b := encoder.blocks[at], NumericBlock)]
    number_at = starts[_positions([at for _, at in numbers])]
    missing_at = np.where([block.missing for block in scaled], number_at + 1, -1)
    level_at = [
        _level_features(table.store.texts[k], encoder.blocks[at], int(starts[at]))
        for k, at in codes
    ]
    coding = FeatureCoding(
        of_number=_positions([k for k, _ in numbers]),
        mean=np.array([block.mean for block in scaled], dtype=float),
        scale=np.array([block.scale for block in scaled], dtype=float),
        number_at=_positions(number_at),
        missing_at=_positions(missing_at),
        of_code=_positions([k for k, _ in codes]),
        first=_positions(np.cumsum([0, *map(len, level_at)])[:-1]),
        level_at=_positions([feature for each in level_at for feature in each]),
    )
    width, places = int(starts[-1]), _positions([at for _, at in (*numbers, *codes)])
    known = np.array([(shares or {}).get(name, 1.0) for name in encoder.names])
    return RecordEncoder(coding, width, places, _positions(starts[places]), known)


def _level_features(
    column: ColumnFacts, block: NumericBlock | OneHotBlock, start: int
) -> list[int]:
    """Return the feature of each level of a column, -1 if it has none."""
    feature = {name: start + k for k, name in enumerate(block.names)}
    return [feature.get(f"{column.name}={_level_name(each)}", -1) for each in column.levels or ()]


def _positions(found: Sequence[int] | NDArray[np.integer]) -> NDArray[np.intp]:
    return np.asarray(found, dtype=np.intp)
