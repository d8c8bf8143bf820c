"""What several parts of the file say together: names used twice, too many trials, unlike levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from ratecli.config.algorithm import label_loc, label_of, own_sweep
from ratecli.config.complaint import Complaint, shown
from ratecli.config.dataset_sweep import DATASET, one_by_one
from ratecli.config.document import Loc
from ratecli.config.filter_conflicts import filtering
from ratecli.config.names import FAILURE_RATE, IN_RESULTS, SOLUTION_RATE
from ratecli.config.safety_conflicts import promises
from ratecli.config.sweep import points
from ratecli.config.sweep_reader import KEYWORDS, MAX_POINTS, read_sweep
from ratecli.errors import did_you_mean

RESERVED = ("algorithm", "variant", "seed", "split", "metric", "value")
"""Columns of the results that a swept name would hide."""

SHARES = {SOLUTION_RATE, FAILURE_RATE}
MAX_SEEDS = 10_000
MAX_TRIALS = 100_000
"""All are planned before the first is run."""
DEPLOYED = "deployed"
"""What `of(...)` calls the deployed model."""


def conflicts(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    """Complaints about raw data that may be wrong in any other way, too."""
    yield from one_by_one(raw)
    yield from _shared_names(raw)
    yield from _reserved_names(raw)
    yield from _labels(raw)
    yield from _files(raw)
    yield from _sizes(raw)
    yield from _levels(raw)
    yield from promises(raw)
    yield from filtering(raw)


def _twice(loc: Loc, message: str, hint: str | None = None) -> Complaint:
    return Complaint(loc, "E106", message, hint, key=True)


def _mapping(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def _entries(raw: Mapping[str, Any]) -> list[Any]:
    value = raw.get("algorithms")
    return value if isinstance(value, list) else []


def _swept(raw: Mapping[str, Any]) -> Iterator[Loc]:
    """Where each swept name stands, the experiment's and the algorithms' own."""
    yield from (("sweep", name) for name in _mapping(raw, "sweep") if name not in KEYWORDS)
    for k, entry in enumerate(_entries(raw)):
        names = [name for name in own_sweep(entry) if name not in KEYWORDS]
        yield from (("algorithms", k, next(iter(entry)), "sweep", name) for name in names)


def _shared_names(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    known = dict.fromkeys(_mapping(raw, "datasets"), "a data set")
    for name in _mapping(raw, "groups"):
        if known.setdefault(name, "a group") != "a group":
            yield _twice(("groups", name), f"'{name}' is both {known[name]} and a group", RENAME)
    measured = {"objective", *SHARES, *_mapping(raw, "metrics")}
    for loc in _swept(raw):
        if loc[-1] in known:
            message = f"'{loc[-1]}' is both {known[str(loc[-1])]} and a name of the sweep"
            yield _twice(loc, message, RENAME)
        elif loc[-1] in measured:
            message = f"'{loc[-1]}' is both a metric and a name of the sweep"
            yield _twice(
                loc, message, "tables and plots tell them apart by name: rename one of them"
            )


RENAME = "rules tell them apart by name: rename one of them"


def _reserved_names(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    name = raw.get("name")
    if isinstance(name, str) and name in IN_RESULTS:
        message = f"'{name}' is {IN_RESULTS[name]}, and the experiment's results would be there too"
        yield Complaint(("name",), "E106", message, "choose another name")
    for loc in _swept(raw):
        if loc[-1] in RESERVED:
            message = f"'{loc[-1]}' is already a column of the results"
            yield _twice(loc, message, "sweep another name")
    if "objective" in _mapping(raw, "metrics"):
        hint = "it is measured anyway; remove this metric or rename it"
        yield _twice(("metrics", "objective"), "'objective' already names the objective", hint)
    for name in SHARES & _mapping(raw, "metrics").keys():
        message = f"'{name}' already names a share of trials"
        yield _twice(("metrics", name), message, "it can be shown anyway; rename this metric")


def _labels(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    seen: set[str] = set()
    for k, entry in enumerate(_entries(raw)):
        label = label_of(entry)
        if label in seen:
            hint = f"give one of them a label of its own: {{as: {label}_2}}"
            loc = label_loc(k, entry)
            message = f"two algorithms are called '{label}'"
            yield Complaint(loc, "E106", message, hint, key=len(loc) == 3)
        if label == DEPLOYED:
            loc = label_loc(k, entry)
            message = f"in rules '{DEPLOYED}' is the deployed model: of({DEPLOYED}, ...)"
            hint = "give the algorithm another label: {as: NAME}"
            yield Complaint(loc, "E106", message, hint, key=len(loc) == 3)
        seen |= {label} if label else set()
    wanted = _mapping(raw, "deployed").get("algorithm")
    if seen and isinstance(wanted, str) and wanted not in seen:
        message = f"{shown(wanted)} is not an algorithm of this file"
        hint = did_you_mean(wanted, seen, "algorithms")
        yield Complaint(("deployed", "algorithm"), "E104", message, hint)


def _files(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    report = _mapping(raw, "report")
    for part in ("tables", "plots"):
        seen: set[str] = set()
        entries = report.get(part)
        for k, entry in enumerate(entries if isinstance(entries, list) else []):
            file = entry.get("file") if isinstance(entry, dict) else None
            if isinstance(file, str) and file in seen:
                message = f"two {part} are written to the file {shown(file)}"
                loc = ("report", part, k, "file")
                yield Complaint(loc, "E106", message, "name another file")
            seen |= {file} if isinstance(file, str) else set()


def _sizes(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    """Sweeps that are too big only together; each alone is looked at where it is read."""
    outer = _count(_mapping(raw, "sweep"))
    for k, entry in enumerate(_entries(raw)):
        size = outer * _count(own_sweep(entry))
        if outer <= MAX_POINTS < size:
            loc = ("algorithms", k, next(iter(entry)), "sweep")
            message = f"with the experiment's sweep this makes {size} points, over {MAX_POINTS}"
            yield Complaint(loc, "E105", message, key=True)
            return
    yield from _trials(raw, outer)


def _trials(raw: Mapping[str, Any], outer: int) -> Iterator[Complaint]:
    """Points and seeds that are too many only together."""
    seeds = raw.get("seeds")
    count = seeds if isinstance(seeds, int) else len(seeds) if isinstance(seeds, list) else 1
    trials = sum(outer * _count(own_sweep(entry)) for entry in _entries(raw)) * count
    if trials > MAX_TRIALS and outer <= MAX_POINTS and count <= MAX_SEEDS:
        message = f"this makes {trials} trials, over {MAX_TRIALS}"
        hint = "take fewer seeds or points, or several files"
        yield Complaint(("seeds",), "E105", message, hint, key=True)


def _count(sweep: Mapping[str, Any]) -> int:
    try:
        return len(points(read_sweep(dict(sweep)))) if sweep else 1
    except ValidationError:
        return 1


def _levels(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    """Rows that are one table must all stand at the same levels."""
    entries = {k: v for k, v in _mapping(raw, "datasets").items() if isinstance(v, dict)}
    found = {name: entry.get("levels") for name, entry in entries.items()}
    if len(set(map(repr, found.values()))) < 2 or DATASET in _mapping(raw, "sweep"):
        return
    first = next(name for name, levels in found.items() if levels is not None)
    for name, levels in found.items():
        if levels != found[first]:
            loc = ("datasets", name) if levels is None else ("datasets", name, "levels")
            message = f"'{name}' and '{first}' are one table and stand at different levels"
            hint = f"say levels: {found[first]} for both, or take them one by one"
            yield Complaint(loc, "E104", message, hint, key=levels is None)
