"""report.html: one page that needs nothing but itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from ratecli.ledger.records import AT_END
from ratecli.ledger.view import Ledger
from ratecli.report.best import best, in_words
from ratecli.report.certificates import certificate_sheet, undrawn
from ratecli.report.constraint_tables import counts, failures, kept, promises
from ratecli.report.expectation_warnings import differing
from ratecli.report.expectations import against, choices, comparisons, in_order, kind, tally
from ratecli.report.identity import by_status
from ratecli.report.markup import render
from ratecli.report.plots.inline_svg import Drawings
from ratecli.report.plots.style import Picture
from ratecli.report.sheet import scalar
from ratecli.report.sheets import asked_sheets, how
from ratecli.report.unsolved import unsolved
from ratecli.runner.warnings import constants, unkept
from ratecli.solvers.registry import algorithms

MOST_NOTICES = 100
MOST_WARNED = 5
"""Warnings of the run itself that the summary has; all are listed further down."""
OPEN_TREES = 2
"""Trees that are not folded away."""
PARTS = {"datasets": "Data", "versions": "Versions", "manifest": "The run"}


def page(
    ledger: Ledger, drawn: Sequence[Picture], trees: Sequence[tuple[Picture, str]] = ()
) -> str:
    """`drawn` are the plots, `trees` those of certificates, each with what is to be said of it."""
    drawings = Drawings()
    found = best(ledger)
    compared = in_order(comparisons(ledger))
    warnings = notices(ledger)
    return render(
        "report.html.j2",
        name=ledger.experiment.get("name", ""),
        description=ledger.experiment.get("description") or "",
        stand_ins=ledger.stand_ins,
        goals=goals(ledger),
        facts=facts(ledger),
        outcome=by_status(Counter(map(ledger.status, ledger.plan))),
        verdicts=tally(compared),
        best=found,
        in_words=in_words(ledger, found),
        kept=kept(ledger),
        promises=promises(ledger),
        against=against(ledger),
        verdict_choices=choices(compared),
        verdict_kinds=[kind(each) for each in compared],
        tables=asked_sheets(ledger),
        how=how(ledger),
        figures=[drawings.add(picture) for picture in drawn],
        certificates=certificate_sheet(ledger),
        trees=[(drawings.add(picture), text) for picture, text in trees],
        open_trees=OPEN_TREES,
        drawings=drawings,
        undrawn=undrawn(ledger),
        counts=counts(ledger),
        unsolved=unsolved(ledger),
        failures=failures(ledger),
        warnings=warnings,
        warned=[text for text, trials in warnings if not trials][:MOST_WARNED],
        ran=ran(ledger),
        provenance=provenance(ledger),
        resolved=_yaml(ledger.experiment),
    )


def goals(ledger: Ledger) -> list[tuple[str, str, str]]:
    """Objective and constraints as the file has them: name, text, class."""
    classes = {goal["name"]: goal["class"] for goal in ledger.meta.get("goals") or ()}
    texts = [("objective", ledger.experiment.get("objective", "")), *ledger.constraints.items()]
    return [(name, text, classes.get(name, "")) for name, text in texts]


def facts(ledger: Ledger) -> list[tuple[str, str]]:
    """What was compared on what."""
    data = ledger.meta.get("datasets") or {}
    found = {
        "data": ", ".join(
            f"{name} ({entry.get('rows', '?')} rows)" for name, entry in data.items()
        ),
        "algorithms": ", ".join(dict.fromkeys(trial.label for trial in ledger.algorithms.plan)),
        **{part: _said(ledger.experiment.get(part)) for part in ("filter", "safety", "deployed")},
        "sweep": "; ".join(f"{name}: {_values(ledger, name)}" for name in ledger.sweep),
        "seeds": _listed([str(trial.seed) for trial in ledger.plan]),
    }
    for key, name in (("groups", "group"), ("metrics", "metric")):
        texts: Mapping[str, str | Mapping[str, str]] = ledger.experiment.get(key) or {}
        found |= {f"{name} {each}": _stated(text) for each, text in texts.items()}
    return [(name, text) for name, text in found.items() if text]


def _said(part: Any) -> str:
    """A part of the file in a line."""
    return "; ".join(f"{key} {text}".strip() for key, text in _flat(part))


def _stated(text: str | Mapping[str, str]) -> str:
    """A rule, or what a group is in each data set."""
    if isinstance(text, str):
        return text
    return "; ".join(f"{name}: {each}" for name, each in text.items())


def notices(ledger: Ledger) -> list[tuple[str, int]]:
    """The run's warnings, those that its numbers give, and those of its trials: each once, with how many
    trials gave it; beyond the first `MOST_NOTICES` their number.

    Of an algorithm that is not installed any more nobody knows whether it promised anything.
    """
    known = algorithms()
    planned = [trial for trial in ledger.plan if trial.algorithm in known]
    results = ledger.results
    faults = [*unkept(planned, results), *constants(planned, results), *differing(ledger)]
    apart = [f"{fault.code}: {fault.message}" for fault in faults]
    said = [text for name in ("warnings", AT_END) for text in ledger.meta.get(name) or ()]
    found = Counter[str](dict.fromkeys([*said, *apart], 0))
    for key in dict.fromkeys(trial.key for trial in ledger.plan):
        result = ledger.results.get(key)
        found.update(dict.fromkeys((result.info.get("warnings") or ()) if result else (), 1))
    told = list(found.items())
    left = len(told) - MOST_NOTICES
    return [*told[:MOST_NOTICES], *([(f"... {left} more", 0)] if left > 0 else [])]


def provenance(ledger: Ledger) -> list[tuple[str, list[tuple[str, str]]]]:
    """Data, versions and the manifest, flat; what the manifest has of the first two is not said again."""
    run = dict(ledger.meta.get("manifest") or {})
    data = ledger.meta.get("datasets") or run.pop("data", None) or {}
    versions = {**(ledger.meta.get("versions") or {}), **(run.pop("versions", None) or {})}
    run.pop("data", None)
    parts = {"datasets": data, "versions": versions, "manifest": run}
    return [(PARTS[name], list(_flat(part))) for name, part in parts.items() if part]


def ran(ledger: Ledger) -> str:
    """When, with what and where the run was made, as far as its record says."""
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
    return _listed([scalar(trial.point[name]) for trial in ledger.plan if name in trial.point])


def _listed(texts: Sequence[str]) -> str:
    """Each once; of many the first, the last and their number."""
    each = list(dict.fromkeys(texts))
    return ", ".join(each) if len(each) <= 12 else f"{each[0]} to {each[-1]} ({len(each)} values)"


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for position, item in enumerate(value):
            yield from _flat(item, f"{path}.{position}")
    else:
        text = ", ".join(map(scalar, value if isinstance(value, list) else [value]))
        if text:
            yield path, text
