"""The split and the cell of each row of a streamed table, cached in a file beside its records.

A table of at most `STRETCH` rows is split exactly as one in memory. A longer one is split stretch
by stretch: in each, the number of rows of a stratum in each part is within one row of its share,
and exact on average.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.datasets.split import (
    SPLIT_NAMES,
    check_parts,
    impossible_split_error,
    part_shares,
    sample_parts,
)
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.streaming.store import RecordStore, array_bytes, replace_on_success
from ratecli.streaming.sums import CELL_DTYPE, RecordWeight
from ratecli.streaming.table import StreamedTable, check_splits_rows

ValueIndices = NDArray[np.int64]


@dataclass(frozen=True)
class GroupingColumn(ABC):
    """One column of a record that distinguishes rows.

    Attributes
    ----------
    column
        Its index among the codes, or the numbers, of a record.
    values
        A representative value for each index that `of` returns.
    """

    column: int
    values: NDArray[Any]

    @abstractmethod
    def of(self, records: NDArray[np.void]) -> ValueIndices:
        """Return the index of each row's value, as (m,)."""


class TextGrouping(GroupingColumn):
    """Distinguishes every word."""

    def of(self, records: NDArray[np.void]) -> ValueIndices:
        return np.asarray(records["codes"][:, self.column], dtype=np.int64)


class NumberGrouping(GroupingColumn):
    """Distinguishes every number of a few; missing values come last."""

    def of(self, records: NDArray[np.void]) -> ValueIndices:
        found = records["numbers"][:, self.column].astype(np.float64)
        known = self.values[:-1]
        return np.where(np.isnan(found), len(known), np.searchsorted(known, found))


@dataclass(frozen=True)
class IntervalGrouping(GroupingColumn):
    """Distinguishes the intervals between cuts, and the cuts: all that comparisons can see."""

    cuts: NDArray[np.float64]

    def of(self, records: NDArray[np.void]) -> ValueIndices:
        found = records["numbers"][:, self.column].astype(np.float64)
        side = np.searchsorted(self.cuts, found, "left") + np.searchsorted(
            self.cuts, found, "right"
        )
        return np.where(np.isnan(found), 2 * len(self.cuts) + 1, side)


def grouping_column(table: StreamedTable, name: str, cuts: Sequence[float]) -> GroupingColumn:
    """Return how a column distinguishes rows if its numbers are compared with `cuts` only."""
    column = table.columns[name]
    if column.is_text:
        place = [each.name for each in table.store.texts].index(name)
        return TextGrouping(place, np.array(column.levels, dtype=object))
    place = [each.name for each in table.store.numbers].index(name)
    assert column.numbers is not None
    if column.numbers.distinct is not None:
        return NumberGrouping(place, np.array([*column.numbers.distinct, np.nan]))
    sorted_cuts = np.unique(np.array(cuts, dtype=np.float64))
    return IntervalGrouping(place, np.array([*_interval_values(sorted_cuts), np.nan]), sorted_cuts)


def _interval_values(cuts: NDArray[np.float64]) -> list[float]:
    """Return a number for each interval: below the first cut, at it, up to the next, ..."""
    if not len(cuts):
        return [0.0]
    found = [float(np.nextafter(cuts[0], -np.inf))]
    for k, cut in enumerate(cuts):
        last = k + 1 == len(cuts)
        beyond = np.nextafter(cut, np.inf) if last else cut / 2 + cuts[k + 1] / 2
        found += [float(cut), float(beyond)]
    return found


STRETCH = 2**16
MAX_CELLS = 2**16
CELLS_VERSION = 1
WEIGHT_RANGE = (1e-9, 1e9)
"""Smallest and largest weight of a row, because sums over streamed rows use single precision."""

StretchGenerator = Callable[[int], np.random.Generator]
"""Returns the random generator that splits a stretch."""
CellIndices = NDArray[np.int64]


@dataclass(frozen=True)
class CellTable:
    """The C cells of a table: rows of one cell count alike in all rates.

    Attributes
    ----------
    path
        File with two bytes per row: the index of its cell.
    columns
        (C,) values of each column that distinguishes cells, by name.
    label, part, count, weight
        (C,) label and part of each cell, its number of rows and their total weight.
    """

    path: Path
    columns: Mapping[str, NDArray[Any]]
    label: NDArray[np.float64]
    part: NDArray[np.str_]
    count: NDArray[np.float64]
    weight: NDArray[np.float64]


