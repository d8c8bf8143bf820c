"""HTML pages: the self-contained report of an experiment, and a joint page on several."""

from __future__ import annotations

import base64
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ratecli.config.sweep import CONSTRAINT_AXIS
from ratecli.errors import FaultError
from ratecli.files import COMPARISON_FOLDER, LEDGER_FILE, REPORT_FILE, atomic_write
from ratecli.ledger.records import END_WARNINGS_KEY
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.report import answer_text, sheets
from ratecli.report import sheet as st
from ratecli.report.answer import answer_of, answer_split, answers, goal_of
from ratecli.report.certificates import MAX_TREES, certificate_sheet, certificates_to_show
from ratecli.report.check import expectations as ex
from ratecli.report.comparison import Comparison, methods_note
from ratecli.report.groups import group_by
from ratecli.report.plots.canvas import PlotImage, requested_plots
from ratecli.report.plots.methods import draw_methods
from ratecli.report.tables import csv_text
from ratecli.report.templates import note, render_template, to_yaml
from ratecli.runner.end_warnings import end_warnings
from ratecli.solvers.registry import all_algorithms

MAX_WARNINGS = 100
QUOTED = re.compile(r"'[^']*'( \(\w+\))?")
"""A quoted name, perhaps with a variant."""


def render_report(
    ledger: Ledger, plots: Sequence[PlotImage], curves: Sequence[PlotImage] = ()
) -> str:
    """Render the report, whose template calls the functions that make its tables and sentences.

    `plots` are those of the file, and `curves` those by group.
    """
    return render_template(
        "report.html.j2",
        ledger=ledger,
        answer=answer_text,
        sheets=sheets,
        lead=plots[:1],
        others=plots[1:],
        curves=curves,
        outcome=st.count_by_status(Counter(map(ledger.status, ledger.plan))),
        verdicts=ex.count_verdicts(ex.compare_expectations(ledger)),
        expectations=ex.expectation_sheet(ledger),
        certificates=certificate_sheet(ledger),
        tests=certificates_to_show(ledger),
        max_trees=MAX_TREES,
        warnings=collect_warnings(ledger),
        provenance=provenance(ledger),
    )


def collect_warnings(ledger: Ledger) -> list[tuple[str, int, list[str]]]:
    """Return warnings with the number of trials that gave them, and others that are alike.

    Warnings are alike if they differ only in numbers and quoted names. They are warnings of the
    run, warnings derived from results, and warnings of trials. At most `MAX_WARNINGS` are listed.
    Algorithms that are no longer installed are left out of the derived warnings, as it is unknown
    whether they enforce constraints.
    """
    known = all_algorithms()
    planned = [trial for trial in ledger.plan if trial.algorithm in known]
    derived = [*end_warnings(planned, ledger.results), *ex.warn_unmet_expectations(ledger)]
    texts = [text for key in ("warnings", END_WARNINGS_KEY) for text in ledger.meta.get(key) or ()]
    texts += [f"{warning.code}: {warning.message}" for warning in derived]
    counts = Counter[str](dict.fromkeys(texts, 0))
    for key in dict.fromkeys(trial.key for trial in ledger.plan):
        result = ledger.results.get(key)
        counts.update(set((result.info.get("warnings") or ()) if result else ()))
    alike = group_by(counts, lambda text: sheets.NUMBER.sub("#", QUOTED.sub("#", text)))
    listed = [
        (first, sum(counts[each] for each in (first, *more)), more)
        for first, *more in alike.values()
    ]
    omitted = len(listed) - MAX_WARNINGS
    return listed[:MAX_WARNINGS] + [(f"... {omitted} more", 0, [])] * (omitted > 0)


def provenance(ledger: Ledger) -> list[tuple[str, str]]:
    """Return data, versions, the manifest without these, and the experiment as YAML."""
    run = dict(ledger.meta.get("manifest") or {})
    data, versions = run.pop("data", None), run.pop("versions", None)
    parts = {
        "Data": ledger.meta.get("datasets") or data,
        "Versions": {**(ledger.meta.get("versions") or {}), **(versions or {})},
        "Run": run,
        "Experiment with all defaults": dict(ledger.experiment),
    }
    return [(name, to_yaml(part)) for name, part in parts.items() if part]


