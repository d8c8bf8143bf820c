"""What `ratecli filter` refuses before anything is learned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ratecli.apply.filter_report import GroupColumns
from ratecli.datasets import tables as own
from ratecli.datasets.columns import as_float_array, is_text
from ratecli.datasets.missing import MISSING_IS_ERROR, MISSING_TO_MEAN
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.files import ENCODER_FILE, FILTER_FILE
from ratecli.rates.resolve import MAX_VALUES
from ratecli.rates.syntax import number_text

FILTER_ALGORITHMS = ("balanced_tree", "qp_proxy", "naive_proxy")
WITHOUT_MIN_KEPT = "naive_proxy"
"""The filter that is not told how much to keep."""
MAX_DISTINCT_SHARE = 0.5
"""Share of different words from which on a column tells rows, and not what they are like."""


def check_filter_options(
    algorithm: str,
    disclosivity: float,
    kept: float | None,
    test: str,
    missing: str = MISSING_IS_ERROR,
) -> None:
    """Raises E202 for a filter that there is none of, E104 for what means nothing."""
    if algorithm not in FILTER_ALGORITHMS:
        hint = did_you_mean(algorithm, FILTER_ALGORITHMS, "filters")
        raise FaultError(Diagnostic("E202", f"no filter is called '{algorithm}'", hint))
    faults = [*_no_share("--disclosivity", disclosivity), *_no_share("--kept", kept)]
    if not _is_share_of_rows(test):
        message = f"--test must be a share of the rows, from 0 to below 1, not '{test}'"
        faults.append(Diagnostic("E104", message, "write 0.25 or 1/4"))
    if missing not in {MISSING_IS_ERROR, MISSING_TO_MEAN}:
        hint = did_you_mean(missing, (MISSING_IS_ERROR, MISSING_TO_MEAN), "values")
        faults.append(Diagnostic("E104", f"--missing must be error or mean, not '{missing}'", hint))
    if algorithm == WITHOUT_MIN_KEPT and kept is not None:
        message = f"{WITHOUT_MIN_KEPT} keeps as many rows of each guess as of the rarest: --kept does nothing"
        faults.append(
            Diagnostic("E104", message, "leave it out, or take qp_proxy or balanced_tree")
        )
    if faults:
        raise FaultError(faults)


def _no_share(option: str, value: float | None) -> Iterator[Diagnostic]:
    if value is not None and not 0 <= value <= 1:
        yield Diagnostic("E104", f"{option} must be from 0 to 1, not {value:g}")


def _is_share_of_rows(text: str) -> bool:
    try:
        return 0 <= Fraction(text.replace(" ", "")) < 1
    except (ValueError, ZeroDivisionError):
        return False


def check_output_folder(folder: Path) -> None:
    """Raises E104 where a filter's folder would take the place of something else."""
    if folder.exists() and not folder.is_dir():
        raise FaultError(
            Diagnostic("E104", f"'{folder}' is no folder", "name another with --filter")
        )
    if (folder / ENCODER_FILE).exists() and not (folder / FILTER_FILE).exists():
        message = f"'{folder}' holds the models of a trial, which could not be applied any more"
        raise FaultError(Diagnostic("E104", message, "name another folder with --filter"))


def check_filter_columns(
    path: Path, table: pa.Table, by: Sequence[str], drop: Sequence[str]
) -> tuple[GroupColumns, list[Diagnostic]]:
    """The groups of all rows, and a W406 for each column whose words tell rows rather than kinds of them.

    Raises
    ------
    FaultError
        E205 for columns that are not there, E104 for one named twice, E411 for one that makes no groups or
        where no column is left to look at.
    """
    names = list(table.column_names)
    named = [("--by", name) for name in by] + [("--drop or --label", name) for name in drop]
    faults = [
        Diagnostic("E205", f"there is no column '{name}', which {option} names",
              did_you_mean(name, names, "columns"))
        for option, name in dict.fromkeys(named)
        if name not in names
    ]  # fmt: skip
    twice = [name for k, name in enumerate(by) if name in by[:k]]
    faults += [Diagnostic("E104", f"--by names '{name}' twice") for name in dict.fromkeys(twice)]
    if faults:
        raise FaultError(faults)
    seen = [name for name in names if name not in {*by, *drop}]
    if not seen:
        message = "no column is left by which the filter could tell whom to keep"
        raise FaultError(Diagnostic("E411", message, f"columns: {', '.join(names)}"))
    frame = own.typed_columns(path, table.select(list(by)), by, ())
    faults = [fault for name in by for fault in _no_groups(frame[name], name)]
    if faults:
        raise FaultError(faults)
    groups = {name: _words(frame[name]) for name in by}
    return groups, list(_row_id_columns(own.typed_columns(path, table.select(seen), seen, ())))


def _no_groups(column: pd.Series, name: str) -> Iterator[Diagnostic]:
    gone = column.isna() if is_text(column) else pd.Series(~np.isfinite(as_float_array(column)))
    if gone.any():
        row, count = int(np.flatnonzero(gone)[0]) + 1, int(gone.sum())
        all_ = f", and in {count} rows in all" if count > 1 else ""
        message = f"column '{name}' has no value in row {row}{all_}: the group is not known there"
        yield Diagnostic(
            "E411", message, "leave such rows out, or give them a value such as 'unknown'"
        )
        return
    values = column.unique()
    if len(values) == 1:
        message = f"column '{name}' has one value only, '{_words(column).iloc[0]}'"
        yield Diagnostic("E411", message, "name a column of two groups or more")
    elif len(values) > MAX_VALUES:
        message = f"column '{name}' has {len(values)} values, and groups are at most {MAX_VALUES}"
        yield Diagnostic(
            "E411", message, "add a column that puts its values together, and name that"
        )


def _words(column: pd.Series) -> pd.Series:
    return column if is_text(column) else column.map(lambda value: number_text(float(value)))


def _row_id_columns(frame: pd.DataFrame) -> Iterator[Diagnostic]:
    for name, column in frame.items():
        if is_text(column) and column.nunique() > max(MAX_VALUES, MAX_DISTINCT_SHARE * len(column)):
            message = (
                f"column '{name}' has {column.nunique()} words in {len(column)} rows: what is learned of "
                "them says nothing of new rows"
            )
            yield Diagnostic(
                "W406", message, f"names and numbers of rows are best left out: --drop {name}"
            )