@dataclass(frozen=True)
class StreamedSplit:
    """How the rows of a table are grouped into cells and split.

    Attributes
    ----------
    slices
        For each column that defines groups, the numbers that it is compared with.
    spec
        The entry's `split`.
    random
        Name of the random stream that `generator` uses, part of the cache key.
    """

    table: StreamedTable
    slices: Mapping[str, Sequence[float]]
    spec: Mapping[str, Any]
    random: str
    generator: StretchGenerator

    def cells(self) -> CellTable:
        """Return the cells, from their file or by writing it.

        Raises
        ------
        FaultError
            E205, E410 for an impossible split, E411 if there are too many groups, E413 if the file
            cannot be written.
        """
        store, label = self.table.store, self.table.roles.label
        said = [
            CELLS_VERSION,
            label,
            self.table.label_of.tolist(),
            self.table.roles.weight,
            self.random,
        ]
        said += [{name: sorted(cuts) for name, cuts in self.slices.items()}, dict(self.spec)]
        key = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]
        path = store.folder / f"cells-{key}"
        facts = path.with_suffix(".json")
        known = _read(path, facts, store)
        if known is None:
            with replace_on_success(path) as new, replace_on_success(facts) as told:
                known = self._write(new)
                told.write_text(json.dumps(known), "utf-8")
        return self._cells(path, known)

    @cached_property
    def told(self) -> dict[str, GroupingColumn]:
        """The columns that distinguish rows by name; the label is the column ''."""
        spec, roles = self.spec, self.table.roles
        # slices may also name columns of other tables
        names = [name for name in self.slices if name in self.table.columns]
        names += [spec["by"]] if "by" in spec else []
        names += [name for name in spec.get("stratify", ()) if name != "label"]
        found = (
            {"": grouping_column(self.table, roles.label, ())} if roles.label is not None else {}
        )
        for name in dict.fromkeys(names):
            column = self.table.columns.get(name)
            if column is None:
                known = did_you_mean(name, self.table.columns, "columns")
                message = f"'{name}' is not a column"
                raise FaultError(Diagnostic("E205", message, known, loc=("split",)))
            check_splits_rows(column)
            found[name] = grouping_column(self.table, name, self.slices.get(name, ()))
        return found

    @property
    def sizes(self) -> list[int]:
        return [len(each.values) for each in self.told.values()]

    def _write(self, path: Path) -> dict[str, Any]:
        """Write the cell of each row to a file, and return the description of the cells."""
        if np.prod([float(size) for size in self.sizes]) * len(SPLIT_NAMES) >= 2**62:
            raise self._too_many()
        known: dict[int, int] = {}
        count, weight = np.zeros(0), np.zeros(0)
        with path.open("wb") as file:
            for k, (places, weights) in enumerate(self._stretches()):
                key = self._key(places) * len(SPLIT_NAMES) + self._parts(places, k)
                keys, of = np.unique(key, return_inverse=True)
                ids = np.array([known.setdefault(each, len(known)) for each in keys.tolist()])
                if len(known) > MAX_CELLS:
                    raise self._too_many()
                cell = ids[of]
                file.write(array_bytes(cell.astype(CELL_DTYPE)))
                count = _add_counts(count, np.bincount(cell, minlength=len(known)))
                weight = _add_counts(weight, np.bincount(cell, weights, len(known)))
        found = {"keys": list(known), "count": count.tolist(), "weight": weight.tolist()}
        counts = dict.fromkeys(SPLIT_NAMES, 0)
        for key_of, rows in zip(known, count.tolist(), strict=True):
            counts[SPLIT_NAMES[key_of % len(SPLIT_NAMES)]] += int(rows)
        drawn_parts = "by" not in self.spec
        check_parts(counts, self.spec, tested=not drawn_parts or part_shares(self.spec)["test"] > 0)
        return found

    def _stretches(self) -> Iterator[tuple[list[CellIndices], NDArray[np.float64]]]:
        """Yield the indices of all grouping columns, and the weights, `STRETCH` rows at a time."""
        store, weighed = self.table.store, weight_column_of(self.table)
        for first in range(0, store.rows, STRETCH):
            last = min(first + STRETCH, store.rows)
            found = [
                ([each.of(records) for each in self.told.values()], weighed.of(records))
                for _, records in store.pieces(first, last)
            ]
            places = [np.concatenate(column) for column in zip(*(p for p, _ in found), strict=True)]
            weight = np.concatenate([weight for _, weight in found])
            self._check_weight(weight, first)
            yield places, weight

    def _check_weight(self, weight: NDArray[np.float64], start: int) -> None:
        """Raise E411 if a weight of the rows from `start` on is outside `WEIGHT_RANGE`."""
        low, high = WEIGHT_RANGE
        wrong = (weight < low) | (weight > high)
        if wrong.any():
            k = int(np.argmax(wrong))
            name = self.table.roles.weight
            message = f"weight column '{name}' has {weight[k]:g} in row {start + k + 1}"
            hint = f"multiply the column: weights of streamed rows lie between {low:g} and {high:g}"
            raise FaultError(Diagnostic("E411", message, hint))

    def _key(self, places: Sequence[CellIndices]) -> CellIndices:
        key = np.zeros(1, dtype=np.int64)
        for place, size in zip(places, self.sizes, strict=True):
            key = key * size + place
        return key

    def _parts(self, places: Sequence[CellIndices], k: int) -> CellIndices:
        """Return the index in `SPLIT_NAMES` of the part of each row of stretch k, as (m,)."""
        of = dict(zip(self.told, places, strict=True))
        rows = min(STRETCH, self.table.store.rows - k * STRETCH)
        if self.spec.get("official"):
            message = "a streamed table has no official split"
            raise impossible_split_error(message, "give fractions, as in 'test: 1/3'")
        if "by" in self.spec:
            return self._stated(of[self.spec["by"]])
        strata = np.zeros(rows, dtype=np.int64)
        for name in self.spec.get("stratify", ()):
            place, size = self._stratum(name, of)
            strata = strata * size + place
        shares, random = part_shares(self.spec), self.generator(k)
        if self.table.store.rows <= STRETCH:
            part = sample_parts(np.arange(rows), shares, strata, random)
            return _positions(part)
        return _split_stretch(strata, list(shares.values()), random)

    def _stratum(self, name: str, of: Mapping[str, CellIndices]) -> tuple[CellIndices, int]:
        """Return indices in the order of the values, so that strata equal those in memory."""
        if name != "label":
            return of[name], len(self.told[name].values)
        if "" not in of:
            return np.zeros(1, dtype=np.int64), 1
        order = np.nan_to_num(self.table.label_of, nan=2.0).astype(np.int64)
        return np.append(order, 2)[of[""]], 3

    def _stated(self, places: CellIndices) -> CellIndices:
        name = self.spec["by"]
        values = self.told[name].values
        wrong = [value for value in values if value not in SPLIT_NAMES]
        if wrong:
            message = f"column '{name}' holds {wrong[0]!r}, which is no part"
            raise impossible_split_error(message, "its values must be train, validation or test")
        return np.array([SPLIT_NAMES.index(value) for value in values])[places]

    def _too_many(self) -> FaultError:
        names = ", ".join(f"'{name}'" for name in self.told if name)
        message = f"the columns {names} tell more than {MAX_CELLS} kinds of streamed rows apart"
        return FaultError(
            Diagnostic("E411", message, "tell groups and strata by fewer, or by coarser ones")
        )

    def _cells(self, path: Path, known: Mapping[str, Any]) -> CellTable:
        keys, columns = np.array(known["keys"], dtype=np.int64), dict[str, NDArray[Any]]()
        part = np.array(SPLIT_NAMES)[keys % len(SPLIT_NAMES)].astype("<U10")
        keys //= len(SPLIT_NAMES)
        label = np.full(len(keys), np.nan)
        for name, each in reversed(self.told.items()):
            places = keys % len(each.values)
            keys //= len(each.values)
            if name:
                columns[name] = each.values[places]
            else:
                label = np.append(self.table.label_of, np.nan)[places]
        count, weight = (np.array(known[name], dtype=float) for name in ("count", "weight"))
        return CellTable(path, columns, label, part, count, weight)


