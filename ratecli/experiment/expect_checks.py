"""What an `expect:` compares, checked against what there will be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ratecli.config.dataset_sweep import DATASET_AXIS
from ratecli.config.document import Document, Loc
from ratecli.config.expect import Expectation
from ratecli.config.experiment import Experiment
from ratecli.config.names import FAILURE_RATE, SOLUTION_RATE
from ratecli.config.sweep import SweepValue, has_values
from ratecli.errors import Diagnostic, did_you_mean
from ratecli.experiment.cases import Case
from ratecli.experiment.report_checks import (
    measured_names,
    outcome_share_names,
    possible_filter_labels,
)
from ratecli.ledger.records import VIOLATION_PREFIX

MAX_LISTED_VALUES = 12
"""Values of a swept name that a message still lists."""


def check_expectations(
    experiment: Experiment, document: Document, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """A fault for every expectation of which no number can come: E101 for a key that nothing sweeps,
    E104 for a sweep point that is not run, E202 for the algorithm, E208 for the metric.

    `cases` may lack those of algorithms that have faults of their own.
    """
    labels = [
        *(entry.label for entry in experiment.algorithms),
        *possible_filter_labels(experiment),
    ]
    metrics = [*measured_names(experiment), *outcome_share_names(experiment)]
    for index, entry in enumerate(experiment.expect):
        loc: Loc = ("expect", index)
        if entry.algorithm not in labels:
            message = f"no algorithm of this file is called '{entry.algorithm}'"
            hint = did_you_mean(entry.algorithm, labels, "algorithms")
            yield Diagnostic("E202", message, hint, place=document.place((*loc, "algorithm")))
        if entry.metric not in metrics:
            message = f"nothing that is measured is called '{entry.metric}'"
            hint = did_you_mean(entry.metric, metrics, "metrics")
            yield Diagnostic("E208", message, hint, place=document.place((*loc, "metric")))
        own = [case for case in cases if case.label == entry.algorithm]
        if own:
            yield from _check_expected_keys(document, loc, entry, cases)
        if own and not _left_out(experiment, entry, cases):
            yield from _check_expected_number(document, loc, entry, own, metrics)


def _left_out(experiment: Experiment, entry: Expectation, cases: Sequence[Case]) -> bool:
    """Whether it is of a data set of the file that the sweep passes over, as for a look at another."""
    name = entry.point.get(DATASET_AXIS)
    return name in experiment.datasets and not any(case.datasets == (name,) for case in cases)


def check_expected_splits(
    experiment: Experiment, document: Document, splits: Mapping[tuple[str, ...], Collection[str]]
) -> Iterator[Diagnostic]:
    """An E208 for every expectation of rows that there are none of, in any of the data sets that it is
    about; `splits` are those of some rows, by data sets that are put together.
    """
    for index, entry in enumerate(experiment.expect):
        name = entry.point.get(DATASET_AXIS)
        known = [split for pool, own in splits.items() if name in {None, *pool} for split in own]
        if known and entry.split not in known and entry.metric != SOLUTION_RATE:
            who = "no data set has" if name is None else f"'{name}' has no"
            message = f"{who} {entry.split} rows to compare"
            listed = " or ".join(dict.fromkeys(known))
            hint = f"say split: {listed}, or give a data set such rows by its split"
            place = document.place(("expect", index, "split"))
            yield Diagnostic("E208", message, hint, place=place)


def check_expected_variants(
    experiment: Experiment, document: Document, given: Collection[tuple[str, str]]
) -> Iterator[Diagnostic]:
    """A W208 for every expectation of a variant that is none of those, each (label, variant), that
    trials of its algorithm gave; where they gave none, nothing is known.
    """
    for index, entry in enumerate(experiment.expect):
        known = [variant for label, variant in given if label == entry.algorithm]
        if entry.variant is not None and known and entry.variant not in known:
            message = f"no trial of '{entry.algorithm}' gave a variant '{entry.variant}'"
            hint = did_you_mean(entry.variant, known, "variants")
            place = document.place(("expect", index, "variant"))
            yield Diagnostic("W208", message, hint, place=place)


def _check_expected_keys(
    document: Document, loc: Loc, entry: Expectation, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    names = {name for case in cases for name in case.point}
    for key in (key for key in entry.point if key not in names):
        hint = did_you_mean(key, [*type(entry).model_fields, *names], "keys and names that vary")
        place = document.place((*loc, key), key=True)
        yield Diagnostic("E101", f"unknown key '{key}'", hint, place=place)
    own = {name for case in cases if case.label == entry.algorithm for name in case.point}
    for key in (key for key in entry.point if key in names - own):
        message = f"'{key}' does not vary for '{entry.algorithm}'"
        place = document.place((*loc, key), key=True)
        yield Diagnostic("E104", message, "remove it", place=place)


def _check_expected_number(
    document: Document, loc: Loc, entry: Expectation, own: Sequence[Case], metrics: Collection[str]
) -> Iterator[Diagnostic]:
    """Of an algorithm's own cases: values that none has, points that none is at, metrics left out."""
    point = {
        name: value for name, value in entry.point.items() if any(name in c.point for c in own)
    }
    absent = [
        name
        for name, value in point.items()
        if not any(has_values(case.point, {name: value}) for case in own)
    ]
    for name in absent:
        values = dict.fromkeys(case.point[name] for case in own if name in case.point)
        message = (
            f"'{entry.algorithm}' is not run at {name} = {_format_expected_value(point[name])}"
        )
        place = document.place((*loc, name))
        yield Diagnostic("E104", message, _format_value_list(list(values)), place=place)
    there = [case for case in own if has_values(case.point, point)]
    if not absent and not there:
        pairs = ", ".join(
            f"{name} = {_format_expected_value(value)}" for name, value in point.items()
        )
        message = f"'{entry.algorithm}' is not run at {pairs} together"
        place = document.place(loc, key=True)
        yield Diagnostic("E104", message, "`ratecli plan` lists what is run", place=place)
    if there and entry.metric in metrics and not any(_measures(c, entry.metric) for c in there):
        message = f"'{entry.metric}' is not measured for '{entry.algorithm}' there"
        hint = "it speaks of a name that has no value there"
        yield Diagnostic("E208", message, hint, place=document.place((*loc, "metric")))


def _measures(case: Case, metric: str) -> bool:
    """Whether a case's trials have the number, or what tells the share of those that fail."""
    if metric == FAILURE_RATE:
        return any(name.startswith(VIOLATION_PREFIX) for name in case.metrics)
    name = metric.replace(f"{FAILURE_RATE}.", VIOLATION_PREFIX)
    return metric == SOLUTION_RATE or name in case.metrics


def _format_expected_value(value: SweepValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    numeric = isinstance(value, str) and value.replace(".", "", 1).isdigit()
    return f"'{value}'" if numeric else f"{value}"


def _format_value_list(values: Sequence[SweepValue]) -> str:
    more = ", ..." if len(values) > MAX_LISTED_VALUES else ""
    return f"values: {', '.join(map(_format_expected_value, values[:MAX_LISTED_VALUES]))}{more}"
