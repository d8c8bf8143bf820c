"""Records of planned trials and their results; keys of trials and their random streams."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # numpy is slow to import
    import numpy as np


def trial_key(content: Mapping[str, Any]) -> str:
    """Return the sha256 of `content`, independent of the order of its keys.

    1 and 1.0 are equal, and so are a tuple and a list; True differs from 1. Types unknown to JSON
    raise TypeError, since their text may change between runs. NaN raises ValueError.
    """
    return key_of_texts(json_texts(content))


def json_texts(content: Mapping[str, Any]) -> dict[str, str]:
    """Return each value of `content` as JSON, with whole numbers as integers."""
    same = json.loads(json.dumps(content), parse_float=_number, parse_constant=_infinity)
    return {name: json_text(value) for name, value in same.items()}


def key_of_texts(texts: Mapping[str, str]) -> str:
    """Return the `trial_key` of content with these values as JSON, which trials can share."""
    inside = ",".join(f"{_name_text(name)}:{texts[name]}" for name in sorted(texts))
    return hashlib.sha256(f"{{{inside}}}".encode()).hexdigest()


def random_stream(root_seed: int, *names: str) -> np.random.Generator:
    """Return the random numbers for one purpose, independent of those under any other names.

    The bit generator is explicit, since NumPy may change its default.
    """
    digest = hashlib.sha256(json_text([int(root_seed), *map(str, names)]).encode()).digest()
    import numpy as np  # noqa: PLC0415

    words = [int.from_bytes(digest[at : at + 4], "big") for at in range(0, len(digest), 4)]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


def json_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


_name_text = cache(json_text)


def _number(text: str) -> int | float:
    """Return a number of a JSON text, as an integer if it has no fraction."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _infinity(text: str) -> float:
    if text == "NaN":
        raise ValueError("NaN cannot be part of a key: it is not equal to itself")
    return float(text)


STATUSES = {
    "ok": "the algorithm finished and the model satisfies its constraints where they are enforced",
    "not_met": "the algorithm finished, but a constraint is violated or undefined where it is "
    "enforced",
    "infeasible": "no classifier can satisfy the constraints, as shown by a linear program over "
    "all decisions",
    "no_solution_found": "no model was found, or none passed the safety test; the reason says how "
    "close it came",
    "iteration_limit": "the iterations ran out before the duality gap was reached",
    "diverged": "the numbers grew without bound; the reason says which option to lower",
    "timeout": "the trial exceeded `limits: {time: ...}`",
    "error": "the trial crashed or its worker died; the next run tries it again",
}
"""What it means that a trial ended with a status."""
VARIANTS = {
    "deterministic": "a positive or negative decision for each row: the model by default",
    "stochastic": "a probability of a positive decision for each row, whose expected rates count: "
    "the model with `randomize: true`",
    "hashed": "`stochastic`, sampled with a hash of the row: equal rows get equal decisions",
    "voted": "positive where more than half of a mixture decides positive",
    "last": "the last iterate of `three_player`",
    "uniform": "the uniform mixture of all iterates of `three_player`",
    "estimate": "an estimate of a label that is a number",
    "expected": "of a filter: the probability that a row is kept",
    "sampled": "of a filter: the rows kept when sampled with a hash of each row",
}
"""What a variant of a trial's models is."""
CACHED_STATUSES = frozenset({"ok", "not_met", "infeasible", "no_solution_found", "iteration_limit"})
"""Final statuses: a later run does not repeat these trials."""

UNSOLVED_STATUSES = frozenset({"no_solution_found", "infeasible"})
"""Statuses of trials without a model that satisfies the constraints, each with a reason."""
FAILED_STATUSES = frozenset({"diverged", "timeout", "error"})
"""Statuses of trials that ended without a usable result; they are repeated by a later run."""


CONSTRAINT_TOLERANCE = 1e-6
"""Largest violation, in units of the constraint, that counts as satisfied: it is rounding."""


def is_violated(violation: float, limit: float = 0.0, *, undefined: bool = True) -> bool:
    """Return whether a value is above a limit by more than rounding.

    An undefined value (NaN) counts as violated if `undefined`.
    """
    return violation > limit + CONSTRAINT_TOLERANCE or (undefined and math.isnan(violation))


