"""The settings of an experiment that affect its results, and what changed in them.

A setting is a value of the file as text. Its name is its path in the file, with the algorithm's
label: `algorithms.majorize.iterations`. Defaults are not stored, since they change with ratecli.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ratecli.config.experiment import Experiment
from ratecli.errors import Diagnostic, Loc

ALGORITHMS = "algorithms"
OTHER_KEYS = frozenset(
    {"name", "description", "sweep", "seeds", "limits", "trial_seconds", "report", "expect"}
)
"""Keys of the file that do not affect numbers, or that are compared by themselves."""
COMPARED_SECTIONS = (f"{ALGORITHMS}.", "metrics.", "datasets.")
NOT_SET = "not set"
MAX_TEXT = 100
"""Longest text of a value in a message."""

Settings = Mapping[str, str]
Changes = Mapping[str, tuple[str, str]]
"""Pinned and current text of each setting that differs."""


def experiment_settings(experiment: Mapping[str, Any]) -> dict[str, str]:
    """Return every setting of an experiment as plain data (`Experiment.resolved`)."""
    sections = {key: each for key, each in experiment.items() if key not in OTHER_KEYS}
    entries = sections.pop(ALGORITHMS, [])
    found = dict(_flatten("", sections))
    for name in sections.get("datasets", {}):
        found.pop(f"datasets.{name}.path", None)  # may differ between machines
    for entry in entries:
        ((name, given),) = entry.items()
        own = {key: each for key, each in given.items() if key not in {"as", "sweep"}}
        label = given.get("as", name)
        found |= _flatten(f"{ALGORITHMS}.{label}.", {"algorithm": name, **own})
    return found


def _flatten(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from _flatten(f"{prefix}{key}.", part)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield prefix.removesuffix("."), ", ".join(map(str, value)) or "none"
    elif value is not None and value != {}:
        yield prefix.removesuffix("."), " ".join(str(value).split())


def changed_settings(was: Settings, now: Settings) -> dict[str, tuple[str, str]]:
    """Return the settings that differ, in the order of the file.

    Algorithms, metrics and data sets that were added or removed are not listed: that is reported
    where they are compared. Nor are the options of a label that has another algorithm now.
    """
    both = {*map(_owner, was)} & {*map(_owner, now)}
    found = {
        name: (was.get(name, NOT_SET), now.get(name, NOT_SET))
        for name in dict.fromkeys([*now, *was])
        if was.get(name) != now.get(name)
        if _owner(name) in both or not name.startswith(COMPARED_SECTIONS)
    }
    renamed = tuple(f"{_owner(name)}." for name in found if name.endswith(".algorithm"))
    return {k: v for k, v in found.items() if k.endswith(".algorithm") or not k.startswith(renamed)}


def _owner(name: str) -> str:
    """Return the name of the algorithm, data set or rule that a setting belongs to."""
    return ".".join(name.split(".")[:2])


def changed_data(changes: Changes, was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the data sets whose digest differs although none of their settings does."""
    return [
        name
        for name in sorted({**now, **was})
        if now.get(name) != was.get(name)
        and not any(each.startswith(f"datasets.{name}.") for each in changes)
    ]


def change_notes(experiment: Experiment, changes: Changes, data: Sequence[str]) -> list[Diagnostic]:
    """Return a warning (W503) for each changed setting, and for each data set with other rows."""
    since, how = "changed since the results were pinned", "its file or preparation differs"
    found: list[tuple[Loc, str]] = [
        (_loc(experiment, name), f"'{name}' {since}: {_shorten(was)} -> {_shorten(now)}")
        for name, (was, now) in changes.items()
    ]
    found += [
        (("datasets", name), f"data set '{name}' {since}: it was added or removed, or {how}")
        for name in data
    ]
    hint = "the results are compared nevertheless; pin again if the change is intended"
    return [Diagnostic("W503", text, hint, loc=loc, key=True) for loc, text in found]


def _loc(experiment: Experiment, name: str) -> Loc:
    """Return the location of a setting in the file, or of the nearest key around it."""
    section, *path = name.split(".")
    labels = [entry.label for entry in experiment.algorithms]
    if section != ALGORITHMS:
        return (section, *path)
    return experiment.entry_loc(path[0], *path[1:]) if path[0] in labels else (section,)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
