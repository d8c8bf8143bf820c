"""The model to use: the setting that an experiment chose, trained once more on all rows."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratecli import files as fs
from ratecli.apply.export import FORMATS
from ratecli.apply.predict import load_applicable_model
from ratecli.config.document import Document
from ratecli.config.sweep import has_values
from ratecli.datasets.files import DownloadProgress
from ratecli.errors import Diagnostic, FaultError, unknown_name
from ratecli.experiment.prepare import PreparedExperiment, check_document, prepare_data
from ratecli.ledger.locks import lock_results
from ratecli.ledger.records import EXPECTED_KEY, PlannedTrial, is_violated
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import Ledger
from ratecli.report import sheet as st
from ratecli.report.answer import (
    Answer,
    Task,
    TestVerdict,
    answer_of,
    answer_split,
    goal_of,
    planned_tasks,
)
from ratecli.report.answer_text import closest_lines, point_options, setting_lines
from ratecli.report.card import model_card, rows_left_out
from ratecli.report.write import trial_files
from ratecli.runner.executors import parse_executor
from ratecli.runner.run import RunRequest, run_experiments
from ratecli.sampling.deployed import check_model_preserved

USABLE = frozenset({"ok", "iteration_limit"})
"""Statuses of trials whose model can be used."""


@dataclass(frozen=True)
class FinalModel:
    """A model that was trained on all rows.

    Attributes
    ----------
    folder
        The model, its encoder and card, its exports, and the record of its training.
    lines
        What was trained, and what the experiment lets expect of it.
    exports
        Names of the exported files, and why a format has none.
    applies
        Whether `predict` can apply it to a table.
    """

    folder: Path
    lines: Sequence[str]
    exports: Sequence[str]
    applies: bool


def fit_model(
    document: Document,
    output: Path,
    at: Task | None = None,
    algorithm: str | None = None,
    *,
    offline: bool = False,
    progress: DownloadProgress | None = None,
    quiet: bool = True,
    command: Sequence[str] = (),
) -> FinalModel:
    """Train the answer of an experiment on all rows and write it to `output`/NAME/model.

    The setting is the answer of the experiment's run at the values `at`, or at the file's goal; of
    all algorithms, or of the one with the label `algorithm`. It is trained with its first seed, and
    `holds` applies as in the run. Rows of the test part are trained on; validation rows and rows of
    a safety test keep their roles.

    Raises
    ------
    FaultError
        E503 if there are no results, E104 if `at` or `algorithm` is unknown, E507 if the file has
        changed since the run, E510 if no model is expected to satisfy the constraints.
    """
    checked = check_document(document)
    folder = output / checked.experiment.name
    target, experiment = folder / fs.MODEL_FOLDER, checked.experiment
    with lock_results(folder) if folder.is_dir() else nullcontext():
        if not (folder / fs.LEDGER_FILE).is_file():
            hint = f"run it first: `{checked.command('run', folder)}`"
            raise FaultError(Diagnostic("E503", f"nothing is stored yet in '{folder}'", hint))
        _check_replaceable(target)
        check_model_preserved(experiment, document, checked.data.folder, {folder: checked.path})
        ledger = Ledger.read(folder / fs.LEDGER_FILE)
        answer = _choose(ledger, at or experiment.goal, algorithm, experiment.name)
        trial = answer.best.group.trials[0]
        _check_unchanged(prepare_data(checked, offline=offline, progress=progress), folder, trial)
        final = _on_all_rows(document, trial)
        (key,) = (each.key for each in final.plan.planned if _is_same(each, trial))
        final = replace(final, plan=final.plan.only(key))
        with ExitStack() as stack:
            with fs.report_write_errors(output):
                stage = stack.enter_context(fs.staged_folder(output, "fit-"))
            executor = parse_executor(None, 1)
            run_experiments(
                [RunRequest(final, stage)], executor, lambda _: None, quiet=quiet, command=command
            )
            lines, exports = _write_model(stage, key, target, _expected(ledger, answer))
            applies = (stage / "card.md").is_file()
            stage.chmod(folder.stat().st_mode)
            fs.replace_folder(stage, target)
    return FinalModel(target, lines, exports, applies)


def _check_replaceable(target: Path) -> None:
    """Raise E505 if the model's folder has something that `fit` did not write."""
    fs.check_no_links(target.parent, target.name)
    if target.exists() and not (target / fs.LEDGER_FILE).is_file():
        hint = "move it away, or choose another folder with --output"
        message = f"cannot write to '{target}': it was not made by `ratecli fit`"
        raise FaultError(Diagnostic("E505", message, hint))


def read_point(texts: Sequence[str]) -> Task:
    """Return the values of texts such as `limit=0.8`, read as in files; raise E104 for others."""
    try:
        return Document.of_data({}).with_overrides(texts).data
    except FaultError as error:
        hint = "write --at limit=0.8"
        found = (f"--at is not NAME=VALUE: {each.message}" for each in error.faults)
        raise FaultError([Diagnostic("E104", text, hint) for text in found]) from None


