"""The self-contained HTML report, report.html."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from ratecli.ledger.records import END_WARNINGS_KEY
from ratecli.ledger.view import Ledger
from ratecli.report.best import best_sheet, describe_best
from ratecli.report.certificates import certificate_sheet, omitted_trees_note
from ratecli.report.expectations import (
    compare_expectations,
    count_verdicts,
    expectation_sheet,
    failures_first,
    verdict_filters,
    verdict_text,
    warn_unmet_expectations,
)
from ratecli.report.markup import render_template
from ratecli.report.plots.inline_svg import PageDrawings
from ratecli.report.plots.style import PlotImage
from ratecli.report.sheet import count_by_status, format_scalar
from ratecli.report.sheets import (
    cell_legend,
    constraint_sheet,
    failures_sheet,
    no_solution_sheet,
    requested_sheets,
    satisfaction_sheet,
    status_sheet,
)
from ratecli.runner.warnings import constant_warnings, violation_warnings
from ratecli.solvers.registry import all_algorithms

MAX_NOTICES = 100
MAX_WARNED = 5
"""Maximum number of warnings of the run in the summary; the full list is further down."""
OPEN_TREES = 2
"""Number of trees that are initially expanded."""
PROVENANCE_PARTS = {"datasets": "Data", "versions": "Versions", "manifest": "The run"}


def render_report(
    ledger: Ledger, drawn: Sequence[PlotImage], trees: Sequence[tuple[PlotImage, str]] = ()
) -> str:
    """Render the report.

    `drawn` are the plots, `trees` the trees of certificates with their explanations.
    """
    drawings = PageDrawings()
    found = best_sheet(ledger)
    compared = failures_first(compare_expectations(ledger))
    warnings = collect_notices(ledger)
    return render_template(
        "report.html.j2",
        name=ledger.experiment.get("name", ""),
        description=ledger.experiment.get("description") or "",
        stand_ins=ledger.stand_ins,
        goals=goal_rows(ledger),
        facts=experiment_facts(ledger),
        outcome=count_by_status(Counter(map(ledger.status, ledger.plan))),
        verdicts=count_verdicts(compared),
        best=found,
        in_words=describe_best(ledger, found),
        kept=satisfaction_sheet(ledger),
        promises=constraint_sheet(ledger),
        against=expectation_sheet(ledger),
        verdict_choices=verdict_filters(compared),
        verdict_kinds=[verdict_text(each) for each in compared],
        tables=requested_sheets(ledger),
        how=cell_legend(ledger),
        figures=[drawings.add(picture) for picture in drawn],
        certificates=certificate_sheet(ledger),
        trees=[(drawings.add(picture), text) for picture, text in trees],
        open_trees=OPEN_TREES,
        drawings=drawings,
        undrawn=omitted_trees_note(ledger),
        counts=status_sheet(ledger),
        unsolved=no_solution_sheet(ledger),
        failures=failures_sheet(ledger),
        warnings=warnings,
        warned=[text for text, trials in warnings if not trials][:MAX_WARNED],
        ran=run_description(ledger),
        provenance=provenance(ledger),
        resolved=_yaml(ledger.experiment),
    )


def goal_rows(ledger: Ledger) -> list[tuple[str, str, str]]:
    """Return name, text and class of the objective and of each constraint."""
    classes = {goal["name"]: goal["class"] for goal in ledger.meta.get("goals") or ()}
    texts = [("objective", ledger.experiment.get("objective", "")), *ledger.constraints.items()]
    return [(name, text, classes.get(name, "")) for name, text in texts]


def experiment_facts(ledger: Ledger) -> list[tuple[str, str]]:
    """Return name and text of each part of the setup: data, algorithms, sweep, seeds, metrics."""
    data = ledger.meta.get("datasets") or {}
    found = {
        "data": ", ".join(
            f"{name} ({entry.get('rows', '?')} rows)" for name, entry in data.items()
        ),
        "algorithms": ", ".join(dict.fromkeys(trial.label for trial in ledger.algorithms.plan)),
        **{
            part: _format_part(ledger.experiment.get(part))
            for part in ("filter", "safety", "deployed")
        },
        "sweep": "; ".join(f"{name}: {_values(ledger, name)}" for name in ledger.sweep),
        "seeds": _join_shortened([str(trial.seed) for trial in ledger.plan]),
    }
    for key, name in (("groups", "group"), ("metrics", "metric")):
        texts: Mapping[str, str | Mapping[str, str]] = ledger.experiment.get(key) or {}
        found |= {f"{name} {each}": _rule_text(text) for each, text in texts.items()}
    return [(name, text) for name, text in found.items() if text]


def _format_part(part: Any) -> str:
    """Format a section of the experiment file in one line."""
    return "; ".join(f"{key} {text}".strip() for key, text in _flatten(part))


def _rule_text(text: str | Mapping[str, str]) -> str:
    """Format an expression, or a group's definitions by data set."""
    if isinstance(text, str):
        return text
    return "; ".join(f"{name}: {each}" for name, each in text.items())


