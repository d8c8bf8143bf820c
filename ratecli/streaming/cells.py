"""The split, the cell and the features of each row of a streamed table.

Rows with the same label, split and slices form a cell. A table of at most `STRETCH` rows is split
exactly as one in memory. A longer one is split stretch by stretch: in each, the number of rows of a
stratum in each part is within one row of its share, and exact on average. Cells are cached in a
file beside the table's records. Features are encoded as in memory, up to rounding.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.config.dataset import SplitSpec
from ratecli.datasets.columns import (
    MISSING_CATEGORY,
    check_scale,
    no_mean_error,
    out_of_range_error,
)
from ratecli.datasets.encode import Encoder, NumericBlock, OneHotBlock, check_training_rows
from ratecli.datasets.split import (
    SPLIT_NAMES,
    check_parts,
    impossible_split_error,
    missing_column_error,
    split_rows,
)
from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError
from ratecli.streaming.stream import (
    CELL_DTYPE,
    FeatureCoding,
    RowBlock,
    RowStream,
    SumArrays,
    row_weights,
)
from ratecli.streaming.table import StreamedTable, write_together

CellIndices = NDArray[np.int64]

STRETCH = 2**16
MAX_CELLS, MAX_KEYS = 2**16, 2**62
CELLS_VERSION = 5
LABEL = ""
"""Name of the label among the columns by which rows are distinguished."""
DEVIATION_ROUNDING = 1e-14
"""A standard deviation below this share of the mean is a rounding error of 0."""
MIN_NUMBER = 1e-150
"""The squares of smaller numbers underflow to 0."""
NO_CUTS = np.zeros(0)
"""The cuts of a column of words."""


class Grouping(NamedTuple):
    """How a column distinguishes rows: by its words, or by the intervals between `cuts`.

    A missing number is last.

    Attributes
    ----------
    place
        Index of the column among the codes of a record, or among its numbers.
    values
        A representative value for each index that `of` returns.
    order
        The index of each code of a word.
    """

    place: int
    values: NDArray[Any]
    order: CellIndices | None = None
    cuts: NDArray[np.float64] = NO_CUTS

    @classmethod
    def by(cls, table: StreamedTable, name: str, cuts: Sequence[float]) -> Grouping:
        """Distinguish the rows by a column; one of many numbers is only compared with `cuts`."""
        facts, place = table.columns[name], table.store.places[name]
        known = facts.values
        if facts.is_text:
            assert known is not None
            order = np.array(list(map(known.index, facts.words)), dtype=np.int64)
            return cls(place, np.array(known, dtype=object), order)
        if known is not None:
            ends, between = np.array(known, dtype=np.float64), np.array([*known, np.nan])
        else:
            ends = np.unique(np.array(cuts, dtype=np.float64))
            low, high = np.array([-np.inf, *ends]), np.array([*ends, np.inf])
            between = np.nextafter(low, np.inf) / 2 + np.nextafter(high, -np.inf) / 2
        values = np.append(np.insert(between, np.arange(1, len(ends) + 1), ends), np.nan)
        return cls(place, values, cuts=ends)

    def of(self, records: NDArray[np.void]) -> CellIndices:
        """Return the index of each row's value, as (m,)."""
        if self.order is not None:
            return np.asarray(self.order[records["codes"][:, self.place]])
        found = records["numbers"][:, self.place].astype(np.float64)
        index = np.searchsorted(self.cuts, found) + np.searchsorted(self.cuts, found, "right")
        return np.where(np.isnan(found), len(self.values) - 1, index)


