"""Which rows are in the slices that a classifier looks at, when it decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.rates.expression import Slice
from ratecli.rates.parser import parse_conditions
from ratecli.rates.sample import Mask, Sample


def slice_memberships(sample: Sample, slices: Sequence[str]) -> list[Mask]:
    """Which rows are in each slice: S masks (n,).

    Raises
    ------
    FaultError
        E411 for a column that the rows do not have, or words where a slice compares numbers; E301 or
        E302 where a text is no condition at all.
    """
    wheres = [Slice.of((), parse_conditions(text)) for text in slices]
    faults = list(
        dict.fromkeys(fault for where in wheres for fault in _check_slice_columns(sample, where))
    )
    if faults:
        raise FaultError(faults)
    return [sample.rows(where) for where in wheres]


def _check_slice_columns(sample: Sample, where: Slice) -> Iterator[Diagnostic]:
    for condition in where.conditions:
        column = sample.columns.get(condition.column)
        start = f"the classifier looks at whether a row has '{condition}', and"
        if column is None:
            hint = did_you_mean(condition.column, sample.columns, "columns")
            yield Diagnostic("E411", f"{start} there is no column '{condition.column}'", hint)
        elif condition.op not in {"=", "!="} and column.dtype.kind != "f":
            yield Diagnostic("E411", f"{start} '{condition.column}' holds words")
