"""The reference file that `ratecli pin` writes and `ratecli check` compares with.

It is a JSON file. For each algorithm and sweep point it has the seeds and how each trial ended, and
for each variant, split and metric one line with a number per seed. Pinning the same results again
gives the same bytes. The file contains no times, paths or machine names, so a difference in git is
a difference in results.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.records import OBJECTIVE, PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report.answer import goal_answers
from ratecli.report.check.settings import experiment_settings
from ratecli.report.groups import group_by, trial_values
from ratecli.report.sheet import format_point

DIGITS = 9
"""Significant digits: more than any tolerance needs, but few enough to be equal across CPUs."""
SCALAR_LIST = re.compile(r"\[\n\s*([^\[\]{}]*?)\s*\]")
"""A list of numbers or statuses in indented JSON."""

PinnedNumber = float | Literal["nan", "inf", "-inf"] | None
"""None if a trial has no such value."""
PointKey = tuple[str, str]
"""An algorithm's label and its sweep point as `repr`, which distinguishes 1, 1.0 and true."""
VariantMetric = tuple[str, str, str]
"""Variant, split and metric."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class PinnedTrials(_Strict):
    """The trials of an algorithm at a sweep point; all lists have one entry per seed."""

    algorithm: str
    point: dict[str, bool | int | float | str]
    seeds: Annotated[list[int], Field(min_length=1)]
    statuses: list[str]
    values: dict[str, dict[str, dict[str, list[PinnedNumber]]]]

    @model_validator(mode="after")
    def _one_a_seed(self) -> Self:
        lengths = {len(self.statuses), *(len(numbers) for _, numbers in self._lists())}
        if lengths != {len(self.seeds)}:
            raise ValueError("there must be one number per seed")
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError("a seed occurs twice")
        return self

    @property
    def key(self) -> PointKey:
        return point_key(self.algorithm, self.point)

    @property
    def status(self) -> dict[int, str]:
        return dict(zip(self.seeds, self.statuses, strict=True))

    @property
    def solved(self) -> dict[int, float]:
        """1 for each seed that returned a classifier, 0 for others."""
        solved = {seed for values in self.numbers.values() for seed in values}
        return {seed: float(seed in solved) for seed in self.seeds}

    @cached_property
    def numbers(self) -> dict[VariantMetric, dict[int, float]]:
        """Values by seed, without seeds that have none."""
        return {
            place: {
                seed: float(value)
                for seed, value in zip(self.seeds, values, strict=True)
                if value is not None
            }
            for place, values in self._lists()
        }

    @property
    def rows(self) -> dict[tuple[str, ...], dict[int, float]]:
        """The values by seed, by algorithm, point, variant, split and metric.

        Undefined values are infinite.
        """
        return {
            (*self.key, *place): {
                seed: value if math.isfinite(value) else math.inf for seed, value in own.items()
            }
            for place, own in self.numbers.items()
        }

    def _lists(self) -> Iterator[tuple[VariantMetric, list[PinnedNumber]]]:
        for variant, splits in self.values.items():
            for split, metrics in splits.items():
                for metric, numbers in metrics.items():
                    yield (variant, split, metric), numbers


class PinnedModel(_Strict):
    """The models of an algorithm at a sweep point that answer a task.

    It `qualifies` if the constraints are expected or confirmed to hold (`Setting.is_kept`). `task`
    is empty without a sweep, and in older references.
    """

    algorithm: str
    variant: str
    point: dict[str, bool | int | float | str]
    qualifies: bool
    task: dict[str, bool | int | float | str | None] = {}

    @property
    def name(self) -> str:
        """The algorithm and its point: `mixture (limit = 0.8)`."""
        return f"{self.algorithm} ({format_point(self.point)})" if self.point else self.algorithm


class Reference(_Strict):
    """The pinned results of an experiment.

    `data` are the checksums of its data sets, `settings` what affects results in the file, and
    `answers` the models that answer its goal (see `answering_models`), if they were pinned.
    """

    format: Literal[1]
    name: str
    data: dict[str, str]
    versions: dict[str, str]
    settings: dict[str, str]
    trials: list[PinnedTrials]
    answers: list[PinnedModel] = []


def point_key(label: str, point: Mapping[str, Any]) -> PointKey:
    return label, repr(sorted(point.items()))


def pin_points(ledger: Ledger) -> list[PinnedTrials]:
    """Return the results to pin of each algorithm and sweep point, in plan order."""
    points = group_by(ledger.plan, lambda trial: point_key(trial.label, trial.point))
    return [_pin_trials(ledger, trials) for trials in points.values()]


def _pin_trials(ledger: Ledger, trials: Sequence[PlannedTrial]) -> PinnedTrials:
    """Return the results of trials that differ only in their seed, sorted by seed.

    An objective that is also a metric is omitted.
    """
    trials = sorted(trials, key=lambda trial: trial.seed)
    values: dict[str, dict[str, dict[str, list[PinnedNumber]]]] = {}
    for at, trial in enumerate(trials):
        objective = trial.metrics[OBJECTIVE]
        redundant = list(trial.metrics.values()).count(objective) > 1
        for variant, split, metric, value in trial_values(ledger, trial):
            if metric != OBJECTIVE or not redundant:
                own = values.setdefault(variant, {}).setdefault(split, {})
                own.setdefault(metric, [None] * len(trials))[at] = _encode_number(value)
    return PinnedTrials(
        algorithm=trials[0].label,
        point=dict(trials[0].point),
        seeds=[trial.seed for trial in trials],
        statuses=[ledger.status(trial) for trial in trials],
        values=values,
    )


def build_reference(ledger: Ledger) -> Reference:
    """Return the reference; `ledger` must have the experiment's name, data and versions."""
    return Reference(
        format=1,
        name=ledger.experiment["name"],
        data=dataset_digests(ledger),
        versions=dict(ledger.meta["versions"]),
        settings=experiment_settings(ledger.experiment),
        trials=sorted(pin_points(ledger), key=lambda each: each.algorithm),
        answers=answering_models(ledger),
    )


