"""The `safety:` section: the test on held-out rows that a trained model must pass."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainValidator

from ratecli.config.base import ColumnNames, NumberRange, Spec, StrictFlag, not_null, validate_each

DEFAULT_DELTA = 0.05
"""Delta of constraints that a mapping `delta` does not name."""
DEFAULT_FRACTION = 0.5
"""Fraction of the training rows that are held out for the safety test."""
PROBABILITY_RANGE = NumberRange(0, 1, above=True, below=True)
AIM_RANGE = NumberRange(0.5, 1, below=True)
"""Valid `aim`: 0.5 tightens nothing; 1 would require an infinite margin."""


def _validate_delta(value: object) -> object:
    """Return delta: one for all constraints, or a mapping of constraints to deltas."""
    if isinstance(value, dict):
        validate_each(value.items(), PROBABILITY_RANGE.validate)
    else:
        PROBABILITY_RANGE.validate(value)
    return value


Probability = Annotated[float | str, PROBABILITY_RANGE]
DeltaField = Annotated[
    float | str | dict[str, float | str],
    PlainValidator(_validate_delta, json_schema_input_type=Probability | dict[str, Probability]),
]


class SafetySpec(Spec):
    """A test of every constraint on held-out rows; a model that fails it is not returned."""

    delta: DeltaField = DEFAULT_DELTA
    """The highest probability that a model passes although it violates a constraint: a number, a
    fraction such as 1/20, a name of the sweep, or one of these for each constraint by its name
    (default: 0.05).
    """
    bound: Literal[
        "auto",
        "student_t",
        "hoeffding",
        "clopper_pearson",
        "empirical_bernstein",
        "anderson",
        "betting",
        "bootstrap",
    ] = "auto"
    """The confidence bound; `auto` selects one that suits the rates."""
    fraction: Probability = DEFAULT_FRACTION
    """Fraction of the training rows to hold out for the test, or a name of the sweep."""
    method: Literal["leaves", "forms", "pieces"] = "pieces"
    """What is bounded: every rate (leaves), affine combinations of rates (forms), or these for each
    part of a maximum, each at the whole delta (pieces).
    """
    stratify: ColumnNames | None = None
    """Columns (or label) with equal shares in the test and in training."""
    order: Literal["shuffled", "positional"] = "shuffled"
    """Which rows to hold out: random ones, or the last ones of the file."""
    test: StrictFlag = True
    """false holds the rows out without a test: for an algorithm that others are compared with by
    of(...), which must not see the rows of their tests.
    """
    aim: Annotated[float | str, AIM_RANGE] | None = None
    """The probability with which a model should pass: an algorithm that supports constraints is
    trained with tightened ones until that is likely. Models with larger and smaller margins are
    trained, too, and tested from the safest to the boldest until one fails; the last that passed is
    returned. A number, or a name of the sweep.
    """
    guarantee: Literal["each", "joint"] = "each"
    """What delta bounds: the probability that a model passes although it violates a constraint, for
    each algorithm and variant by itself (each), or the probability that any of them does (joint,
    for a user who chooses among models that passed: delta is divided among them). Set it for the
    whole file.
    """


OptionalSafety = Annotated[SafetySpec | None, not_null(SafetySpec)]


def _validate_own_safety(value: object) -> object:
    return value if value is False else SafetySpec.model_validate(value)


AlgorithmSafety = Annotated[
    SafetySpec | Literal[False] | None,
    BeforeValidator(_validate_own_safety),
    not_null(SafetySpec | Literal[False]),
]
"""The `safety` of an algorithm's entry: keys that override those of the file's test, or no test.

None if the key is absent: the file's test applies. An empty value could mean either.
"""
