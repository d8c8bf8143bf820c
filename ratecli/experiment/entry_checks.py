"""What an algorithm's entry asks for that the algorithm has no use for, or that it lacks."""

from __future__ import annotations

from collections.abc import Iterator

from ratecli.config.algorithm import AlgorithmSpec
from ratecli.config.document import Document, Loc
from ratecli.config.experiment import Experiment
from ratecli.errors import Diagnostic
from ratecli.experiment.goal_checks import DEPLOYED_HINT
from ratecli.experiment.options import solver_class
from ratecli.experiment.safety import is_safety_tested, merged_safety, own_safety_keys

MARGIN_KEYS = ("constraints_on", "margin")
"""Keys of an entry by which constraints are held more firmly."""


def check_algorithm_entry(
    experiment: Experiment, document: Document, entry: AlgorithmSpec, at: Loc
) -> Iterator[Diagnostic]:
    """E307, E102 for what the algorithm needs; E104 for room that does nothing, or is asked for twice.

    `at` is where the entry stands.
    """
    found = solver_class(entry.name)
    place = document.place(at, key=True)
    if found.needs_deployed and experiment.deployed is None:
        message = f"'{entry.name}' takes the deployed model, and none is given"
        yield Diagnostic("E307", message, DEPLOYED_HINT, place=place)
    if found.needs_promise and not is_safety_tested(experiment, entry):
        message = f"'{entry.name}' trains for a safety test, and there is none"
        yield Diagnostic("E102", message, "say safety: {delta: 0.05}", place=place)
    for key, message, hint in _useless_margin_keys(experiment, entry):
        yield Diagnostic("E104", message, hint, place=document.place((*at, *key)))


def check_filter_compatibility(
    experiment: Experiment,
    document: Document,
    entry: AlgorithmSpec,
    at: Loc,
    *,
    take: str,
    aim: float | None,
) -> Iterator[Diagnostic]:
    """E104 for an algorithm that cannot do with the training rows that the file's filter leaves it.

    Predictions of a safety test count rows alike. An audit of a stored model has to encode features as they
    are without the filter.
    """
    found, place = solver_class(entry.name), document.place(at, key=True)
    predicts = found.needs_promise or (aim is not None and found.role == "enforces")
    if predicts and take == "weights":
        message = (
            f"'{entry.label}' predicts its safety test from training rows that count alike, and the filter "
            "weighs them"
        )
        hint = "say take: sample of the filter, or filter: false here"
        yield Diagnostic("E104", message, hint, place=place)
    stored = experiment.deployed is not None and experiment.deployed.model is not None
    if found.needs_deployed and stored:
        message = f"'{entry.label}' takes a stored model as it is: no rows are filtered for it"
        yield Diagnostic("E104", message, "say filter: false here", place=place)


def _useless_margin_keys(
    experiment: Experiment, entry: AlgorithmSpec
) -> Iterator[tuple[Loc, str, str]]:
    """Keys within the entry that have no part in its trials, why, and what would be right."""
    found, given = solver_class(entry.name), [key for key in MARGIN_KEYS if _states_key(entry, key)]
    if found.role != "enforces":
        for key in given:
            message = f"'{entry.name}' promises nothing: '{key}' has nothing to hold"
            yield (key,), message, "leave it out"
        if own_safety_keys(entry).get("aim") is not None:
            message = f"'{entry.name}' holds no constraint: there is none to tighten for an 'aim'"
            yield ("safety", "aim"), message, "leave it out"
        return
    test = merged_safety(experiment, entry)
    for key in given:
        if found.needs_promise:
            message = (
                f"'{entry.name}' leaves room for its safety test itself, whatever '{key}' says"
            )
            yield (key,), message, "say how much by `inflation`, or by the 'aim' of the test"
        elif test is not None and test.test and test.aim is not None:
            message = f"'aim' of the safety test says how much room there is, and so does '{key}'"
            yield (key,), message, "leave one out"


def _states_key(entry: AlgorithmSpec, key: str) -> bool:
    return bool(getattr(entry, key) != AlgorithmSpec.model_fields[key].default)