def write_joined(folders: Sequence[Path], place: Path) -> Path:
    """Write a page on the experiments with results in `folders`, in that order; return `place`.

    Each row links to the experiment's own report, relative to `place`. A folder without a ledger is
    shown as not run, and an unreadable ledger with its error.

    Raises
    ------
    FaultError
        E505 if `place` cannot be written.
    """
    rows: list[st.SheetRow] = []
    ledgers, links = dict[str, Ledger](), dict[str, str]()
    plots: list[tuple[st.SheetCell, Ledger, str]] = []
    statuses: Counter[str] = Counter()
    findings: list[ex.ExpectedFinding] = []
    for folder in dict.fromkeys(folders):
        ledger, error = _read_results(folder)
        report = folder / REPORT_FILE
        relative = os.path.relpath(report.resolve(), place.parent.resolve())
        link = quote(Path(relative).as_posix()) if report.is_file() else ""
        name = st.SheetCell(str(ledger.experiment.get("name") or folder.name), link=link)
        ledgers[name.text], links[name.text] = ledger, link
        rows.append(_experiment_row(name, ledger, error))
        statuses.update(map(ledger.status, ledger.plan))
        findings += ex.compare_expectations(ledger)
        for plot in requested_plots(ledger)[:1] if answers(ledger) else ():
            drawing = folder / "figures" / f"{plot.name}.svg"
            if drawing.is_file():
                plots.append((name, ledger, base64.b64encode(drawing.read_bytes()).decode()))
    methods = Comparison.of(ledgers, links)
    drawn = draw_methods(methods)
    for file, content in _comparison_files(methods, drawn):
        atomic_write(place.parent / COMPARISON_FOLDER / file, content, parents=True)
    text = render_template(
        "joined.html.j2",
        methods=methods,
        methods_note=methods_note(),
        folder=COMPARISON_FOLDER,
        drawn=drawn,
        experiments=st.make_sheet("Experiments", rows, note("experiments")),
        plots=plots,
        outcome=st.count_by_status(statuses),
        verdicts=ex.count_verdicts(findings),
    )
    atomic_write(place, text, parents=True)
    return place


def _comparison_files(
    methods: Comparison, drawn: Sequence[PlotImage]
) -> Iterator[tuple[str, str | bytes]]:
    """Yield the files of a comparison; none without methods."""
    if not methods.points:
        return
    sheets = [methods.best_sheet()]
    for number, setting in enumerate(methods.points, 1):
        sheets += [methods.sheet(setting), methods.task_sheet(setting)]
        for name, sheet in zip(("methods", "tasks"), sheets[-2:], strict=True):
            yield f"{name}-{number}.tex", st.to_latex(sheet)
    best, *others = map(st.to_markdown, sheets)
    plots = [f"![{each.caption}]({each.name}.png)\n" for each in drawn]
    yield "methods.md", "\n".join([f"{methods_note()}\n", best, *plots, *others])
    yield "methods.csv", csv_text(methods.rows)
    for picture in drawn:
        yield from picture.files().items()


def _read_results(folder: Path) -> tuple[Ledger, st.SheetCell | None]:
    """Return the stored results, or empty ones and the reason why there are none."""
    empty = Ledger([], {}, {})
    if not (folder / LEDGER_FILE).is_file():
        return empty, st.SheetCell(NOT_RUN, tone="part")
    try:
        return Ledger.read(folder / LEDGER_FILE), None
    except FaultError as error:
        texts = (f"{each.code}: {each.message}. {each.help or ''}" for each in error.faults)
        return empty, st.SheetCell(f"cannot be read: {' '.join(texts)}", tone="bad")


def _experiment_row(name: st.SheetCell, ledger: Ledger, error: st.SheetCell | None) -> st.SheetRow:
    """Return the goal of an experiment, its best model and how its trials ended."""
    task, shown = goal_of(ledger), answer_text.ShownObjective.of(ledger).name
    found, cells = answer_of(ledger, task), dict[str, Any]()
    if found is not None:
        row = answer_text.best_row(ledger, found, answer_split(ledger))
        cells = dict(row[len(found.task) :])  # a swept name may be that of a column
        cells["objective"] = replace(cells[shown], text=f"{shown} {cells[shown].text}")
    elif ledger.results:
        cells["best model"] = answer_text.answer_lines(ledger)[0]
    rules = () if CONSTRAINT_AXIS in ledger.sweep else ledger.constraints
    ended = st.status_cell(Counter(map(ledger.status, ledger.plan)))
    for verdict, count, tone in ex.count_verdicts(ex.compare_expectations(ledger)):
        if tone == "bad":
            text = f"{ended.text}; expected numbers: {verdict} {count}"
            ended = replace(ended, text=text, tone=tone)
    return [
        ("experiment", name),
        ("goal", ", ".join(filter(None, [*rules, st.format_point(task or {})]))),
        ("best model", error or cells.get("best model")),
        *((title, cells.get(title)) for title in ("objective", "cost", "expected")),
        ("verdict", cells.get("verdict")),
        ("trials", ended),
    ]
