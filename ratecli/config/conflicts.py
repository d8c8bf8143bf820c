"""Conflicts between parts of a file: duplicate names, too many trials, different levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ratecli.config.algorithm import entry_label, entry_label_loc, entry_sweep
from ratecli.config.base import FAILURE_RATE, RESERVED_RESULT_FILES, SOLUTION_RATE
from ratecli.config.dataset_sweep import DATASET_AXIS, dataset_sweep_conflicts
from ratecli.config.filter import FILTER
from ratecli.config.sweep import sweep_points
from ratecli.config.sweep_reader import MAX_POINTS, SWEEP_KEYWORDS, read_sweep
from ratecli.config.validation import quote_value
from ratecli.errors import Diagnostic, FaultError, Loc, did_you_mean


def safety_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Yield conflicts of safety tests and resampling; `raw` may have any other errors, too."""
    tests = list(_safety_tests(raw))
    for loc, test in tests:
        yield from _untested_conflicts(loc, raw)
        yield from _unknown_delta_keys(loc, test, raw)
    if tests:
        yield from _safety_level_conflicts(raw)
    if raw.get("resample") is not None:
        yield from _resample_conflicts(raw)


def _safety_tests(raw: Mapping[str, Any]) -> Iterator[tuple[Loc, Mapping[str, Any]]]:
    """Yield each safety test in the file with its location."""
    if isinstance(raw.get("safety"), dict):
        yield ("safety",), raw["safety"]
    entries = raw.get("algorithms")
    for k, entry in enumerate(entries if isinstance(entries, list) else []):
        for name, given in entry.items() if isinstance(entry, dict) else ():
            test = given.get("safety") if isinstance(given, dict) else None
            if isinstance(test, dict):
                yield ("algorithms", k, name, "safety"), test


