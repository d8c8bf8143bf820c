"""What `safety:` and `resample:` say together with other parts of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ratecli.config.complaint import Complaint, quote_value
from ratecli.config.document import Loc
from ratecli.errors import did_you_mean


def safety_conflicts(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    """Complaints about raw data that may be wrong in any other way, too."""
    tests = list(_safety_tests(raw))
    for loc, test in tests:
        yield from _untested_conflicts(loc, raw)
        yield from _unknown_delta_keys(loc, test, raw)
    if tests:
        yield from _safety_level_conflicts(raw)
    if raw.get("resample") is not None:
        yield from _resample_conflicts(raw)


def _safety_tests(raw: Mapping[str, Any]) -> Iterator[tuple[Loc, Mapping[str, Any]]]:
    """Every safety test that the file states, and where it stands."""
    if isinstance(raw.get("safety"), dict):
        yield ("safety",), raw["safety"]
    entries = raw.get("algorithms")
    for k, entry in enumerate(entries if isinstance(entries, list) else []):
        for name, given in entry.items() if isinstance(entry, dict) else ():
            test = given.get("safety") if isinstance(given, dict) else None
            if isinstance(test, dict):
                yield ("algorithms", k, name, "safety"), test


def _untested_conflicts(loc: Loc, raw: Mapping[str, Any]) -> Iterator[Complaint]:
    if not raw.get("constraints"):
        message = "'safety' has nothing to test: there are no constraints"
        hint = "state under `constraints` what a model must keep, or leave the test out"
        yield Complaint(loc, "E104", message, hint, key=True)


def _unknown_delta_keys(
    loc: Loc, test: Mapping[str, Any], raw: Mapping[str, Any]
) -> Iterator[Complaint]:
    """Names in a mapping of deltas that are no constraints."""
    delta, rules = test.get("delta"), raw.get("constraints")
    known = rules if isinstance(rules, dict) else {}
    for name in delta if isinstance(delta, dict) and known else ():
        if name not in known:
            message = f"no constraint is called {quote_value(name)}"
            hint = did_you_mean(str(name), known, "constraints")
            yield Complaint((*loc, "delta", name), "E203", message, hint, key=True)


def _safety_level_conflicts(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    for name, entry in _raw_datasets(raw).items():
        if entry.get("levels") is not None:
            message = "a safety test needs rows that are independent, and copies of a row are not"
            loc = ("datasets", name, "levels")
            yield Complaint(loc, "E104", message, "leave out the levels, or the test", key=True)


def _resample_conflicts(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    for name, entry in _raw_datasets(raw).items():
        if entry.get("split") is not None:
            message = "'split' does not go with 'resample', which draws the training rows itself"
            hint = "leave out the split: all rows of the data set are its test rows"
            yield Complaint(("datasets", name, "split"), "E104", message, hint, key=True)


def _raw_datasets(raw: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found = raw.get("datasets")
    entries = found if isinstance(found, dict) else {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}
