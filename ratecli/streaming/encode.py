"""Encoding of a streamed table's columns as features, fitted on the training rows.

The result equals that of the in-memory encoder for the same table, up to rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
from ratecli.streaming.blocks import FeatureCoding, RowBlock
from ratecli.streaming.cells import CellTable, weight_position
from ratecli.streaming.stream import RowStream, SumArrays
from ratecli.streaming.table import StreamedTable

DEVIATION_ROUNDING = 1e-14
"""A standard deviation below this share of the mean is a rounding error of 0."""
MIN_NUMBER = 1e-150
"""Squares of smaller numbers may become 0."""


def encoded_stream(table: StreamedTable, cells: CellTable) -> tuple[RowStream, Encoder]:
    """Return the rows of a table as features, and the encoder fitted on its training rows."""
    sums = cells.count, cells.weight, cells.effective
    into, coding = (
        np.arange(len(cells.count), dtype=np.int32),
        feature_coding(table, Encoder.of([])),
    )
    rows = RowStream(table.store, cells.path, into, weight_position(table), coding, *sums)
    encoder, shares = fit_stream_encoder(table, rows[np.flatnonzero(cells.part == "train")])
    return replace(rows, coding=feature_coding(table, encoder, shares)), encoder


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
    place, words = table.store.places, [table.columns[each] for each in table.store.format.words]
    center = _first_means(train)
    starts = np.cumsum([0, *(len(column.words) for column in words)])
    (rows,), known, sums, squares, seen = train.sums(partial(_moments, center, starts))
    blocks: list[NumericBlock | OneHotBlock] = []
    shares: dict[str, float] = {}
    for name in [name for name in table.features if name not in table.constants]:
        column, k = table.columns[name], place[name]
        if column.is_text:
            often = Counter[str]()  # a missing value and a cell `(missing)` are one level
            for level, times in zip(column.words, seen[starts[k] :].tolist(), strict=False):
                often[MISSING_CATEGORY if level is None else level] += times
            blocks.append(
                OneHotBlock(name, tuple(sorted(level for level in often if often[level])))
            )
            shares |= {f"{name}={level}": n / rows for level, n in often.items()}
            continue
        if not known[k]:
            raise no_mean_error(name)
        mean, share = sums[k] / known[k], float(known[k] / rows)
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = np.sqrt(max(squares[k] / known[k] - mean**2, 0.0))
        same = deviation <= DEVIATION_ROUNDING * abs(center[k])
        tiny = 0 < max(column.most, -column.least) < MIN_NUMBER
        scale = 1.0 if same and not tiny else float(deviation)
        check_scale(name, scale)
        block = NumericBlock(name, float(center[k] + mean), scale, share < 1)
        for value in (column.least, column.most):
            if not np.isfinite((value - block.mean) / scale):
                raise out_of_range_error(name, f"{value:g}", block.mean, scale)
        blocks.append(block)
        shares |= {name: share, f"{name}={MISSING_CATEGORY}": 1.0 - share}
    return Encoder.of(blocks), shares


def _first_means(train: RowStream) -> NDArray[np.float64]:
    """Return about the mean of each column of numbers (P,): that of the first rows."""
    first = next(rows for rows in train.blocks() if len(rows))
    found = first.numbers[first.rows].astype(np.float64)
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
        away = rows.numbers[rows.rows] - center
        missing = np.isnan(away)
        away[missing] = 0.0
        count += len(rows)
        known += len(rows) - missing.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):  # of columns that are not features
            sums += away.sum(axis=0)
            squares += np.einsum("ij,ij->j", away, away)
        seen += np.bincount((rows.codes[rows.rows] + starts[:-1]).ravel(), minlength=len(seen))
    return count, known, sums, squares, seen


def feature_coding(
    table: StreamedTable, encoder: Encoder, shares: Mapping[str, float] | None = None
) -> FeatureCoding:
    """Return how records become an encoder's features; shares are 1 by default."""
    columns, levels, start = list[tuple[float, ...]](), list[int](), 0
    for block in encoder.blocks:
        place = table.store.places[block.column]
        if isinstance(block, NumericBlock):
            columns.append((place, start, block.mean, block.scale, block.missing, -1))
        else:
            columns.append((place, start, 0.0, 1.0, 0, len(levels)))
            known = {level: j for j, level in enumerate(block.levels)}
            words = table.columns[block.column].words
            levels += [known.get(MISSING_CATEGORY if w is None else w, -1) for w in words]
        start += len(block.names)
    place_of, at, mean, scale, missing, first = np.array(columns).reshape(-1, 6).T.copy()
    return FeatureCoding(
        place=place_of.astype(np.intp),
        at=at.astype(np.intp),
        mean=mean,
        scale=scale,
        missing=missing.astype(np.intp),
        first_level=first.astype(np.intp),
        level=np.array(levels, np.intp),
        shares=np.array([(shares or {}).get(name, 1.0) for name in encoder.names]),
    )