def _untested_conflicts(loc: Loc, raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    if not raw.get("constraints"):
        message = "'safety' has nothing to test: there are no constraints"
        hint = "state under `constraints` what a model must keep, or leave the test out"
        yield Diagnostic("E104", message, hint, loc=loc, key=True)


def _unknown_delta_keys(
    loc: Loc, test: Mapping[str, Any], raw: Mapping[str, Any]
) -> Iterator[Diagnostic]:
    """Report keys of `delta` that do not name a constraint."""
    delta, rules = test.get("delta"), raw.get("constraints")
    known = rules if isinstance(rules, dict) else {}
    for name in delta if isinstance(delta, dict) and known else ():
        if name not in known:
            message = f"no constraint is called {quote_value(name)}"
            hint = did_you_mean(str(name), known, "constraints")
            yield Diagnostic("E203", message, hint, loc=(*loc, "delta", name), key=True)


def _safety_level_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    for name, entry in _raw_datasets(raw).items():
        if entry.get("levels") is not None:
            message = "a safety test needs rows that are independent, and copies of a row are not"
            loc = ("datasets", name, "levels")
            yield Diagnostic(
                "E104", message, "leave out the levels, or the test", loc=loc, key=True
            )


def _resample_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    for name, entry in _raw_datasets(raw).items():
        if entry.get("split") is not None:
            message = "'split' does not go with 'resample', which draws the training rows itself"
            hint = "leave out the split: all rows of the data set are its test rows"
            yield Diagnostic("E104", message, hint, loc=("datasets", name, "split"), key=True)


def _raw_datasets(raw: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found = raw.get("datasets")
    entries = found if isinstance(found, dict) else {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def filter_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Yield conflicts of the filter; `raw` may have any other errors, too."""
    if raw.get("filter") is None:
        return
    yield from _filter_label_conflicts(raw)
    yield from _filter_level_conflicts(raw)


def _filter_label_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    entries = raw.get("algorithms")
    for k, entry in enumerate(entries if isinstance(entries, list) else []):
        if entry_label(entry) == FILTER:
            loc = entry_label_loc(k, entry)
            message = f"'{FILTER}' is what the results of `filter:` are called"
            hint = "give the algorithm another label: {as: NAME}"
            yield Diagnostic("E106", message, hint, loc=loc, key=len(loc) == 3)


def _filter_level_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    datasets = raw.get("datasets")
    for name, entry in (datasets if isinstance(datasets, dict) else {}).items():
        if isinstance(entry, dict) and entry.get("levels") is not None:
            message = "a filter keeps rows as wholes, and with 'levels' each stands several times"
            loc = ("datasets", name, "levels")
            yield Diagnostic(
                "E104", message, "leave out the levels, or the filter", loc=loc, key=True
            )


RESERVED_NAMES = ("algorithm", "variant", "seed", "split", "metric", "value")
"""Columns of the results that a swept name would shadow."""

OUTCOME_SHARES = {SOLUTION_RATE, FAILURE_RATE}
MAX_SEEDS = 10_000
MAX_TRIALS = 100_000
"""Limit on the number of trials; all of them are planned before the first one runs."""
DEPLOYED_LABEL = "deployed"
"""Name of the deployed model in `of(...)`."""


def find_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Yield all conflicts in raw data, which may have any other errors, too."""
    yield from dataset_sweep_conflicts(raw)
    yield from _shared_names(raw)
    yield from _reserved_names(raw)
    yield from _label_conflicts(raw)
    yield from _file_name_conflicts(raw)
    yield from _sweep_size_conflicts(raw)
    yield from _level_conflicts(raw)
    yield from safety_conflicts(raw)
    yield from filter_conflicts(raw)


def _duplicate(loc: Loc, message: str, hint: str | None = None) -> Diagnostic:
    return Diagnostic("E106", message, hint, loc=loc, key=True)


def _mapping_at(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def _algorithm_entries(raw: Mapping[str, Any]) -> list[Any]:
    value = raw.get("algorithms")
    return value if isinstance(value, list) else []


def _swept_locs(raw: Mapping[str, Any]) -> Iterator[Loc]:
    """Yield the location of each swept name, in the experiment's sweep and the algorithms' own."""
    yield from (("sweep", name) for name in _mapping_at(raw, "sweep") if name not in SWEEP_KEYWORDS)
    for k, entry in enumerate(_algorithm_entries(raw)):
        names = [name for name in entry_sweep(entry) if name not in SWEEP_KEYWORDS]
        yield from (("algorithms", k, next(iter(entry)), "sweep", name) for name in names)


def _shared_names(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    known = dict.fromkeys(_mapping_at(raw, "datasets"), "a data set")
    for name in _mapping_at(raw, "groups"):
        if known.setdefault(name, "a group") != "a group":
            yield _duplicate(
                ("groups", name), f"'{name}' is both {known[name]} and a group", RENAME_HINT
            )
    measured = {"objective", *OUTCOME_SHARES, *_mapping_at(raw, "metrics")}
    for loc in _swept_locs(raw):
        if loc[-1] in known:
            message = f"'{loc[-1]}' is both {known[str(loc[-1])]} and a name of the sweep"
            yield _duplicate(loc, message, RENAME_HINT)
        elif loc[-1] in measured:
            message = f"'{loc[-1]}' is both a metric and a name of the sweep"
            yield _duplicate(
                loc, message, "tables and plots tell them apart by name: rename one of them"
            )


RENAME_HINT = "rules tell them apart by name: rename one of them"


def _reserved_names(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    name = raw.get("name")
    if isinstance(name, str) and name in RESERVED_RESULT_FILES:
        message = (
            f"'{name}' is {RESERVED_RESULT_FILES[name]}, and the experiment's results would "
            f"be there too"
        )
        yield Diagnostic("E106", message, "choose another name", loc=("name",))
    for loc in _swept_locs(raw):
        if loc[-1] in RESERVED_NAMES:
            message = f"'{loc[-1]}' is already a column of the results"
            yield _duplicate(loc, message, "sweep another name")
    if "objective" in _mapping_at(raw, "metrics"):
        hint = "it is measured anyway; remove this metric or rename it"
        yield _duplicate(("metrics", "objective"), "'objective' already names the objective", hint)
    for name in OUTCOME_SHARES & _mapping_at(raw, "metrics").keys():
        message = f"'{name}' already names a share of trials"
        yield _duplicate(("metrics", name), message, "it can be shown anyway; rename this metric")


def _label_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for k, entry in enumerate(_algorithm_entries(raw)):
        label = entry_label(entry)
        if label in seen:
            hint = f"give one of them a label of its own: {{as: {label}_2}}"
            loc = entry_label_loc(k, entry)
            message = f"two algorithms are called '{label}'"
            yield Diagnostic("E106", message, hint, loc=loc, key=len(loc) == 3)
        if label == DEPLOYED_LABEL:
            loc = entry_label_loc(k, entry)
            message = (
                f"in rules '{DEPLOYED_LABEL}' is the deployed model: of({DEPLOYED_LABEL}, ...)"
            )
            hint = "give the algorithm another label: {as: NAME}"
            yield Diagnostic("E106", message, hint, loc=loc, key=len(loc) == 3)
        seen |= {label} if label else set()
    wanted = _mapping_at(raw, "deployed").get("algorithm")
    if seen and isinstance(wanted, str) and wanted not in seen:
        message = f"{quote_value(wanted)} is not an algorithm of this file"
        hint = did_you_mean(wanted, seen, "algorithms")
        yield Diagnostic("E104", message, hint, loc=("deployed", "algorithm"))


def _file_name_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    report = _mapping_at(raw, "report")
    for part in ("tables", "plots"):
        seen: set[str] = set()
        entries = report.get(part)
        for k, entry in enumerate(entries if isinstance(entries, list) else []):
            file = entry.get("file") if isinstance(entry, dict) else None
            if isinstance(file, str) and file in seen:
                message = f"two {part} are written to the file {quote_value(file)}"
                loc = ("report", part, k, "file")
                yield Diagnostic("E106", message, "name another file", loc=loc)
            seen |= {file} if isinstance(file, str) else set()


def _sweep_size_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Report sweeps that are too large in combination; `read_sweep` checks each one alone."""
    outer = _count_points(_mapping_at(raw, "sweep"))
    for k, entry in enumerate(_algorithm_entries(raw)):
        size = outer * _count_points(entry_sweep(entry))
        if outer <= MAX_POINTS < size:
            loc = ("algorithms", k, next(iter(entry)), "sweep")
            message = f"with the experiment's sweep this makes {size} points, over {MAX_POINTS}"
            yield Diagnostic("E105", message, loc=loc, key=True)
            return
    yield from _trial_count_conflicts(raw, outer)


def _trial_count_conflicts(raw: Mapping[str, Any], outer: int) -> Iterator[Diagnostic]:
    """Report points and seeds that are too many in combination."""
    seeds = raw.get("seeds")
    count = seeds if isinstance(seeds, int) else len(seeds) if isinstance(seeds, list) else 1
    trials = (
        sum(outer * _count_points(entry_sweep(entry)) for entry in _algorithm_entries(raw)) * count
    )
    if trials > MAX_TRIALS and outer <= MAX_POINTS and count <= MAX_SEEDS:
        message = f"this makes {trials} trials, over {MAX_TRIALS}"
        hint = "take fewer seeds or points, or several files"
        yield Diagnostic("E105", message, hint, loc=("seeds",), key=True)


def _count_points(sweep: Mapping[str, Any]) -> int:
    try:
        return len(sweep_points(read_sweep(dict(sweep)))) if sweep else 1
    except FaultError:
        return 1


def _level_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Report data sets of one table that have different levels."""
    entries = {k: v for k, v in _mapping_at(raw, "datasets").items() if isinstance(v, dict)}
    found = {name: entry.get("levels") for name, entry in entries.items()}
    if len(set(map(repr, found.values()))) < 2 or DATASET_AXIS in _mapping_at(raw, "sweep"):
        return
    first = next(name for name, levels in found.items() if levels is not None)
    for name, levels in found.items():
        if levels != found[first]:
            loc = ("datasets", name) if levels is None else ("datasets", name, "levels")
            message = f"'{name}' and '{first}' are one table and stand at different levels"
            hint = f"say levels: {found[first]} for both, or take them one by one"
            yield Diagnostic("E104", message, hint, loc=loc, key=levels is None)
