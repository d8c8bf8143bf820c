"""Encoding of a streamed table's columns as features, fitted on the training rows.

The result equals that of the in-memory encoder for the same table, up to rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ratecli.datasets.columns import (
    MISSING_CATEGORY,
    check_scale,
    no_mean_error,
    out_of_range_error,
)
from ratecli.datasets.encode import Encoder, NumericBlock, OneHotBlock, check_training_rows
from ratecli.models.records import FeatureCoding, RecordEncoder, RowBlock
from ratecli.streaming.split import CellTable, weight_position
from ratecli.streaming.store import ColumnFacts
from ratecli.streaming.stream import RowStream, SumArrays
from ratecli.streaming.table import StreamedTable

DEVIATION_ROUNDING = 1e-14
"""A standard deviation below this share of the mean is a rounding error of 0."""
MIN_NUMBER = 1e-150
"""Squares of smaller numbers may become 0."""


def encoded_stream(table: StreamedTable, cells: CellTable) -> tuple[RowStream, Encoder]:
    """Return the rows of a table as features, and the encoder fitted on its training rows."""
    into = np.arange(len(cells.count), dtype=np.int32)
    rows = RowStream(
        table.store,
        cells.path,
        into,
        weight_position(table),
        record_encoder(table, Encoder.of([])),
        cells.count,
        cells.weight,
        cells.effective,
    )
    encoder, shares = fit_stream_encoder(table, rows[np.flatnonzero(cells.part == "train")])
    return replace(rows, encoded=record_encoder(table, encoder, shares)), encoder


def _level_names(column: ColumnFacts) -> list[str]:
    return [MISSING_CATEGORY if level is None else level for level in column.levels]


def fit_stream_encoder(table: StreamedTable, train: RowStream) -> tuple[Encoder, dict[str, float]]:
    """Fit the encoder in one pass over the training rows; also return shares of rows by feature.

    A share is that of the training rows in which the feature is known and, unless it is a number,
    is 1.

    Raises
    ------
    FaultError
        E410 if there are no training rows, E407 if a column of numbers has none in them, or has
        numbers in other rows that are too far from those in them.
    """
    check_training_rows(train.count.sum())
    texts, place = table.store.texts, table.store.places
    center = _first_means(train)
    starts = np.cumsum([0, *(len(column.levels) for column in texts.values())])
    count, known, sums, squares, seen = train.sums(partial(_moments, center, starts))
    (rows,) = count
    blocks: list[NumericBlock | OneHotBlock] = []
    shares: dict[str, float] = {}
    for name in table.features:
        if name in table.constants:
            continue
        column, k = table.columns[name], place[name]
        if column.is_text:
            often = Counter[str]()  # a missing value and a cell `(missing)` are one level
            for level, times in zip(_level_names(column), seen[starts[k] :].tolist(), strict=False):
                often[level] += times
            blocks.append(
                OneHotBlock(name, tuple(sorted(level for level in often if often[level])))
            )
            shares |= {f"{name}={level}": n / rows for level, n in often.items()}
            continue
        if not known[k]:
            raise no_mean_error(name)
        mean = sums[k] / known[k]
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = np.sqrt(max(squares[k] / known[k] - mean**2, 0.0))
        same = deviation <= DEVIATION_ROUNDING * abs(center[k])
        tiny = 0 < max(column.most, -column.least) < MIN_NUMBER
        scale = 1.0 if same and not tiny else float(deviation)
        check_scale(name, scale)
        share = float(known[k] / rows)
        block = NumericBlock(name, float(center[k] + mean), scale, share < 1)
        for value in (column.least, column.most):
            if not np.isfinite((value - block.mean) / scale):
                raise out_of_range_error(name, f"{value:g}", block.mean, scale)
        blocks.append(block)
        shares |= {name: share, f"{name}={MISSING_CATEGORY}": 1.0 - share}
    return Encoder.of(blocks), shares


def _first_means(train: RowStream) -> NDArray[np.float64]:
    """Return about the mean of each column of numbers (P,): that of the first rows."""
    found = next(rows.numbers for rows in train.blocks() if len(rows)).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # of columns that are not features
        total = np.nansum(found, axis=0)
        return np.asarray(total / np.maximum((~np.isnan(found)).sum(axis=0), 1))


def _moments(
    center: NDArray[np.float64], starts: NDArray[np.intp], blocks: Iterable[RowBlock]
) -> SumArrays:
    """Return counts and sums of rows.

    These are the count of rows, of rows with each number (P,), the centered numbers, their squares,
    and the count of rows of each level, those of text column g from `starts[g]` on.
    """
    count, seen = np.zeros(1), np.zeros(starts[-1])
    known, sums, squares = np.zeros((3, len(center)))
    for rows in blocks:
        away = rows.numbers - center
        missing = np.isnan(away)
        away[missing] = 0.0
        count += len(rows)
        known += len(rows) - missing.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):  # of columns that are not features
            sums += away.sum(axis=0)
            squares += np.einsum("ij,ij->j", away, away)
        seen += np.bincount((rows.codes + starts[:-1]).ravel(), minlength=len(seen))
    return count, known, sums, squares, seen


def record_encoder(
    table: StreamedTable, encoder: Encoder, shares: Mapping[str, float] | None = None
) -> RecordEncoder:
    """Return the conversion of records to an encoder's features; shares are 1 by default."""
    place, start = table.store.places, 0
    numbers: list[tuple[float, ...]] = []
    codes, first, level_at = list[int](), list[int](), list[int]()
    for block in encoder.blocks:
        k = place[block.column]
        if isinstance(block, NumericBlock):
            missing_at = start + 1 if block.missing else -1
            numbers.append((k, block.mean, block.scale, start, missing_at))
        else:
            codes.append(k)
            first.append(len(level_at))
            feature = {level: start + j for j, level in enumerate(block.levels)}
            names = _level_names(table.columns[block.column])
            level_at += [feature.get(level, -1) for level in names]
        start += len(block.names)
    of_number, mean, scale, number_at, missing = np.array(numbers).reshape(-1, 5).T
    coding = FeatureCoding(
        _positions(of_number),
        mean.copy(),
        scale.copy(),
        _positions(number_at),
        _positions(missing),
        _positions(codes),
        _positions(first),
        _positions(level_at),
    )
    known = np.array([(shares or {}).get(name, 1.0) for name in encoder.names])
    return RecordEncoder(coding, start, known)


def _positions(found: Sequence[int] | NDArray[np.float64]) -> NDArray[np.intp]:
    return np.array(found, dtype=np.intp)