def collect_notices(ledger: Ledger) -> list[tuple[str, int]]:
    """Return all warnings once, with the number of trials that gave each.

    These are warnings of the run, warnings derived from results, and warnings of trials. At most
    `MAX_NOTICES` are listed. Algorithms that are no longer installed are left out of the derived
    warnings, as it is unknown whether they enforce constraints.
    """
    known = all_algorithms()
    planned = [trial for trial in ledger.plan if trial.algorithm in known]
    results = ledger.results
    faults = [
        *violation_warnings(planned, results),
        *constant_warnings(planned, results),
        *warn_unmet_expectations(ledger),
    ]
    apart = [f"{fault.code}: {fault.message}" for fault in faults]
    said = [text for name in ("warnings", END_WARNINGS_KEY) for text in ledger.meta.get(name) or ()]
    found = Counter[str](dict.fromkeys([*said, *apart], 0))
    for key in dict.fromkeys(trial.key for trial in ledger.plan):
        result = ledger.results.get(key)
        found.update(dict.fromkeys((result.info.get("warnings") or ()) if result else (), 1))
    told = list(found.items())
    left = len(told) - MAX_NOTICES
    return [*told[:MAX_NOTICES], *([(f"... {left} more", 0)] if left > 0 else [])]


def provenance(ledger: Ledger) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return data, versions and the manifest as flat lists, without repetitions in the manifest."""
    run = dict(ledger.meta.get("manifest") or {})
    data = ledger.meta.get("datasets") or run.pop("data", None) or {}
    versions = {**(ledger.meta.get("versions") or {}), **(run.pop("versions", None) or {})}
    run.pop("data", None)
    parts = {"datasets": data, "versions": versions, "manifest": run}
    return [(PROVENANCE_PARTS[name], list(_flatten(part))) for name, part in parts.items() if part]


def run_description(ledger: Ledger) -> str:
    """Describe when, with which versions and where the experiment was run, as far as recorded."""
    run = ledger.meta.get("manifest") or {}
    versions = {**(ledger.meta.get("versions") or {}), **(run.get("versions") or {})}
    git = run.get("git") or {}
    ends = [f"{name} {run[name]}" for name in ("started", "ended") if run.get(name)]
    made = [f"ratecli {versions['ratecli']}"] if versions.get("ratecli") else []
    if git.get("commit"):
        made.append(f"commit {str(git['commit'])[:10]}{' with changes' * bool(git.get('dirty'))}")
    place = [str(run[name]) for name in ("python", "platform") if run.get(name)]
    cpus = [f"{run['cpus']} processors"] if run.get("cpus") else []
    return "; ".join(filter(None, map(", ".join, (ends, made, [*place, *cpus]))))


def _yaml(resolved: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(resolved), sort_keys=False, allow_unicode=True, width=100)


def _values(ledger: Ledger, name: str) -> str:
    return _join_shortened(
        [format_scalar(trial.point[name]) for trial in ledger.plan if name in trial.point]
    )


def _join_shortened(texts: Sequence[str]) -> str:
    """Join distinct texts; shorten long lists to the first, the last and their number."""
    each = list(dict.fromkeys(texts))
    return ", ".join(each) if len(each) <= 12 else f"{each[0]} to {each[-1]} ({len(each)} values)"


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