def _choose(ledger: Ledger, at: Task, algorithm: str | None, name: str) -> Answer:
    """Return the answer to train, or raise E104 or E510."""
    labels = dict.fromkeys(trial.label for trial in ledger.algorithms.plan)
    if algorithm is not None and algorithm not in labels:
        raise FaultError(unknown_name("E104", "algorithm", algorithm, labels))
    tasks, task = planned_tasks(ledger), goal_of(ledger, at)
    if task is None:
        options = "; ".join(filter(None, (" ".join(point_options(each)) for each in tasks)))
        what = "the file names no goal, and there are several sweep points"
        what = f"not one sweep point has {st.format_point(at)}" if at else what
        hint = f"write one of {options}" if options else "the file has no sweep: leave out --at"
        raise FaultError(Diagnostic("E104", what, hint))
    answer = answer_of(ledger, task, algorithm)
    where = f" at {st.format_point(task)}" if task else ""
    if answer is None:
        message = f"no trial of '{name}'{where} returned a model"
        raise FaultError(Diagnostic("E510", message, "the report says why"))
    usable = answer.is_recommended
    if algorithm is not None:
        usable = answer.best.verdict is not TestVerdict.VIOLATED
    if not usable:
        message = "; ".join(closest_lines(ledger, answer))
        raise FaultError(Diagnostic("E510", message, "the report says what may help"))
    return answer


def _check_unchanged(prepared: PreparedExperiment, folder: Path, trial: PlannedTrial) -> None:
    if trial.key not in {each.key for each in prepared.plan.planned}:
        message = f"'{prepared.path}' or its data has changed since the run in {folder}"
        hint = f"run it again: `{prepared.command('run', folder)}`"
        raise FaultError(Diagnostic("E507", message, hint))


def _on_all_rows(document: Document, trial: PlannedTrial) -> PreparedExperiment:
    """Return the experiment with no test rows, for the seed of a trial."""
    data: dict[str, Any] = copy.deepcopy(document.data)
    for key in ("report", "expect", "resample", "goal", "trial_seconds"):
        data.pop(key, None)
    for entry in data["datasets"].values():
        split = {key: part for key, part in (entry.get("split") or {}).items() if key != "train"}
        entry["split"] = split | {"test": 0}
    data |= {"seeds": [trial.seed], "metrics": {}}
    return prepare_data(check_document(Document.of_data(data, document.path)), offline=True)


def _is_same(own: PlannedTrial, other: PlannedTrial) -> bool:
    return own.label == other.label and has_values(own.point, other.point)


def _expected(ledger: Ledger, answer: Answer) -> dict[str, Any]:
    """Return what the experiment measured of a setting, for the card."""
    group, split = answer.best.group, answer_split(ledger)
    rows = [(each.info.get("rows") or {}).get("train") for each in group.results]
    names = (metric for metric in ledger.metrics if group.estimate(split, metric).mean is not None)
    return {
        "experiment": ledger.experiment.get("name", ""),
        "setting": ", ".join(filter(None, [group.label, st.format_point(group.point)])),
        "answer": setting_lines(ledger, answer),
        "models": group.solved,
        "split": split,
        "rows": min(filter(None, rows), default=0),
        "violations": {
            name: each.mean
            for name, each in answer.best.violations.items()
            if split == "test" and each.mean is not None and is_violated(each.mean)
        },
        "metrics": {name: st.estimate_cell(group.estimate(split, name)).text for name in names},
    }


def _write_model(
    stage: Path, key: str, target: Path, expected: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """Write model, encoder, exports and card beside the ledger in `stage`; raise E510 without one.

    Return lines about the training, and about the exports.
    """
    with LedgerStore(stage / fs.LEDGER_FILE) as store:
        store.set_meta(EXPECTED_KEY, expected)
        ledger = Ledger(*store.read())
        trial = next(each for each in ledger.plan if each.key == key)
        result = ledger.results[key]
        left_out = rows_left_out(result.info.get("rows") or {})
        if result.status not in USABLE:
            reason = result.reason or "the constraints are violated on the training rows"
            message = (
                f"{expected['setting']}, trained on all rows{left_out}, gave no model: {reason}"
            )
            raise FaultError(Diagnostic("E510", message))
        for name, content in trial_files(ledger, trial, store).items():
            fs.atomic_write(stage / name, content)
    exports = list[str]()
    rows = f"{result.info['rows'].get('train', 0):,} rows" + f" (all{left_out})" * bool(left_out)
    lines = [
        f"{expected['setting']}: trained on {rows} in {result.seconds:.1f} s",
        f"the run measured {expected['models']} such models, trained on {expected['rows']:,} rows:",
        *expected["answer"],
    ]
    try:
        found = load_applicable_model(stage)
        model = replace(found, name=str(target / Path(found.name).name))
    except FaultError as error:  # a policy, or features that are no columns
        reason = error.faults[0].message.replace(str(stage), str(target))
        return lines, [f"no card and no exports: {reason}"]
    for form, (suffix, content_of) in FORMATS.items():
        try:
            fs.atomic_write(stage / f"{fs.MODEL_FOLDER}{suffix}", content_of(model))
            exports.append(f"{fs.MODEL_FOLDER}{suffix}")
        except (FaultError, ImportError) as error:
            reason = error.faults[0].message if isinstance(error, FaultError) else str(error)
            exports.append(f"no {form}: {reason.removeprefix(f'--format {form} ')}")
    card = model_card(model, stage)
    for name in ("card.md", "card.html"):
        fs.atomic_write(stage / name, card.text(f"{name}.j2"))
    return lines, exports
