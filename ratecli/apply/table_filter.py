"""Learn a filter on the user's own table and keep a sample of its rows.

The method is that of Deng, Diana, Kearns and Roth (2023).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from ratecli import files as fs
from ratecli.apply.predict import PredictResult, StoredModel, encoder_json, predict_table
from ratecli.config.dataset import MISSING_IS_ERROR
from ratecli.config.document import Document
from ratecli.datasets import tables as own
from ratecli.datasets.files import sha256_of
from ratecli.datasets.tables import format_of_output, read_table_file, table_bytes
from ratecli.datasets.text_format import PLAIN, TextFormat
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.filters import (
    MAIN_VARIANT,
    empty_group_warning,
    filter_alone,
    why_unusable,
)
from ratecli.experiment.prepare import prepare_document
from ratecli.ledger.records import FILTERS_KEY, PlannedTrial, TrialResult, is_violated
from ratecli.models.storage import loads
from ratecli.rates.syntax import value_text
from ratecli.render import text_table
from ratecli.runner.trial import run_trial
from ratecli.sampling.encoding import Encoding
from ratecli.sampling.summaries import few_kept_warning

MAIN_MODEL_FILE = f"{MAIN_VARIANT}.npz"
SPLIT_TITLES = {"train": "training rows", "test": "held-out rows"}
REPORT_DIGITS = 10
"""Decimal places of numbers in the report."""
IMBALANCE_TOLERANCE = 1e-6
"""The imbalance must decrease by at least this much to count as an improvement."""
GroupShares = Mapping[str, Mapping[str, float]]
"""The share of each group, by column."""


@dataclass(frozen=True)
class FilterRequest:
    """A table to filter and the options of the filter.

    Attributes
    ----------
    table, form
        A CSV or Parquet file, and how it writes rows and numbers.
    by
        The columns whose values are to be balanced and kept secret.
    disclosivity
        Upper limit on how much the filter's output for a training row may change the probability
        of any of these values.
    algorithm, kept
        The filter's name, and the minimum share of the training rows to keep; None for a tenth.
        Filters without this option ignore it.
    drop
        Further columns that the filter must not use.
    missing
        How to handle missing numbers in feature columns: `error` or `mean`, as in experiment files.
    test
        The share of rows to hold out from training, at least 0 and below 1, as text.
    seed
        Determines which rows are held out and which are kept.
    output
        File for the kept rows; None returns their bytes instead.
    folder
        Folder for the filter; None does not store it.
    """

    table: Path
    by: tuple[str, ...]
    disclosivity: float = 0.1
    algorithm: str = "balanced_tree"
    kept: float | None = None
    drop: tuple[str, ...] = ()
    missing: str = MISSING_IS_ERROR
    test: str = "0"
    seed: int = 0
    form: TextFormat = PLAIN
    output: Path | None = None
    folder: Path | None = None


def learn_table_filter(request: FilterRequest) -> PredictResult:
    """Learn a filter on the rows of a table and sample the rows to keep.

    No file is written if an error is raised.

    Raises
    ------
    FaultError
        E104, E202 for invalid options, E404, E405 for a table that cannot be read, E205, E407,
        E408, E410, E411 for invalid columns, E501 if the filter reveals too much or keeps no row,
        E505 if an output cannot be written.
    """
    path, output = request.table, request.output
    file, table = read_table_file(path, request.form)
    format_of_output(path, output)  # raises its errors before the filter is learned
    if output is not None and not output.absolute().parent.is_dir():
        raise FaultError(fs.write_failed_error(output, "its folder does not exist"))
    _check_folder(request.folder)
    planned, result, warnings = _train_filter(request)
    groups = own.typed_columns(file, table, request.by, ())
    empty = [fault for name in request.by for fault in empty_group_warning(name, groups[name])]
    model = _model(request, planned, result)
    predicted, row_warnings = predict_table(model, file, table, request.seed)
    kept = predicted.columns["kept"] == 1
    if not kept.any():
        message = f"none of {table.num_rows} rows is kept with --seed {request.seed}"
        raise FaultError(Diagnostic("E501", message, "keep a larger share, such as --kept 0.2"))
    rows = table.filter(pa.array(kept))
    report = _filter_report(planned, result, request.disclosivity, groups[kept].map(_as_word))
    content = table_bytes(rows, file, output)
    files: dict[Path, str | bytes] = {} if output is None else {output: content}
    if folder := request.folder:
        stored = _files(request, planned, result, report)
        files |= {folder / name: data for name, data in stored.items()}
        with fs.report_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    fs.atomic_write_all(files)
    warned = (*empty, *warnings, *row_warnings, *_filter_warnings(report))
    summary = _summary(request, report, len(kept))
    return PredictResult(summary, warned, content if output is None else None)


def _check_folder(folder: Path | None) -> None:
    """Raise E104 if writing the filter to this folder would overwrite something else."""
    if folder is None or not folder.exists():
        return
    message = "" if folder.is_dir() else f"'{folder}' is not a folder"
    if (folder / fs.ENCODER_FILE).exists() and not (folder / fs.FILTER_FILE).exists():
        message = f"'{folder}' holds the models of a trial, which would be overwritten"
    if message:
        raise FaultError(Diagnostic("E104", message, "name another folder with --filter"))


def _as_word(value: Any) -> str:
    """Return a value as text, "" if it is missing."""
    if pd.isna(value):
        return ""
    return value if isinstance(value, str) else value_text(float(value))


def _train_filter(
    request: FilterRequest,
) -> tuple[PlannedTrial, TrialResult, tuple[Diagnostic, ...]]:
    """Run the only trial of an experiment about the table; return it with its result and warnings.

    Locations in the generated experiment file are removed from errors and warnings.
    """
    document = Document.of_data(_experiment(request), request.table.absolute())
    try:
        known = prepare_document(document)
        (task,) = known.plan.tasks
        result = run_trial(task.payload, {})
    except FaultError as error:
        raise FaultError(dict.fromkeys(map(_without_location, error.faults))) from None
    return known.plan.planned[0], result, tuple(map(_without_location, known.warnings))


def _without_location(fault: Diagnostic) -> Diagnostic:
    """Return the diagnostic without a location: the user did not write the file that it names."""
    return replace(fault, place=None, span=None, loc=())


def _experiment(request: FilterRequest) -> dict[str, object]:
    """Return the content of an experiment about the table. The filter uses no label."""
    path = request.table.absolute()
    test: str | float = request.test.replace(" ", "")
    with suppress(ValueError):  # a fraction such as 1/3 remains text
        test = float(test)
    table = {
        "path": path,
        "sha256": sha256_of(path),
        **request.form.stated(),
        "drop": list(dict.fromkeys([*request.by, *request.drop])),
        "missing": request.missing,
        "split": {"test": test, "stratify": list(request.by)},
    }
    options, goals = filter_alone(request.algorithm, request.by, request.disclosivity, request.kept)
    algorithms = [{request.algorithm: options}]
    data = {"name": "filter", "datasets": {"table": table}, "seeds": [request.seed]}
    return data | {"algorithms": algorithms} | goals


def _model(request: FilterRequest, planned: PlannedTrial, result: TrialResult) -> StoredModel:
    """Return the filter. Raise E501 if none was found or if it exceeds the disclosivity limit."""
    metric, disclosed = planned.metrics["disclosivity"], None
    if MAIN_VARIANT in result.models:
        values = {(each.split, each.metric): each.value for each in result.values}
        disclosed = values["train", metric]
    ending = result.reason or result.status
    if why := why_unusable(request.algorithm, disclosed, request.disclosivity, ending):
        raise FaultError(Diagnostic("E501", why))
    encoding = Encoding.from_json(json.loads(result.encoding))
    return StoredModel(MAIN_MODEL_FILE, loads(result.models[MAIN_VARIANT]), encoding)


def _files(
    request: FilterRequest, planned: PlannedTrial, result: TrialResult, report: Mapping[str, Any]
) -> dict[str, str | bytes]:
    """Return the files of a stored filter by name."""
    stated = ("by", "algorithm", "missing", "test", "seed")
    record = {"table": request.table.name} | {key: getattr(request, key) for key in stated}
    record["options"] = dict(planned.options)
    model = result.models[MAIN_VARIANT]
    names = {MAIN_VARIANT: MAIN_MODEL_FILE}
    return {
        MAIN_MODEL_FILE: model,
        **encoder_json(planned, result.encoding, names, {MAIN_VARIANT: model}),
        fs.FILTER_FILE: json.dumps({**record, **report}, indent=1, ensure_ascii=False) + "\n",
    }


def _filter_report(
    planned: PlannedTrial, result: TrialResult, limit: float, kept: pd.DataFrame
) -> dict[str, Any]:
    """Return the report on a filter's trial, as JSON data.

    `expected` has the effect on each split; its `after` are the groups among the rows that are
    expected to be kept, None if none are. `sample` are the rows that were kept; `kept` has their
    groups.
    """
    columns = result.info[FILTERS_KEY][MAIN_VARIANT]["columns"]
    values = {(v.split, v.metric): round(v.value, REPORT_DIGITS) for v in result.values}

    def groups(split: str, which: str) -> dict[str, Any] | None:
        shares = {name: found["splits"][split][which] for name, found in columns.items()}
        if None in shares.values():
            return None
        names = {name: found["groups"] for name, found in columns.items()}
        return _with_imbalance(
            {name: dict(zip(names[name], each, strict=True)) for name, each in shares.items()}
        )

    expected = {
        split: {
            "rows": rows,
            **{name: values[split, planned.metrics[name]] for name in ("kept", "disclosivity")},
            "before": groups(split, "base"),
            "after": groups(split, "after"),
        }
        for split, rows in result.info["rows"].items()
    }
    shares = {
        name: kept[name][kept[name] != ""].value_counts(normalize=True).reindex(found["groups"])
        for name, found in columns.items()
    }
    share = round(len(kept) / sum(result.info["rows"].values()), REPORT_DIGITS)
    sampled = _with_imbalance({name: each.fillna(0.0).to_dict() for name, each in shares.items()})
    return {
        "limit": limit,
        "features": [block["column"] for block in json.loads(result.encoding)["blocks"]],
        "expected": expected,
        "sample": {"rows": len(kept), "kept": share} | sampled,
    }


def _with_imbalance(shares: GroupShares) -> dict[str, Any]:
    """Return the shares, and the Euclidean distance of all shares from equal shares."""
    away = [share - 1 / len(each) for each in shares.values() for share in each.values()]
    rounded = {
        name: {group: round(share, REPORT_DIGITS) for group, share in each.items()}
        for name, each in shares.items()
    }
    return {"imbalance": round(math.hypot(*away), REPORT_DIGITS), "shares": rounded}


def _summary(request: FilterRequest, report: Mapping[str, Any], rows: int) -> str:
    """Return what was kept of so many rows and the effect of the filter.

    The table has each group's share, the imbalance, the share kept, and the disclosivity.
    """
    sample, expected = report["sample"], report["expected"]
    groups = [f"{name} = {group}" for name, each in sample["shares"].items() for group in each]
    last = f"disclosivity, at most {report['limit']:g}"
    columns = [["", *groups, "imbalance", "kept", last]]
    for name, part in expected.items():
        title = SPLIT_TITLES[name] if len(expected) > 1 else "all rows"
        columns.append([title, *_share_cells(part["before"], len(groups)), "", ""])
        effect = (f"{part[key]:.4f}" for key in ("kept", "disclosivity"))
        columns.append(["expected", *_share_cells(part["after"], len(groups)), *effect])
    columns.append(["sampled", *_share_cells(sample, len(groups)), f"{sample['kept']:.4f}", ""])
    heads, *lines = map(list, zip(*columns, strict=True))
    kept = f"{sample['rows']} of {rows} row{'s' * (rows != 1)} kept, sampled with --seed"
    shown = [
        f"{request.output or request.table}: {kept} {request.seed}",
        text_table(heads, lines, heads[1:]),
        f"inputs of {request.algorithm}: {', '.join(report['features'])}",
    ]
    if request.folder is not None:
        command = fs.shell_command("predict", request.folder, "NEW.csv")
        shown.append(f"to apply the filter to other rows: {command}")
    return "\n".join(shown)


def _share_cells(groups: Mapping[str, Any] | None, count: int) -> list[str]:
    """Return the cells of `count` shares and of the imbalance."""
    if groups is None:
        return [""] * (count + 1)
    shares = [share for each in groups["shares"].values() for share in each.values()]
    return [f"{value:.4f}" for value in (*shares, groups["imbalance"])]


def _filter_warnings(report: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Warn if most of the imbalance is left (W407), few rows are kept (W412), or held-out rows
    exceed the limit (W402).
    """
    limit, expected = report["limit"], report["expected"]
    train, test = expected["train"], expected.get("test")
    was, left = (each["imbalance"] if each else 0 for each in (train["before"], train["after"]))
    if left > max(was / 2, IMBALANCE_TOLERANCE):
        message = (
            f"most of the imbalance is left: it was {was:.4f} and is {left:.4f} with the best "
            f"filter that was found at a disclosivity of at most {limit:g}"
        )
        hint = "allow more, or add columns that are related to the groups"
        yield Diagnostic("W407", message, hint)
    yield from few_kept_warning(train["kept"], "--kept 0.3 with balanced_tree or qp_proxy")
    if test is not None and is_violated(test["disclosivity"], limit, undefined=False):
        message = (
            f"disclosivity is {test['disclosivity']:.4f} on held-out rows, above the limit of "
            f"{limit:g}, which holds on the training rows only"
        )
        yield Diagnostic("W402", message, "allow less, or train on more rows")
