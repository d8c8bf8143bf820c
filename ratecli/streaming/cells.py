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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from ratecli.streaming.blocks import FeatureCoding, RowBlock
from ratecli.streaming.stream import CELL_DTYPE, RowStream, SumArrays, row_weights
from ratecli.streaming.table import StreamedTable, check_splits_rows, write_together

CellIndices = NDArray[np.int64]

STRETCH = 2**16
MAX_CELLS = 2**16
CELLS_VERSION = 4
DEVIATION_ROUNDING = 1e-14
"""A standard deviation below this share of the mean is a rounding error of 0."""
MIN_NUMBER = 1e-150
"""The squares of smaller numbers underflow to 0."""


class Grouping(NamedTuple):
    """How a column of a record distinguishes rows: by its words or few numbers, else by `cuts`.

    Cuts distinguish the numbers between them, and the cuts; a missing number is last.

    Attributes
    ----------
    part, place
        `codes` or `numbers` of a record, and the column's index among them.
    values
        A representative value for each index that `of` returns.
    """

    part: str
    place: int
    values: NDArray[Any]
    order: CellIndices | None = None
    cuts: NDArray[np.float64] | None = None

    @classmethod
    def by(cls, table: StreamedTable, name: str, cuts: Sequence[float]) -> Grouping:
        """Distinguish the rows of a table by a column that is only compared with `cuts`."""
        facts, place = table.columns[name], table.store.places[name]
        known = facts.values
        if facts.is_text:
            assert known is not None
            rank = {word: k for k, word in enumerate(known)}
            order = np.array([rank[word] for word in facts.words], dtype=np.int64)
            return cls("codes", place, np.array(known, dtype=object), order)
        ends = np.unique(np.array(cuts, dtype=np.float64))
        found = _interval_values(ends) if known is None else known
        return cls(
            "numbers", place, np.array([*found, np.nan]), cuts=ends if known is None else None
        )

    def of(self, records: NDArray[np.void]) -> CellIndices:
        """Return the index of each row's value, as (m,)."""
        found = records[self.part][:, self.place]
        if self.order is not None:
            return np.asarray(self.order[found])
        found = found.astype(np.float64)
        if self.cuts is None:
            index = np.searchsorted(self.values[:-1], found)
        else:
            sides = [np.searchsorted(self.cuts, found, side) for side in ("left", "right")]
            index = sides[0] + sides[1]
        return np.where(np.isnan(found), len(self.values) - 1, index)