OBJECTIVE = "objective"
"""The metric that measures the objective."""
VIOLATION_PREFIX = "violation."
"""Prefix of the metric that measures the violation of the constraint named after it."""

END_WARNINGS_KEY = "warnings at the end"
"""Key of a ledger's metadata for the warnings after the last trial."""

EXPECTED_KEY = "expected"
"""Key of a ledger's metadata for what an experiment measured of a model trained on all rows."""

BEST_CONSTANT_KEY = "best constant"
"""Key of `TrialResult.info` for the best objective of a constant decision, by split."""
UNDEFINED_CONSTANT_KEY = "undefined for the best constant"
"""Key of `TrialResult.info` for the constraints that are undefined for that decision, by split."""
CONSTANT_NAME_KEY = "name of the best constant"
"""Key of `TrialResult.info` for that decision in words, such as "selecting nobody", by split."""


EFFECTIVE_ROWS_KEY = "effective rows"
"""Key of `TrialResult.info` for the effective number of rows of rates of logged decisions."""


def is_no_better(objective: float, constant: float) -> bool:
    """Return whether an objective is not below that of a constant decision, except by rounding."""
    return objective >= constant - CONSTRAINT_TOLERANCE


NEW_DATA_KEY = "new data"
"""Key of `TrialResult.info` for `levels`, `pieces` and `test`.

Levels are the probabilities with which all constraints should hold in the population, by `holds`,
by variant. Pieces are the parts of violations on the test set, each with its value and standard
error, by variant and metric. `test` is an identifier of the test rows and their share of all rows.
"""

GROUP_RATES_KEY = "group rates"
"""Key of `TrialResult.info` for rates of groups on new rows (`sampling.summaries`)."""

CURVES_KEY = "group curves"
"""Key of `TrialResult.info` for ROC and calibration by group (`sampling.summaries`)."""
ROC_STEPS = 20
"""ROC curves are stored at the false positive rates 0, 1/20, ..., 1."""

FILTERS_KEY = "filters"
"""Key of `TrialResult.info` for the summaries of filters (`sampling.summaries`)."""


FILTER_STAGE_PREFIX = "filter."
"""Prefix of the metrics of the filter before training."""


@dataclass(frozen=True)
class PlannedTrial:
    """One (algorithm, sweep point, seed) of an experiment.

    `metrics` maps each metric's display name to its canonical text at this sweep point. Values are
    stored by text, so that they are still found when a metric is renamed. The names are
    `objective`, `violation.<constraint>` and those in the file.
    """

    key: str
    label: str
    algorithm: str
    options: Mapping[str, Any]
    point: Mapping[str, str | int | float | bool]
    seed: int
    metrics: Mapping[str, str]

    @property
    def name(self) -> str:
        """The trial's name in messages, such as `majorize kappa=0.8 seed=1`."""
        point = [f"{name}={value}" for name, value in self.point.items()]
        return " ".join([self.label, *point, f"seed={self.seed}"])


def undefined_constraints(trial: PlannedTrial, result: TrialResult | None) -> tuple[str, ...]:
    """Return the constraints that are undefined on the test set for the best constant decision."""
    known = result.info.get(UNDEFINED_CONSTANT_KEY) if result else None
    texts = (known or {}).get("test", ())
    return tuple(
        name.removeprefix(VIOLATION_PREFIX)
        for name, text in trial.metrics.items()
        if name.startswith(VIOLATION_PREFIX) and text in texts
    )


def undefined_text(constraints: Sequence[str]) -> str:
    """Return that undefined constraints are not satisfied, as the end of a sentence."""
    ends = "is 0 / 0 and counts" if len(constraints) == 1 else "are 0 / 0 and count"
    return f"{' and '.join(constraints)} {ends} as not satisfied"


@dataclass(frozen=True)
class MeasuredValue:
    """One measured number: a metric of one variant on one split."""

    variant: str
    split: str
    metric: str
    value: float


@dataclass(frozen=True)
class TrialResult:
    """How a trial ended, with everything that it measured.

    `seconds` are those of the processor, with cached fits (`fit_cache.cache_adjusted_time`).
    `encoding` describes how the features of its models are made of columns (`sampling.encoding`);
    it is empty if there are no models.
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