class CellTable:
    """The C cells of a table's rows, which agree in part, label and all slices.

    Attributes
    ----------
    path
        A file with the cell of each row.
    part, label
        (C,) of each cell.
    columns
        (C,) a representative value of each cell, for each column that slices or the split use.
    count, weight, effective
        (C,) number of rows, their total weight, and the effective number of rows.
    """

    def __init__(
        self,
        table: StreamedTable,
        slices: Mapping[str, Sequence[float]],
        spec: SplitSpec,
        random: str,
        generator: Callable[[int], np.random.Generator],
        *,
        fold: int = 0,
    ) -> None:
        """Open the file with the cells of a table's rows, or write it.

        `slices` has the numbers that each column is compared with, `generator` returns the random
        generator that splits a stretch of rows, given its number, and `random` names it in the key
        of the file. `fold` is that of the test set, if there are folds.

        Raises
        ------
        FaultError
            E205, E410 for an impossible split, E411 if there are too many groups, E413 if the file
            cannot be written.
        """
        self.table, self.spec, self.fold, self.generator = table, spec, fold, generator
        self.groupings = self._find_groupings(slices)
        self.sizes = [*(len(each.values) for each in self.groupings.values()), len(SPLIT_NAMES)]
        key: list[Any] = [CELLS_VERSION, table.label, table.label_of.tolist(), table.weight, random]
        key += [{name: sorted(cuts) for name, cuts in slices.items()}, spec.stated()]
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        self.path = table.store.folder / f"cells-{digest}"
        facts, size = self.path.with_suffix(".npz"), len(table) * CELL_DTYPE.itemsize
        if not (facts.exists() and self.path.exists() and self.path.stat().st_size == size):
            with write_together(self.path.parent, self.path.name, facts.name) as (cells, sums):
                np.savez(sums, *self._write(cells))
        with np.load(facts) as known:
            keys, (self.count, self.weight, square) = known["arr_0"], known["arr_1"]
        *own, part = np.unravel_index(keys, self.sizes)
        self.part = np.array(SPLIT_NAMES, "<U10")[part]
        self.effective = np.divide(self.weight**2, square, out=self.count.copy(), where=square > 0)
        pairs = zip(self.groupings.items(), own, strict=True)
        self.columns = {name: each.values[index] for (name, each), index in pairs}
        self.label = self.columns.pop(LABEL, np.full(len(part), np.nan))

    def _find_groupings(self, slices: Mapping[str, Sequence[float]]) -> dict[str, Grouping]:
        """Return how rows are distinguished: by the label, then by other columns."""
        spec, table = self.spec, self.table
        if spec.order is not None:
            message = "the rows of a streamed table cannot be split by the order of a column"
            hint = "add a column with train or test in each row: split: {by: COLUMN}"
            raise impossible_split_error(message, hint)
        # slices may also name columns of other tables
        names = [name for name in slices if name in table.columns]
        names += [] if spec.by is None else [spec.by]
        names += [name for name in spec.stratify or () if name != "label"]
        found = dict[str, Grouping]()
        if table.label is not None:
            own, labels = Grouping.by(table, table.label, ()), table.label_of
            labels = labels if own.order is not None else np.repeat([*labels, np.nan], 2)
            found[LABEL] = own._replace(values=labels)
        for name in dict.fromkeys(names):
            if name not in table.columns:
                raise missing_column_error(name, table.columns)
            found[name] = Grouping.by(table, name, slices.get(name, ()))
        return found

    def _write(self, path: Path) -> tuple[CellIndices, NDArray[np.float64]]:
        """Write the cell of each row to a file.

        Return the keys (C,) of the cells, and (3, C) numbers of rows, weights and squared weights.
        """
        if np.prod(np.array(self.sizes, dtype=float)) >= MAX_KEYS:
            raise self._too_many_cells()
        known: dict[int, int] = {}
        totals, table = np.zeros((3, MAX_CELLS)), self.table
        with path.open("wb") as file:
            for k, first in enumerate(range(0, len(table), STRETCH)):
                found = [
                    (
                        row_weights(records, table.weight_at),
                        *(each.of(records) for each in self.groupings.values()),
                    )
                    for _, records in table.store.pieces(first, min(first + STRETCH, len(table)))
                ]
                weights, *places = map(np.concatenate, zip(*found, strict=True))
                part = self._parts(dict(zip(self.groupings, places, strict=True)), k, len(weights))
                key = np.ravel_multi_index((*places, part), self.sizes)
                keys, of = np.unique(key, return_inverse=True)
                ids = np.array([known.setdefault(each, len(known)) for each in keys.tolist()])
                if len(known) > MAX_CELLS:
                    raise self._too_many_cells()
                cell = ids[of]
                cell.astype(CELL_DTYPE).tofile(file)
                added = None, weights, weights**2
                totals += [np.bincount(cell, each, MAX_CELLS) for each in added]
        keys, sums, parts = np.array(list(known)), totals[:, : len(known)], len(SPLIT_NAMES)
        counts = np.bincount(keys % parts, sums[0], parts).astype(int).tolist()
        check_parts(dict(zip(SPLIT_NAMES, counts, strict=True)), self.spec, None)
        return keys, sums

    def _too_many_cells(self) -> FaultError:
        names = ", ".join(f"'{name}'" for name in self.groupings if name != LABEL)
        message = f"the columns {names} distinguish more than {MAX_CELLS} kinds of rows"
        hint = "define groups and strata by fewer or coarser columns"
        return FaultError(Diagnostic("E411", message, hint))

    def _parts(self, of: Mapping[str, CellIndices], k: int, rows: int) -> CellIndices:
        """Return the index in `SPLIT_NAMES` of the part of each row of stretch k, as (m,).

        `of` has the index of each row's value, by column.
        """
        spec, rng, exact = self.spec, self.generator(k), len(self.table) <= STRETCH
        if spec.by is not None:  # split the values of the column
            frame = pd.DataFrame({spec.by: self.groupings[spec.by].values})
            part = split_rows(Table(frame, (), np.zeros(0), ""), spec, rng)[of[spec.by]]
        else:
            strata = {name: of[name] for name in spec.stratify or () if name != "label"}
            label = (
                self.groupings[LABEL].values[of[LABEL]] if LABEL in of else np.full(rows, np.nan)
            )
            stretch = Table(pd.DataFrame(strata, range(rows)), (), label, "")
            part = split_rows(stretch, spec, rng, self.fold, exact=exact)
        return np.select([part == name for name in SPLIT_NAMES], range(len(SPLIT_NAMES)))


