"""The filter before training as it was understood, in lines for a person to read."""

from __future__ import annotations

from collections.abc import Iterator

from ratecli.config.experiment import Experiment
from ratecli.experiment.cases import Case
from ratecli.experiment.filter_stage import filter_stage_cases
from ratecli.experiment.options import all_options
from ratecli.experiment.prepare import PreparedExperiment
from ratecli.rates.balance import balance

MAX_FILTER_CASES = 4
"""Up to so many filters are all shown."""


def explain_filter(prepared: PreparedExperiment) -> list[str]:
    """What training rows go through, at which sweep points, and whose; nothing without a filter."""
    experiment = prepared.experiment
    if experiment.filter is None:
        return []
    found = list(filter_stage_cases(prepared.cases).values())
    lines = list(_explain_filter_users(experiment, prepared.cases))
    for case in found[:MAX_FILTER_CASES]:
        lines += _explain_filter_case(case)
    if len(found) > MAX_FILTER_CASES:
        lines.append(f"... {len(found) - MAX_FILTER_CASES} more filters ...")
    return ["filter", *(f"  {line}" for line in lines)]


def _explain_filter_users(experiment: Experiment, cases: tuple[Case, ...]) -> Iterator[str]:
    words = {
        "weights": "training rows count by the chance that they are kept",
        "sample": "of the training rows a sample is drawn by the seed",
    }
    takes = {case.filtering.take for case in cases if case.filtering is not None}
    yield from (words[take] for take in sorted(takes))
    free = [entry.label for entry in experiment.algorithms if entry.filter is False]
    users = [entry.label for entry in experiment.algorithms if entry.filter is not False]
    yield f"for {', '.join(users) if users else 'nobody'}"
    if free:
        yield f"not for {', '.join(free)}, which train on all rows"


def _explain_filter_case(case: Case) -> Iterator[str]:
    point = ", ".join(f"{name}={value}" for name, value in case.point.items())
    yield f"{case.label}{f' at {point}' if point else ''}"
    options = ", ".join(f"{key}={value}" for key, value in all_options(case.solver).items())
    yield f"  {case.algorithm}: {options}"
    yield f"  minimize    {case.objective.text}"
    yield from (f"  subject to  {rule.text}" for rule in case.constraints)
    wanted = balance(case.objective.expression)
    assert wanted is not None
    pairs = zip(wanted.groups, wanted.target, strict=True)
    yield from (f"  wanted      {target:.4g} of {leaf.where}" for leaf, target in pairs)
    yield f"  not seen    {', '.join(case.unseen)}"