def answering_models(ledger: Ledger) -> list[PinnedModel]:
    """Return the model that answers the file's goal, or that of each task without a goal."""
    return [
        PinnedModel(
            algorithm=each.best.group.label,
            variant=each.best.group.variant,
            point=dict(each.best.group.point),
            qualifies=each.best.is_kept,
            task=dict(each.task),
        )
        for each in goal_answers(ledger)
    ]


def are_goals_met(pinned: Sequence[PinnedModel], models: Sequence[PinnedModel]) -> bool:
    """Return whether each task that qualified when pinned still does; without tasks, as many."""
    was, now = ([each.task for each in some if each.qualifies] for some in (pinned, models))
    return all(each in now for each in was) if any(was) else len(now) >= len(was)


def dataset_digests(ledger: Ledger) -> dict[str, str]:
    return {name: str(entry["digest"]) for name, entry in ledger.meta["datasets"].items()}


def reference_text(found: Reference) -> str:
    """Return the file's text, with sorted keys and one line per list of numbers."""
    text = json.dumps(
        found.model_dump(exclude_defaults=True), indent=1, ensure_ascii=False, sort_keys=True
    )
    return SCALAR_LIST.sub(lambda each: f"[{' '.join(each[1].split())}]", text) + "\n"


def read_reference(path: Path) -> Reference:
    """Read a reference file. Raise FaultError (E506) if it is invalid."""
    try:
        return Reference.model_validate_json(path.read_bytes())
    except OSError as error:
        reason = error.strerror or str(error)
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc'])) or 'the whole file'}: {first['msg']}"
    message = f"'{path}' is not a valid reference: {reason}"
    hint = "restore it from version control, or write it again with `ratecli pin`"
    raise FaultError(Diagnostic("E506", message, hint))


def _encode_number(value: float) -> PinnedNumber:
    """Round to `DIGITS`; -0.0 becomes 0.0, as it would show up as a change."""
    if not math.isfinite(value):
        return cast("PinnedNumber", repr(value))
    return float(f"{value:.{DIGITS}g}") + 0.0
