"""A filter learned on a table of one's own, and the rows that it keeps (Deng, Diana, Kearns, Roth 2023)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from ratecli.apply.encoder_files import encoder_file
from ratecli.apply.filter_report import Told, imbalance, told
from ratecli.apply.predict import answered
from ratecli.apply.stored import Stored
from ratecli.apply.table_filter_checks import (
    WITHOUT_LEAST,
    check_columns,
    check_options,
    check_place,
)
from ratecli.config.document import Document
from ratecli.datasets import tables as own
from ratecli.datasets.download import sha256_of
from ratecli.datasets.missing import ERROR, FILL_OR_MEAN
from ratecli.datasets.table_files import content, format_of_output, table_of
from ratecli.errors import Fault, FaultError
from ratecli.experiment.prepare import prepared
from ratecli.files import FILTER, write_together, writing
from ratecli.ledger.records import MET, Planned, TrialResult
from ratecli.models.storage import loads
from ratecli.rates.syntax import number, quoted
from ratecli.runner.trial import run_trial
from ratecli.sampling.encoding import Encoding

MAIN = "expected"
"""The variant that a filter's trial leaves."""
FILE = f"{MAIN}.npz"
NO_NEARER = 1e-6
"""By less than this imbalance is not less."""
KEPT = 0.1
"""Least share of rows to keep where nobody says: of a sample of hardly any rows there is little use."""
WAYS = {
    "E407": "correct the values, or leave the column out with --drop",
    FILL_OR_MEAN: "say --missing mean, fill in the values, or leave the column out with --drop",
    "E411": "correct it, or leave the column out with --drop",
}
"""Out of what is wrong with features, by code or by what a file would say."""


@dataclass(frozen=True)
class Wanted:
    """What is to be filtered, and how.

    Attributes
    ----------
    table, separator
        A CSV or Parquet file; what separates the columns of a CSV, None for what its name promises.
    by
        The columns whose values are to have equal shares and are kept secret.
    disclosivity
        By how much what the filter says of a training row may shift the chance of any of these values.
    algorithm, kept
        A filter's name, and the least share of the training rows that is to be kept; None is `KEPT`, and
        nothing for a filter that keeps what it keeps.
    drop
        Further columns that the filter is not to look at.
    missing
        What a missing number of a column is that it looks at: `error`, or `mean` as in a file.
    test
        The share of the rows that the filter is not learned on, from 0 to below 1, as text.
    seed
        Decides which rows are held out and which are kept.
    output
        Where the rows go that are kept; None: their bytes are given back.
    folder
        Where the filter goes; None: nowhere.
    """

    table: Path
    by: tuple[str, ...]
    disclosivity: float = 0.1
    algorithm: str = "balanced_tree"
    kept: float | None = None
    drop: tuple[str, ...] = ()
    missing: str = ERROR
    test: str = "0"
    seed: int = 0
    separator: str | None = None
    output: Path | None = None
    folder: Path | None = None

    @property
    def options(self) -> dict[str, float]:
        """The filter's, as a file would have them."""
        if self.algorithm == WITHOUT_LEAST:
            return {}
        return {"kept": KEPT if self.kept is None else self.kept}


@dataclass(frozen=True)
class Filtered:
    """What came of it: what is told of it, warnings, and the bytes of the rows kept if they are in no file."""

    told: Told
    warnings: tuple[Fault, ...]
    content: bytes | None = None


def filtered(wanted: Wanted) -> Filtered:
    """Learn a filter on the rows of a table and draw by it whom to keep.

    Raises
    ------
    FaultError
        E104, E202 for what cannot be asked for, E404, E405 where the table is none, E205, E407, E408, E410,
        E411 where its columns do not do, E501 where the filter tells too much or keeps no row, E505 where
        nothing can be written. Nothing is then written.
    """
    check_options(wanted.algorithm, wanted.disclosivity, wanted.kept, wanted.test, wanted.missing)
    path, separator = wanted.table, wanted.separator
    between = own.separator_of(path) if separator is None else separator
    table = table_of(path, between)
    form = format_of_output(path, wanted.output)
    if wanted.folder is not None:
        check_place(wanted.folder)
    groups, warnings = check_columns(path, table, wanted.by, wanted.drop)
    planned, result, more = _trained(wanted, between)
    model = _model(wanted, planned, result)
    answers, surprises = answered(model, path, table, wanted.seed)
    kept = answers.columns["kept"] == 1
    if not kept.any():
        message = f"of {table.num_rows} rows none is kept with --seed {wanted.seed}"
        raise FaultError(Fault("E501", message, "ask for more of them, as in --kept 0.2"))
    found = told(planned, result, wanted.disclosivity, groups, kept)
    rows = content(table.filter(pa.array(kept)), wanted.table, form, _between(wanted))
    summary = found.as_json(_asked(wanted))
    _write(wanted, rows, {**_files(planned, result), FILTER: summary})
    warned = (*warnings, *more, *surprises, *_doubts(found))
    return Filtered(found, warned, rows if wanted.output is None else None)


