"""The rows of a seed of a streamed data set, of which only cells are in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ratecli.errors import Fault, FaultError
from ratecli.ledger.keys import stream
from ratecli.rates.sample import Sample
from ratecli.sampling.deployed_column import decisions_in
from ratecli.sampling.encoding import Encoding
from ratecli.streaming.encode import with_features
from ratecli.streaming.split import Deal
from ratecli.streaming.stream_protocol import Stream
from ratecli.streaming.table import Streamed, streamed_table
from ratecli.streaming.writing import Tell

Written = Callable[[str, int, int | None], None]
"""Told of a data set how many of its rows are records, and how many there are, None if that is not known."""


@dataclass(frozen=True)
class StreamedRows:
    """Cells as a sample, the rows in them, and how features are made of columns, as JSON."""

    sample: Sample
    stream: Stream
    encoding: str


@dataclass(frozen=True)
class _Heard:
    """Who is told while records are written: no other table for that."""

    tell: Tell | None = field(compare=False)


def streamed_table_of(entry: str, base: str, tell: Tell | None = None) -> Streamed:
    """The table of an entry of `datasets:`, as JSON; of rows that become records it is told."""
    return _table_of(entry, base, _Heard(tell))


@lru_cache(maxsize=8)
def _table_of(entry: str, base: str, heard: _Heard) -> Streamed:
    return streamed_table(json.loads(entry), Path(base), heard.tell)


def check_memory(name: str, table: Streamed, bound: int | None) -> None:
    """Raises E412 for a table that takes more than `bound` bytes to read piece by piece."""
    if bound is None or table.memory <= bound:
        return
    message = (
        f"to read '{name}' piece by piece takes about {table.memory / 2**20:.0f} MiB, and a trial may "
        f"take {bound / 2**20:.0f}"
    )
    hint = "say limits: {memory: ...} of more, or leave out columns: drop: [...]"
    raise FaultError(Fault("E412", message, hint))


def streamed_rows(
    name: str, entry: str, base: str, seed: int, deployed: str | None
) -> StreamedRows:
    """The rows of the data set `name`; `deployed` names the column of a deployed model's decisions.

    Raises
    ------
    FaultError
        E205, E406, E410, E411, E413.
    """
    options, table = json.loads(entry), streamed_table_of(entry, base)
    spec = options.get("split", {})
    own = spec.get("seed", seed)

    def random(stretch: int) -> np.random.Generator:
        return stream(own, "split", name, *([str(stretch)] if stretch else []))

    slices = options.get("slices", {})
    if deployed is not None:
        slices = {**slices, deployed: [0.0, 1.0, *slices.get(deployed, ())]}
    cells = Deal(table, slices, spec, f"{own} {name}", random).cells()
    rows, encoder = with_features(table, cells)
    sample = Sample(
        columns={each: _as_column(values) for each, values in cells.columns.items()},
        label=cells.label,
        dataset=np.full(len(cells.label), name),
        part=cells.part,
        weight=cells.weight,
        count=cells.count,
    )
    if deployed is not None:
        sample = sample.with_deployed(decisions_in(sample.columns[deployed], deployed))
    others = {each: kind for each, kind in table.kinds.items() if each not in encoder.kinds}
    return StreamedRows(sample, rows, Encoding(encoder, others).text())


def _as_column(values: Any) -> Any:
    return values if values.dtype == object else values.astype(float)