def encoded_stream(table: StreamedTable, cells: CellTable) -> tuple[RowStream, Encoder]:
    """Return the rows of a table as features, and the encoder fitted on its training rows."""
    sums = cells.count, cells.weight, cells.effective
    into = np.arange(len(cells.count), dtype=np.int32)
    coding = feature_coding(table, Encoder.of([]), [])
    rows = RowStream(table.store, cells.path, into, table.weight_at, coding, *sums)
    encoder, shares = fit_stream_encoder(table, rows[np.flatnonzero(cells.part == "train")])
    return replace(rows, coding=feature_coding(table, encoder, shares)), encoder


def fit_stream_encoder(table: StreamedTable, train: RowStream) -> tuple[Encoder, list[float]]:
    """Fit the encoder in one pass over the training rows; also return a share for each feature.

    It is that of the training rows in which the feature is known and, unless it is a number, is 1.

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
    shares: list[float] = []
    for name in [name for name in table.features if name not in table.constants]:
        column, k = table.columns[name], place[name]
        if column.is_text:
            often = Counter[str]()  # a missing value and a cell `(missing)` are one level
            for level, times in zip(column.words, seen[starts[k] :].tolist(), strict=False):
                often[MISSING_CATEGORY if level is None else level] += times
            levels = sorted(level for level in often if often[level])
            blocks.append(OneHotBlock(name, tuple(levels)))
            shares += [often[level] / rows for level in levels]
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
        shares += [share, 1.0 - share][: len(block.names)]
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
    table: StreamedTable, encoder: Encoder, shares: Sequence[float]
) -> FeatureCoding:
    """Return how records become an encoder's features; `shares` are those of `FeatureCoding`."""
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
        shares=np.array(shares, dtype=float),
    )