def _trained(wanted: Wanted, between: str) -> tuple[Planned, TrialResult, tuple[Fault, ...]]:
    """The one trial of an experiment about the table, and warnings; places in it mean nothing to anybody."""
    document = Document.of_text(
        json.dumps(_experiment(wanted, between), ensure_ascii=False), wanted.table.absolute()
    )
    try:
        known = prepared(document)
        (task,) = known.plan.tasks
        result = run_trial(task.payload, {})
    except FaultError as error:
        raise FaultError(_plain(fault) for fault in error.faults) from None
    return known.plan.planned[0], result, tuple(map(_plain, known.warnings))


def _plain(fault: Fault) -> Fault:
    way = WAYS.get(fault.help or "") or WAYS.get(fault.code, fault.help)
    return replace(fault, place=None, span=None, help=way)


def _experiment(wanted: Wanted, between: str) -> dict[str, object]:
    """What a file would say; the label is none of the filter's business."""
    path = wanted.table.absolute()
    kind, test = own.format_of(path), wanted.test.replace(" ", "")
    limit = wanted.disclosivity  # of 1, which always holds, there is no rule
    columns = ", ".join(map(quoted, wanted.by))
    by = f"by=({columns})" if len(wanted.by) > 1 else f"by={columns}"
    table = {
        "path": str(path),
        "sha256": sha256_of(path),
        **({"separator": between} if kind == "csv" else {}),
        "drop": list(dict.fromkeys([*wanted.by, *wanted.drop])),
        "missing": wanted.missing,
        "split": {"test": test if "/" in test else float(test), "stratify": list(wanted.by)},
    }
    return {
        "name": "filter",
        "datasets": {"table": table},
        "objective": f"imbalance({by})",
        "constraints": {"secret": f"disclosivity({by}) <= {number(limit)}"} if limit < 1 else {},
        "algorithms": [{wanted.algorithm: wanted.options}],
        "seeds": [wanted.seed],
        "metrics": {"disclosivity": f"disclosivity({by})", "kept": "positive_rate"},
    }


def _model(wanted: Wanted, planned: Planned, result: TrialResult) -> Stored:
    """Raises E501 where no filter was found, or one that tells more than it may."""
    name = wanted.algorithm
    if MAIN not in result.models:
        raise FaultError(Fault("E501", f"{name} found no filter: {result.reason or result.status}"))
    metric = planned.metrics["disclosivity"]
    said = next(v.value for v in result.values if (v.split, v.metric) == ("train", metric))
    if not said <= wanted.disclosivity + MET:
        message = (
            f"what {name} says of a row shifts the chance of its group by up to {said:.4f}, "
            f"more than {wanted.disclosivity:g}"
        )
        way = "balanced_tree keeps to what --disclosivity allows; or allow more"
        raise FaultError(Fault("E501", message, way))
    encoding = Encoding.from_json(json.loads(result.encoding))
    return Stored(Path(FILE), loads(result.models[MAIN]), encoding)


def _files(planned: Planned, result: TrialResult) -> Mapping[str, bytes]:
    models = {MAIN: result.models[MAIN]}
    return {FILE: models[MAIN]} | encoder_file(planned, result.encoding, {MAIN: FILE}, models)


def _asked(wanted: Wanted) -> dict[str, object]:
    return {
        "table": wanted.table.name,
        "by": list(wanted.by),
        "algorithm": wanted.algorithm,
        "options": wanted.options,
        "missing": wanted.missing,
        "test": wanted.test,
        "seed": wanted.seed,
    }


def _between(wanted: Wanted) -> str:
    """What separates the columns of what is written."""
    if wanted.separator is not None:
        return wanted.separator
    return own.separator_of(wanted.output or wanted.table)


def _write(wanted: Wanted, rows: bytes, files: Mapping[str, str | bytes]) -> None:
    """Rows and filter, or neither."""
    every: dict[Path, str | bytes] = {} if wanted.output is None else {wanted.output: rows}
    folder, made = wanted.folder, list[Path]()
    try:
        if folder is not None:
            every |= {folder / name: data for name, data in files.items()}
            above = (folder, *folder.parents)
            absent = [each for each in above if not each.exists()]
            with writing(folder):
                for each in reversed(absent):
                    each.mkdir()
                    made.append(each)
        write_together(every)
    except FaultError:
        for each in reversed(made):
            with writing(each):
                each.rmdir()
        raise


def _doubts(found: Told) -> Iterator[Fault]:
    """A W407 where the groups are no more balanced than before, a W402 where more is told of held-out rows."""
    train, test = found.parts["train"], found.parts.get("test")
    if train.after is not None and imbalance(train.after) > imbalance(train.before) - NO_NEARER:
        message = f"no filter was found that balances groups at a disclosivity of {found.limit:g}"
        yield Fault("W407", message, "allow more, or give columns that tell more of the groups")
    if test is not None and test.disclosivity > found.limit + MET:
        message = (
            f"disclosivity is {test.disclosivity:.4f} on held-out rows, more than {found.limit:g}: it is "
            "kept on training rows"
        )
        yield Fault("W402", message, "allow less, or learn on more rows")