def _interval_values(cuts: NDArray[np.float64]) -> list[float]:
    """Return one number in each cell: below the first cut, each cut, and between or above cuts."""
    if not len(cuts):
        return [0.0]
    middles = cuts[:-1] / 2 + cuts[1:] / 2
    ends = np.nextafter(cuts[[0, -1]], [-np.inf, np.inf])
    between = np.array([*middles, ends[1]])
    return [float(ends[0]), *np.stack([cuts, between], axis=1).ravel().tolist()]


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
    ) -> None:
        """Open the file with the cells of a table's rows, or write it.

        `slices` has the numbers that each column is compared with, `generator` returns the random
        generator that splits a stretch of rows, given its number, and `random` names it in the key
        of the file.

        Raises
        ------
        FaultError
            E205, E410 for an impossible split, E411 if there are too many groups, E413 if the file
            cannot be written.
        """
        self.table, self.spec, self.generator = table, spec, generator
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
        values = {
            name: each.values[index]
            for (name, each), index in zip(self.groupings.items(), own, strict=True)
        }
        self.label = np.full(len(part), np.nan)
        if "" in values:
            self.label = np.append(table.label_of, np.nan)[own[0]]
            del values[""]
        self.columns: dict[str, NDArray[Any]] = values

    def _find_groupings(self, slices: Mapping[str, Sequence[float]]) -> dict[str, Grouping]:
        """Return how rows are distinguished: by the label (""), then by other columns."""
        spec, table = self.spec, self.table
        if spec.order is not None:
            message = "the rows of a streamed table cannot be split by the order of a column"
            hint = "add a column with train or test in each row: split: {by: COLUMN}"
            raise impossible_split_error(message, hint)
        # slices may also name columns of other tables
        names = [name for name in slices if name in table.columns]
        names += [] if spec.by is None else [spec.by]
        names += [name for name in spec.stratify or () if name != "label"]
        found = {} if table.label is None else {"": Grouping.by(table, table.label, ())}
        for name in dict.fromkeys(names):
            if name not in table.columns:
                raise missing_column_error(name, table.columns)
            check_splits_rows(table.columns[name])
            found[name] = Grouping.by(table, name, slices.get(name, ()))
        return found

    def _write(self, path: Path) -> tuple[CellIndices, NDArray[np.float64]]:
        """Write the cell of each row to a file.

        Return the keys (C,) of the cells, and (3, C) numbers of rows, weights and squared weights.
        """
        known: dict[int, int] = {}
        totals = np.zeros((3, MAX_CELLS))
        few = np.prod(np.array(self.sizes, dtype=float)) < 2**62
        with path.open("wb") as file:
            for k, (places, weights) in enumerate(self._stretches()):
                if few:
                    key = np.ravel_multi_index((*places, self._parts(places, k)), self.sizes)
                    keys, of = np.unique(key, return_inverse=True)
                    ids = np.array([known.setdefault(each, len(known)) for each in keys.tolist()])
                if not few or len(known) > MAX_CELLS:
                    names = ", ".join(f"'{name}'" for name in self.groupings if name)
                    message = f"the columns {names} distinguish more than {MAX_CELLS} kinds of rows"
                    hint = "define groups and strata by fewer or coarser columns"
                    raise FaultError(Diagnostic("E411", message, hint))
                cell = ids[of]
                cell.astype(CELL_DTYPE).tofile(file)
                added = None, weights, weights**2
                totals += [np.bincount(cell, each, MAX_CELLS) for each in added]
        keys, sums, parts = np.array(list(known)), totals[:, : len(known)], len(SPLIT_NAMES)
        counts = np.bincount(keys % parts, sums[0], parts).astype(int).tolist()
        check_parts(dict(zip(SPLIT_NAMES, counts, strict=True)), self.spec, None)
        return keys, sums

    def _stretches(self) -> Iterator[tuple[list[CellIndices], NDArray[np.float64]]]:
        """Yield the indices of all grouping columns, and the weights, `STRETCH` rows at a time."""
        store, weight = self.table.store, weight_position(self.table)
        for first in range(0, store.rows, STRETCH):
            found = [
                (
                    *(each.of(records) for each in self.groupings.values()),
                    row_weights(records, weight),
                )
                for _, records in store.pieces(first, min(first + STRETCH, store.rows))
            ]
            *places, weights = map(np.concatenate, zip(*found, strict=True))
            yield places, weights

    def _parts(self, places: Sequence[CellIndices], k: int) -> CellIndices:
        """Return the index in `SPLIT_NAMES` of the part of each row of stretch k, as (m,)."""
        spec, of, total = self.spec, dict(zip(self.groupings, places, strict=True)), len(self.table)
        rows = min(STRETCH, total - k * STRETCH)
        columns = {name: of[name] for name in spec.stratify or () if name != "label"}
        label = np.full(rows, np.nan)
        if spec.by is not None:  # split the values of the column
            columns, label = {spec.by: self.groupings[spec.by].values}, label[:0]
        elif "" in of:
            label = np.append(self.table.label_of, np.nan)[of[""]]
        index = None if spec.by is not None else range(rows)
        stretch = Table(pd.DataFrame(columns, index), (), label, "")
        part = split_rows(stretch, spec, self.generator(k), exact=total <= STRETCH)
        found = np.select([part == name for name in SPLIT_NAMES], range(len(SPLIT_NAMES)))
        return found if spec.by is None else found[of[spec.by]]


def weight_position(table: StreamedTable) -> int | None:
    """Return the index of the weight among the numbers of a record; None if rows count alike."""
    return None if table.weight is None else table.store.places[table.weight]


def encoded_stream(table: StreamedTable, cells: CellTable) -> tuple[RowStream, Encoder]:
    """Return the rows of a table as features, and the encoder fitted on its training rows."""
    sums = cells.count, cells.weight, cells.effective
    into = np.arange(len(cells.count), dtype=np.int32)
    coding = feature_coding(table, Encoder.of([]))
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