def weight_column_of(table: StreamedTable) -> RecordWeight:
    names = [column.name for column in table.store.numbers]
    weight = table.roles.weight
    return RecordWeight(None if weight is None else names.index(weight))


def _positions(part: NDArray[np.str_]) -> CellIndices:
    return np.select([part == name for name in SPLIT_NAMES], range(len(SPLIT_NAMES)))


def _split_stretch(
    strata: CellIndices, shares: Sequence[Fraction], random: np.random.Generator
) -> CellIndices:
    """Split a stretch: each part gets its share of every stratum, rounded up or down at random.

    The rounding makes the shares exact on average.
    """
    ends = np.cumsum([float(share) for share in shares])
    found = np.empty(len(strata), dtype=np.int64)
    for value in np.unique(strata):
        members = random.permutation(np.flatnonzero(strata == value))
        upto = np.floor(len(members) * ends + random.random()).astype(np.int64)
        upto[-1] = len(members)
        upto = np.minimum(upto, len(members))
        found[members] = np.repeat(np.arange(len(shares)), np.diff(upto, prepend=0))
    return found


def _add_counts(total: NDArray[np.float64], more: NDArray[Any]) -> NDArray[np.float64]:
    found = np.array(more, dtype=np.float64)
    found[: len(total)] += total
    return found


def _read(path: Path, facts: Path, store: RecordStore) -> dict[str, Any] | None:
    try:
        known: dict[str, Any] = json.loads(facts.read_text("utf-8"))
        size = path.stat().st_size
    except (OSError, ValueError):
        return None
    return known if size == store.rows * CELL_DTYPE.itemsize and "keys" in known else None
