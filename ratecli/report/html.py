"""HTML pages: the self-contained report of an experiment, and a joint page on several."""

from __future__ import annotations

import math
import os
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from ratecli.errors import FaultError
from ratecli.files import LEDGER_FILE, atomic_write
from ratecli.ledger.records import END_WARNINGS_KEY
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.report.answer_text import answer_sentences, best_sheet, incomplete_notes
from ratecli.report.certificates import certificate_sheet
from ratecli.report.check.expectations import (
    NOTE,
    ExpectedFinding,
    compare_expectations,
    comparison_cells,
    count_verdicts,
    expectation_sheet,
    warn_unmet_expectations,
)
from ratecli.report.check.findings import Verdict
from ratecli.report.groups import group_by, seed_groups
from ratecli.report.plots.canvas import PlotImage
from ratecli.report.plots.group_rates import FILE as GROUP_RATES
from ratecli.report.plots.tree import MAX_DRAWN
from ratecli.report.sheet import (
    SheetCell,
    SheetRow,
    count_by_status,
    format_list,
    format_point,
    make_sheet,
    satisfied_cell,
    status_cell,
)
from ratecli.report.sheets import (
    CELL_LEGEND,
    NUMBER,
    constraint_sheet,
    requested_sheets,
    status_sheet,
    tuning_sheet,
    unsolved_sheet,
)
from ratecli.report.templates import render_template
from ratecli.runner.warnings import (
    constant_warnings,
    effective_row_warnings,
    few_kept_warnings,
    violation_warnings,
)
from ratecli.solvers.registry import all_algorithms

MAX_WARNINGS = 100
QUOTED = re.compile(r"'[^']*'( \(\w+\))?")
"""A quoted name, perhaps with a variant."""


def render_report(
    ledger: Ledger, plots: Sequence[PlotImage], trees: Sequence[tuple[PlotImage, str]] = ()
) -> str:
    """Render the report.

    `trees` are the trees of certificates with their explanations.
    """
    verdicts = count_verdicts(compare_expectations(ledger))
    groups = [each for each in plots if each.name.startswith(GROUP_RATES)]
    others = [each for each in plots if each not in groups]
    lead, others = others[:1], others[1:]
    return render_template(
        "report.html.j2",
        ledger=ledger,
        classes={goal["name"]: goal["class"] for goal in ledger.meta.get("goals") or ()},
        facts=experiment_facts(ledger),
        outcome=count_by_status(Counter(map(ledger.status, ledger.plan))),
        verdicts=verdicts,
        differs=any(tone == "bad" for *_, tone in verdicts),
        incomplete=incomplete_notes(ledger),
        sentences=answer_sentences(ledger),
        best=best_sheet(ledger),
        satisfaction=constraint_sheet(ledger),
        constraints=constraint_sheet(ledger, by_point=True),
        expectations=expectation_sheet(ledger),
        tables=requested_sheets(ledger),
        legend=CELL_LEGEND,
        figures=plots,
        lead=lead,
        groups=groups,
        others=others,
        certificates=certificate_sheet(ledger),
        trees=trees,
        max_trees=MAX_DRAWN,
        statuses=status_sheet(ledger),
        tuned=tuning_sheet(ledger),
        unsolved=unsolved_sheet(ledger),
        warnings=collect_warnings(ledger),
        provenance=provenance(ledger),
    )


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
        if content := ledger.experiment.get(part):
            found[part] = _yaml(content, default_flow_style=True, width=math.inf)[1:-2]  # no braces
    return [(name, text) for name, text in found.items() if text]


