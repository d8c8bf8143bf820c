"""A planned trial and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CACHED_STATUSES = frozenset(
    {"ok", "not_met", "infeasible", "no_solution_found", "iteration_limit", "diverged"}
)
"""Statuses that a later run does not try again."""

FAILED_STATUSES = frozenset({"timeout", "error"})
"""Statuses of trials that ended without a solver's answer; never cached."""


CONSTRAINT_TOLERANCE = 1e-6
"""A violation up to this is rounding, in the rule's own units: the promise is kept."""

VIOLATION_PREFIX = "violation."
"""What the name of a metric begins with that is a constraint's violation; the constraint's follows."""

END_WARNINGS_KEY = "warnings at the end"
"""Where a ledger's meta has what a run warned of when all its trials had ended."""

BEST_CONSTANT_KEY = "best constant"
"""Where `TrialResult.info` has the best objective of a constant decision, by split."""

FILTERS_KEY = "filters"
"""Where `TrialResult.info` says what filters there are (`sampling.filter_summary`)."""


FILTER_STAGE_PREFIX = "filter."
"""What the names of all metrics begin with that are measured of the filter before training."""


@dataclass(frozen=True)
class PlannedTrial:
    """One (algorithm, sweep point, seed) of an experiment.

    `metrics` maps each metric's display name to its canonical text at this sweep point; values are
    stored by text, so that a renamed metric finds its numbers again. The names are `objective`,
    `violation.<constraint>` and those of the file.
    """

    key: str
    label: str
    algorithm: str
    options: Mapping[str, Any]
    point: Mapping[str, Any]
    seed: int
    metrics: Mapping[str, str]


@dataclass(frozen=True)
class MeasuredValue:
    """One measured number: a metric of one variant on one split."""

    variant: str
    split: str
    metric: str
    value: float


@dataclass(frozen=True)
class TrialResult:
    """How a trial ended and all that it measured.

    `encoding` says how the features that its models see are made of columns (`sampling.encoding`); it is
    empty where there are no models.
    """

    key: str
    status: str
    reason: str = ""
    seconds: float = 0.0
    info: Mapping[str, Any] = field(default_factory=dict)
    trace: tuple[Mapping[str, Any], ...] = ()
    multipliers: Mapping[str, float] = field(default_factory=dict)
    values: tuple[MeasuredValue, ...] = ()
    models: Mapping[str, bytes] = field(default_factory=dict)
    encoding: str = ""
