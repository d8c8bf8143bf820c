"""HTML pages: the self-contained report of an experiment, and a joint page on several.

Values are escaped unless they are markup made by ratecli. Plots are embedded as inline SVG with
tooltips. Their ids are made unique to a drawing, and text is drawn as shapes, so user-provided text
never becomes markup.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ratecli.errors import Diagnostic, FaultError
from ratecli.files import LEDGER_FILE, atomic_write, report_write_errors
from ratecli.ledger.records import END_WARNINGS_KEY
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.report.certificates import certificate_sheet
from ratecli.report.expectations import (
    NOTE,
    ExpectationComparison,
    Verdict,
    compare_expectations,
    comparison_cells,
    count_verdicts,
    expectation_sheet,
    warn_unmet_expectations,
)
from ratecli.report.groups import seed_groups
from ratecli.report.plots.canvas import LEGEND, SERIES, PlotImage
from ratecli.report.plots.tree import omitted_trees_note
from ratecli.report.sheet import (
    SheetCell,
    SheetRow,
    count_by_status,
    format_list,
    format_point,
    format_scalar,
    make_sheet,
    satisfied_cell,
    status_cell,
)
from ratecli.report.sheets import (
    best_sheet,
    cell_legend,
    constraint_sheet,
    requested_sheets,
    satisfaction_sheet,
    status_sheet,
    unsolved_sheet,
)
from ratecli.runner.warnings import constant_warnings, violation_warnings
from ratecli.solvers.registry import all_algorithms

MAX_ROWS = 400
"""Maximum rows of a table on a page; the CSV files have all rows."""
LONG_TEXT = 48
"""Cells with more characters may wrap."""
MAX_WARNINGS = 100
MAX_SUMMARY_WARNINGS = 5
"""Maximum number of warnings of the run in the summary; the full list is further down."""
OPEN_TREES = 2
"""Number of trees that are initially expanded."""
ROOT = re.compile(r'<svg [^>]*width="([\d.]+)pt"[^>]*viewBox="([^"]*)"[^>]*>(.*)</svg>', re.DOTALL)
UNUSED = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>|\s*\n\s*", re.DOTALL)
"""Comments, metadata, styles (which the page defines) and white space between lines."""
TOOLTIP_ID = re.compile(rf'id="({SERIES}|{LEGEND})-(\d+)-\d+"')
REFERENCE = re.compile(r'( id="| href="#|url\(#)')
DIGITS = re.compile(r'(\.\d\d)\d+(?=[ "])')
"""Digits of coordinates beyond hundredths of a point, which are precise enough."""


def render_report(
    ledger: Ledger, plots: Sequence[PlotImage], trees: Sequence[tuple[PlotImage, str]] = ()
) -> str:
    """Render the report.

    `trees` are the trees of certificates with their explanations.
    """
    warnings = collect_warnings(ledger)
    return render_template(
        "report.html.j2",
        name=ledger.experiment.get("name", ""),
        description=ledger.experiment.get("description") or "",
        stand_ins=ledger.stand_ins,
        goals=goal_rows(ledger),
        facts=experiment_facts(ledger),
        outcome=count_by_status(Counter(map(ledger.status, ledger.plan))),
        verdicts=count_verdicts(compare_expectations(ledger)),
        best=best_sheet(ledger),
        satisfaction=satisfaction_sheet(ledger),
        constraints=constraint_sheet(ledger),
        expectations=expectation_sheet(ledger),
        tables=requested_sheets(ledger),
        legend=cell_legend(ledger),
        figures=[page_figure(image, number) for number, image in enumerate(plots)],
        certificates=certificate_sheet(ledger),
        trees=[
            (page_figure(image, number), text)
            for number, (image, text) in enumerate(trees, len(plots))
        ],
        open_trees=OPEN_TREES,
        omitted_trees=omitted_trees_note(ledger),
        statuses=status_sheet(ledger),
        unsolved=unsolved_sheet(ledger),
        warnings=warnings,
        summary_warnings=[text for text, trials in warnings if not trials][:MAX_SUMMARY_WARNINGS],
        provenance=provenance(ledger),
        resolved=yaml.safe_dump(
            dict(ledger.experiment), sort_keys=False, allow_unicode=True, width=100
        ),
    )


def goal_rows(ledger: Ledger) -> list[tuple[str, str, str]]:
    """Return name, text and class of the objective and of each constraint."""
    classes = {goal["name"]: goal["class"] for goal in ledger.meta.get("goals") or ()}
    texts = {"objective": ledger.experiment.get("objective", "")} | dict(ledger.constraints)
    return [(name, text, classes.get(name, "")) for name, text in texts.items()]


def experiment_facts(ledger: Ledger) -> list[tuple[str, str]]:
    """Return name and text of each part of the setup: data, algorithms, sweep, seeds, metrics."""
    data = ledger.meta.get("datasets") or {}
    sweep = [
        f"{name}: {format_list(trial.point[name] for trial in ledger.plan if name in trial.point)}"
        for name in ledger.sweep
    ]
    found = {
        "data": ", ".join(f"{name} ({each.get('rows', '?')} rows)" for name, each in data.items()),
        "algorithms": ", ".join(dict.fromkeys(trial.label for trial in ledger.algorithms.plan)),
        "sweep": "; ".join(sweep),
        "seeds": format_list(trial.seed for trial in ledger.plan),
    }
    for part in ("filter", "safety", "deployed", "groups", "metrics"):
        pairs = _flatten(ledger.experiment.get(part))
        found[part] = "; ".join(": ".join(filter(None, pair)) for pair in pairs)
    return [(name, text) for name, text in found.items() if text]


def collect_warnings(ledger: Ledger) -> list[tuple[str, int]]:
    """Return all warnings once, with the number of trials that gave each.

    These are warnings of the run, warnings derived from results, and warnings of trials. At most
    `MAX_WARNINGS` are listed. Algorithms that are no longer installed are left out of the derived
    warnings, as it is unknown whether they enforce constraints.
    """
    known = all_algorithms()
    planned = [trial for trial in ledger.plan if trial.algorithm in known]
    derived = [
        *violation_warnings(planned, ledger.results),
        *constant_warnings(planned, ledger.results),
        *warn_unmet_expectations(ledger),
    ]
    texts = [text for key in ("warnings", END_WARNINGS_KEY) for text in ledger.meta.get(key) or ()]
    texts += [f"{warning.code}: {warning.message}" for warning in derived]
    counts = Counter[str](dict.fromkeys(texts, 0))
    for key in dict.fromkeys(trial.key for trial in ledger.plan):
        result = ledger.results.get(key)
        counts.update(set((result.info.get("warnings") or ()) if result else ()))
    listed = list(counts.items())
    omitted = len(listed) - MAX_WARNINGS
    return listed[:MAX_WARNINGS] + [(f"... {omitted} more", 0)] * (omitted > 0)


def provenance(ledger: Ledger) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return data, versions and the manifest as flat lists, without repetitions in the manifest."""
    run = dict(ledger.meta.get("manifest") or {})
    data, versions = run.pop("data", None), run.pop("versions", None)
    parts = {
        "Data": ledger.meta.get("datasets") or data,
        "Versions": {**(ledger.meta.get("versions") or {}), **(versions or {})},
        "The run": run,
    }
    return [(name, list(_flatten(part))) for name, part in parts.items() if part]


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flatten(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for position, item in enumerate(value):
            yield from _flatten(item, f"{path}.{position}")
    else:
        text = ", ".join(map(format_scalar, value if isinstance(value, list) else [value]))
        if text:
            yield path, text


def render_template(template: str, **values: Any) -> str:
    """Render the template of this name in `page/`."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    """Return the template environment, created once per process."""
    found = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(_text),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name, file in (("css", "page.css"), ("dark", "dark.css"), ("script", "page.js")):
        found.globals[name] = Markup(_text(file).strip())  # noqa: S704 - part of ratecli
    found.globals |= {"most_rows": MAX_ROWS, "long_text": LONG_TEXT}
    return found


def _text(name: str) -> str:
    return resources.files("ratecli.report").joinpath("page", name).read_text("utf-8")


@dataclass(frozen=True)
class PageFigure:
    """A drawing on a page: width in CSS pixels, markup, and tooltip data for the script."""

    name: str
    caption: str
    what: str
    width: int
    drawing: Markup
    tooltips: Markup


def page_figure(image: PlotImage, number: int) -> PageFigure:
    """Convert a plot for the page, where it is figure `number`."""
    found = ROOT.search(image.svg.decode())
    width, view, content = found.groups() if found else ("0", "", "")
    content = UNUSED.sub(" ", content).replace("xlink:href", "href")
    content = TOOLTIP_ID.sub(r'data-\1="\2"', content)
    content = DIGITS.sub(r"\1", REFERENCE.sub(rf"\1f{number}-", content))
    markup = f'<svg viewBox="{view}" aria-hidden="true">{content}</svg>'
    drawing = Markup(markup)  # noqa: S704 - Matplotlib escapes text
    pixels = round(float(width) * 96 / 72)
    return PageFigure(image.name, image.caption, image.what, pixels, drawing, _tooltip_json(image))


def _tooltip_json(image: PlotImage) -> Markup:
    """Encode JSON for an HTML script element, escaping `<` and `&`."""
    marks = [[*(round(each, 5) for each in mark[:4]), *mark[4:]] for mark in image.marks]
    content = {"series": image.series, "marks": marks}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))  # noqa: S704


REPORT = "report.html"
UNREADABLE = "cannot be read"
"""Shown for an experiment whose ledger is invalid or of another version."""
EXPERIMENTS_NOTE = (
    "Satisfied on test: in how many trials and variants of algorithms all constraints are "
    "satisfied on the test set, of those measured there. Each name links to the experiment's own "
    "report."
)


@dataclass(frozen=True)
class JoinedExperiment:
    """An experiment on a joint page, with a link to its own report if there is one.

    If `ledger` is None, it was not run or `errors` explains why.
    """

    cell: SheetCell
    ledger: Ledger | None
    errors: Sequence[Diagnostic] = ()

    @classmethod
    def read(cls, folder: Path, page: Path) -> JoinedExperiment:
        """Read an experiment's results; `page` is the path that the joint page will have."""
        report, link = folder / REPORT, ""
        if report.is_file():
            relative = os.path.relpath(report.resolve(), page.parent.resolve())
            link = quote(Path(relative).as_posix())
        unread = cls(SheetCell(folder.name, link=link), None)
        if not (folder / LEDGER_FILE).is_file():
            return unread
        try:
            ledger = Ledger.read(folder / LEDGER_FILE)
        except FaultError as error:
            return replace(unread, errors=error.faults)
        name = str(ledger.experiment.get("name") or folder.name)
        return cls(SheetCell(name, link=link), ledger)

    @property
    def statuses(self) -> Counter[str]:
        return Counter(map(self.ledger.status, self.ledger.plan) if self.ledger else ())

    @cached_property
    def comparisons(self) -> list[ExpectationComparison]:
        return compare_expectations(self.ledger) if self.ledger else []


def write_joined(folders: Sequence[Path], place: Path) -> Path:
    """Write a page on the experiments with results in `folders`, in that order; return `place`.

    Each row links to the experiment's own report, relative to `place`. A folder without a ledger is
    shown as not run, and an unreadable ledger with its error.

    Raises
    ------
    FaultError
        E505 if `place` cannot be written.
    """
    text = render_joined(folders, place)
    with report_write_errors(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(place, text)
    return place


def render_joined(folders: Sequence[Path], place: Path) -> str:
    """Render the page; `place` is the path it will have."""
    experiments = [JoinedExperiment.read(folder, place) for folder in dict.fromkeys(folders)]
    rows = sorted(
        ((each, result) for each in experiments for result in each.comparisons),
        key=lambda row: list(Verdict).index(row[1].verdict),
    )
    papers = [row for row in rows if row[1].entry.kind == "paper"]
    others = [row for row in rows if row[1].entry.kind != "paper"]
    sections = (("Paper figures and measured values", papers), ("Other expectations", others))
    overview = map(_experiment_row, experiments)
    return render_template(
        "joined.html.j2",
        experiments=make_sheet("Experiments", overview, EXPERIMENTS_NOTE),
        missing=[each.cell.text for each in experiments if not (each.ledger or each.errors)],
        unreadable=[(each.cell.text, error) for each in experiments for error in each.errors],
        trials=count_by_status(sum((each.statuses for each in experiments), Counter())),
        verdicts=count_verdicts(result for _, result in papers),
        sheets=[
            make_sheet(title, [_figure_row(*row) for row in found], NOTE)
            for title, found in sections
            if found
        ],
    )


def _experiment_row(joined: JoinedExperiment) -> SheetRow:
    ledger, verdicts = joined.ledger, count_verdicts(joined.comparisons)
    ended, satisfied = SheetCell(NOT_RUN, tone="part"), SheetCell("")
    if ledger is not None:
        ended = status_cell(joined.statuses)
        if ledger.constraints:
            satisfied = satisfied_cell(seed_groups(ledger.algorithms), "test")
    elif joined.errors:
        ended = SheetCell(UNREADABLE, tone="bad")
    counted = ", ".join(f"{word} {count}" for word, count, _ in verdicts)
    tone = "bad" if any(tone == "bad" for *_, tone in verdicts) else ""
    description = ledger.experiment.get("description") if ledger else ""
    return [
        ("experiment", joined.cell),
        ("question", _first_sentence(str(description or ""))),
        ("trials", joined.statuses.total() if ledger else None),
        ("ended", ended),
        ("satisfied on test", satisfied),
        ("expected numbers", SheetCell(counted, tone=tone)),
    ]


def _figure_row(joined: JoinedExperiment, result: ExpectationComparison) -> SheetRow:
    """Return the row of an expected figure."""
    group, metric = result.group, result.entry.metric
    name = f"{group.label} ({group.variant})" if group.variant else group.label
    about = [f"{metric} of {name}", format_point(group.point), result.entry.split]
    figure = ", ".join(filter(None, about))
    return [("experiment", joined.cell), ("figure", figure), *comparison_cells(result)]


def _first_sentence(text: str) -> str:
    """Return the first sentence of a description, shortened to fit a table."""
    flat = " ".join(text.split())
    end = min((at for sign in (". ", "? ") if (at := flat.find(sign)) >= 0), default=len(flat))
    return textwrap.shorten(flat[: end + 1], 200, placeholder="...")