def collect_warnings(ledger: Ledger) -> list[tuple[str, int, list[str]]]:
    """Return warnings with the number of trials that gave them, and others that are alike.

    Warnings are alike if they differ only in numbers and quoted names. They are warnings of the
    run, warnings derived from results, and warnings of trials. At most `MAX_WARNINGS` are listed.
    Algorithms that are no longer installed are left out of the derived warnings, as it is unknown
    whether they enforce constraints.
    """
    known = all_algorithms()
    planned = [trial for trial in ledger.plan if trial.algorithm in known]
    derived = [
        *violation_warnings(planned, ledger.results),
        *constant_warnings(planned, ledger.results),
        *effective_row_warnings(planned, ledger.results),
        *few_kept_warnings(planned, ledger.results),
        *warn_unmet_expectations(ledger),
    ]
    texts = [text for key in ("warnings", END_WARNINGS_KEY) for text in ledger.meta.get(key) or ()]
    texts += [f"{warning.code}: {warning.message}" for warning in derived]
    counts = Counter[str](dict.fromkeys(texts, 0))
    for key in dict.fromkeys(trial.key for trial in ledger.plan):
        result = ledger.results.get(key)
        counts.update(set((result.info.get("warnings") or ()) if result else ()))
    alike = group_by(counts, lambda text: NUMBER.sub("#", QUOTED.sub("#", text)))
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
    return [(name, _yaml(part)) for name, part in parts.items() if part]


def _yaml(value: Any, **options: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, **options))


REPORT = "report.html"
EXPERIMENTS_NOTE = (
    "Satisfied on test: in how many trials and variants of algorithms all constraints are "
    "satisfied on the test set, of those measured there. Each name links to the experiment's own "
    "report."
)


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
    atomic_write(place, text, parents=True)
    return place


def render_joined(folders: Sequence[Path], place: Path) -> str:
    """Render the page; `place` is the path it will have."""
    experiments: list[SheetRow] = []
    compared: list[tuple[SheetCell, ExpectedFinding]] = []
    statuses: Counter[str] = Counter()
    for folder in dict.fromkeys(folders):
        ledger, error = _read_results(folder)
        name = str(ledger.experiment.get("name") or folder.name)
        link = ""
        if (folder / REPORT).is_file():
            relative = os.path.relpath((folder / REPORT).resolve(), place.parent.resolve())
            link = quote(Path(relative).as_posix())
        cell = SheetCell(name, link=link)
        experiments.append(_experiment_row(cell, ledger, error))
        compared += [(cell, each) for each in compare_expectations(ledger)]
        statuses.update(map(ledger.status, ledger.plan))
    compared.sort(key=lambda row: list(Verdict).index(row[1].verdict))
    return render_template(
        "joined.html.j2",
        experiments=make_sheet("Experiments", experiments, EXPERIMENTS_NOTE),
        outcome=count_by_status(statuses),
        verdicts=count_verdicts(each for _, each in compared),
        figures=make_sheet(
            "Expected and measured values", [_figure_row(*row) for row in compared], NOTE
        ),
    )


def _read_results(folder: Path) -> tuple[Ledger, SheetCell | None]:
    """Return the stored results, or empty ones and the reason why there are none."""
    empty = Ledger([], {}, {})
    if not (folder / LEDGER_FILE).is_file():
        return empty, SheetCell(NOT_RUN, tone="part")
    try:
        return Ledger.read(folder / LEDGER_FILE), None
    except FaultError as error:
        texts = (f"{each.code}: {each.message}. {each.help or ''}" for each in error.faults)
        return empty, SheetCell(f"cannot be read: {' '.join(texts)}", tone="bad")


def _experiment_row(name: SheetCell, ledger: Ledger, error: SheetCell | None) -> SheetRow:
    verdicts = count_verdicts(compare_expectations(ledger))
    counted = ", ".join(f"{word} {count}" for word, count, _ in verdicts)
    tone = "bad" if any(tone == "bad" for *_, tone in verdicts) else ""
    description = str(ledger.experiment.get("description") or "")
    return [
        ("experiment", name),
        ("question", textwrap.shorten(description, 200, placeholder="...")),
        ("trials", len(ledger.plan)),
        ("ended", error or status_cell(Counter(map(ledger.status, ledger.plan)))),
        ("satisfied on test", satisfied_cell(seed_groups(ledger.algorithms), "test")),
        ("expected numbers", SheetCell(counted, tone=tone)),
    ]


def _figure_row(name: SheetCell, result: ExpectedFinding) -> SheetRow:
    """Return the row of an expected figure."""
    group, metric = result.group, result.entry.metric
    about = [f"{metric} of {group.name}", format_point(group.point), result.entry.split]
    return [
        ("experiment", name),
        ("figure", ", ".join(filter(None, about))),
        *comparison_cells(result),
    ]
