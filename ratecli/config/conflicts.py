"""Conflicts between parts of a file, found in raw data that may have any other errors, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ratecli.config.algorithm import entry_label, entry_label_loc, entry_options, entry_sweep
from ratecli.config.base import FAILURE_RATE, RESERVED_RESULT_FILES, SOLUTION_RATE
from ratecli.config.filter import FILTER
from ratecli.config.sweep import DATASET_AXIS, MAX_POINTS, SWEEP_KEYWORDS, Sweep, sweep_points
from ratecli.config.validation import quote_value
from ratecli.errors import Diagnostic, Loc, did_you_mean

RESULT_COLUMNS = ("algorithm", "variant", "seed", "split", "metric", "value")
"""Columns of the results that a swept name would shadow."""
OUTCOME_SHARES = {SOLUTION_RATE, FAILURE_RATE}
MAX_SEEDS = 10_000
MAX_TRIALS = 100_000
"""Limit on the number of trials; all of them are planned before the first one runs."""
DEPLOYED_LABEL = "deployed"
"""Name of the deployed model in `of(...)`."""
RENAME_HINT = "rules distinguish them by name: rename one of them"
LABEL_HINT = "give the algorithm another label: {as: NAME}"


def find_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Yield all conflicts in raw data."""
    for check in (
        _dataset_sweeps,
        _group_conditions,
        _shared_names,
        _reserved_names,
        _labels,
        _file_names,
        _sweep_sizes,
        _different_levels,
        _safety_tests,
        _dataset_keys,
    ):
        yield from check(raw)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _entries(raw: Mapping[str, Any]) -> list[tuple[Loc, Any]]:
    """Return each algorithm's entry with the location of its options."""
    entries = enumerate(_list(raw.get("algorithms")))
    return [(("algorithms", k, str(entry_options(entry)[0])), entry) for k, entry in entries]


def _sweeps(raw: Mapping[str, Any]) -> Iterator[tuple[Loc, Mapping[str, Any]]]:
    """Yield the experiment's sweep and the algorithms' own, with their locations."""
    yield ("sweep",), _mapping(raw.get("sweep"))
    yield from (((*loc, "sweep"), entry_sweep(entry)) for loc, entry in _entries(raw))


def _swept_locs(raw: Mapping[str, Any]) -> Iterator[Loc]:
    """Yield the location of each swept name."""
    for loc, sweep in _sweeps(raw):
        yield from ((*loc, name) for name in sweep if name not in SWEEP_KEYWORDS)


def _duplicate(loc: Loc, message: str, hint: str | None = None) -> Diagnostic:
    return Diagnostic("E106", message, hint, loc=loc, key=True)


def _dataset_sweeps(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Yield errors about swept data sets."""
    datasets = raw.get("datasets")
    if not isinstance(datasets, dict):
        return
    swept = DATASET_AXIS in _mapping(raw.get("sweep"))
    for loc, sweep in _sweeps(raw):
        for at, value in _swept_datasets(sweep):
            if not isinstance(value, str) or value not in datasets:
                yield _unknown_dataset((*loc, *at), value, datasets)
        if DATASET_AXIS in sweep and not swept:
            message = f"'{DATASET_AXIS}' is swept for one algorithm only"
            hint = "sweep it for all: an algorithm's own sweep may then select some data sets"
            yield Diagnostic("E104", message, hint, loc=(*loc, DATASET_AXIS), key=True)


def _group_conditions(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Yield errors about groups that have a condition for each data set."""
    datasets = _mapping(raw.get("datasets"))
    swept = DATASET_AXIS in _mapping(raw.get("sweep"))
    for name, group in _mapping(raw.get("groups")).items() if datasets else ():
        loc = ("groups", name)
        if not isinstance(group, dict):
            continue
        if not swept:
            message = f"'{name}' has a condition for each data set, but they form one table"
            hint = "write one condition, or `sweep: {dataset: [...]}`"
            yield Diagnostic("E104", message, hint, loc=loc, key=True)
        unknown = [each for each in group if each not in datasets]
        for each in unknown:
            yield _unknown_dataset((*loc, each), each, datasets, key=True)
        missing = [each for each in datasets if each not in group]
        if missing and not unknown:
            message = f"the group '{name}' has no condition for {quote_value(missing[0])}"
            yield Diagnostic("E102", message, f"add {missing[0]}: condition", loc=loc, key=True)


def _unknown_dataset(
    loc: Loc, value: object, datasets: Mapping[str, Any], *, key: bool = False
) -> Diagnostic:
    message = f"{quote_value(value)} is not a data set of this file"
    hint = did_you_mean(str(value), datasets, "data sets here")
    return Diagnostic("E104", message, hint, loc=loc, key=key)


def _swept_datasets(sweep: Mapping[str, Any]) -> Iterator[tuple[Loc, Any]]:
    """Yield each value that a sweep gives to `dataset`, with its location."""
    axis = sweep.get(DATASET_AXIS, [])
    if isinstance(axis, str):
        yield (DATASET_AXIS,), axis
    yield from (((DATASET_AXIS, k), value) for k, value in enumerate(_list(axis)))
    for keyword in ("include", "exclude"):
        for k, point in enumerate(_list(sweep.get(keyword))):
            if DATASET_AXIS in _mapping(point):
                yield (keyword, k, DATASET_AXIS), point[DATASET_AXIS]


def _shared_names(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    known = dict.fromkeys(_mapping(raw.get("datasets")), "a data set")
    for name in _mapping(raw.get("groups")):
        if name in known:
            message = f"'{name}' is both {known[name]} and a group"
            yield _duplicate(("groups", name), message, RENAME_HINT)
        known.setdefault(name, "a group")
    measured = {"objective", *OUTCOME_SHARES, *_mapping(raw.get("metrics"))}
    for loc in _swept_locs(raw):
        name = str(loc[-1])
        if name in known:
            message = f"'{name}' is both {known[name]} and a name of the sweep"
            yield _duplicate(loc, message, RENAME_HINT)
        elif name in measured:
            hint = "tables and plots distinguish them by name: rename one of them"
            yield _duplicate(loc, f"'{name}' is both a metric and a name of the sweep", hint)


def _reserved_names(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    name = raw.get("name")
    if isinstance(name, str) and name in RESERVED_RESULT_FILES:
        message = f"'{name}' is {RESERVED_RESULT_FILES[name]}"
        yield Diagnostic("E106", message, "choose another name", loc=("name",))
    for loc in _swept_locs(raw):
        if loc[-1] in RESULT_COLUMNS:
            message = f"'{loc[-1]}' is already a column of the results"
            yield _duplicate(loc, message, "sweep another name")
    for name in _mapping(raw.get("metrics")).keys() & {"objective", *OUTCOME_SHARES}:
        hint = "it is always measured; remove this metric or rename it"
        yield _duplicate(("metrics", name), f"'{name}' is already a metric", hint)


def _labels(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for k, (_, entry) in enumerate(_entries(raw)):
        label, loc = entry_label(entry), entry_label_loc(k, entry)
        message, hint = None, LABEL_HINT
        if label in seen:
            message = f"two algorithms are called '{label}'"
            hint = f"give one of them another label: {{as: {label}_2}}"
        elif label == DEPLOYED_LABEL:
            message = f"in rules '{label}' is the deployed model: of({label}, ...)"
        elif label == FILTER and raw.get("filter") is not None:
            message = f"'{FILTER}' is the label of the results of `filter:`"
        if message:
            yield Diagnostic("E106", message, hint, loc=loc, key=len(loc) == 3)
        seen |= {label} if label else set()
    wanted = _mapping(raw.get("deployed")).get("algorithm")
    if seen and isinstance(wanted, str) and wanted not in seen:
        message = f"{quote_value(wanted)} is not an algorithm of this file"
        hint = did_you_mean(wanted, seen, "algorithms")
        yield Diagnostic("E104", message, hint, loc=("deployed", "algorithm"))


def _file_names(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    for part in ("tables", "plots"):
        seen: set[str] = set()
        for k, entry in enumerate(_list(_mapping(raw.get("report")).get(part))):
            file = _mapping(entry).get("file")
            if isinstance(file, str):
                if file in seen:
                    message = f"two {part} are written to the file {quote_value(file)}"
                    loc = ("report", part, k, "file")
                    yield Diagnostic("E106", message, "name another file", loc=loc)
                seen.add(file)


def _sweep_sizes(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Yield errors of sweeps and seeds that are too many in combination.

    `Sweep` checks each sweep alone.
    """
    outer = _count_points(_mapping(raw.get("sweep")))
    sizes = {loc: outer * _count_points(entry_sweep(entry)) for loc, entry in _entries(raw)}
    for loc, size in sizes.items():
        if outer <= MAX_POINTS < size:
            message = f"with the experiment's sweep this makes {size} points, over {MAX_POINTS}"
            yield Diagnostic("E105", message, loc=(*loc, "sweep"), key=True)
            return
    seeds = raw.get("seeds")
    count = seeds if isinstance(seeds, int) else len(_list(seeds)) or 1
    trials = sum(sizes.values()) * count
    if trials > MAX_TRIALS and outer <= MAX_POINTS and count <= MAX_SEEDS:
        message = f"this makes {trials} trials, over {MAX_TRIALS}"
        hint = "use fewer seeds or points, or several files"
        yield Diagnostic("E105", message, hint, loc=("seeds",), key=True)


def _count_points(sweep: Mapping[str, Any]) -> int:
    try:
        return len(sweep_points(Sweep.model_validate(sweep))) if sweep else 1
    except ValidationError:
        return 1


def _different_levels(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Yield errors of data sets of one table that have different levels."""
    entries = _mapping(raw.get("datasets")).items()
    levels = {name: entry.get("levels") for name, entry in entries if isinstance(entry, dict)}
    first = next((name for name in levels if levels[name] is not None), None)
    if first is None or DATASET_AXIS in _mapping(raw.get("sweep")):
        return
    for name, own in levels.items():
        if own != levels[first]:
            loc = ("datasets", name) if own is None else ("datasets", name, "levels")
            message = f"'{name}' and '{first}' form one table but have different levels"
            hint = f"write levels: {levels[first]} for both, or sweep the data sets"
            yield Diagnostic("E104", message, hint, loc=loc, key=own is None)


def _all_safety_tests(raw: Mapping[str, Any]) -> dict[Loc, Mapping[str, Any]]:
    """Return each safety test in the file by its location."""
    found: dict[Loc, Any] = {("safety",): raw.get("safety")} | {
        (*loc, "safety"): entry_options(entry)[1].get("safety") for loc, entry in _entries(raw)
    }
    return {loc: test for loc, test in found.items() if isinstance(test, dict)}


def _safety_tests(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    rules = _mapping(raw.get("constraints"))
    for loc, test in _all_safety_tests(raw).items():
        if not raw.get("constraints"):
            message = "'safety' has nothing to test: there are no constraints"
            hint = "write `constraints`, or remove the test"
            yield Diagnostic("E104", message, hint, loc=loc, key=True)
        for name in _mapping(test.get("delta")) if rules else ():
            if name not in rules:
                message = f"no constraint is called {quote_value(name)}"
                hint = did_you_mean(str(name), rules, "constraints")
                yield Diagnostic("E203", message, hint, loc=(*loc, "delta", name), key=True)


def _dataset_keys(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Yield errors of keys of data sets that conflict with resampling, filters or safety tests."""
    for present, key, other, reason in (
        (_all_safety_tests(raw), "levels", "safety", "copies of a row are not independent"),
        (raw.get("filter") is not None, "levels", "filter", "copies of a row are kept together"),
        (raw.get("resample") is not None, "split", "resample", "training rows are drawn at random"),
    ):
        for name, entry in _mapping(raw.get("datasets")).items() if present else ():
            if _mapping(entry).get(key) is not None:
                message = f"'{key}' cannot be combined with '{other}': {reason}"
                loc = ("datasets", name, key)
                yield Diagnostic("E104", message, "remove one of them", loc=loc, key=True)
