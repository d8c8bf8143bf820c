"""Training rows after a balanced filter: weighted by their chance to be kept, or sampled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.records import TrialResult, random_stream
from ratecli.models.storage import loads
from ratecli.rates.sample import Mask
from ratecli.sampling.resampling import RowSplit, SamplingSpec
from ratecli.sampling.rows import (
    ExperimentData,
    TrialData,
    build_trial_data,
    load_trial_data,
    split_dataset,
)

MIN_KEEP_CHANCE = 1e-12
"""A smaller chance counts as 0: it is a rounding error."""
DROPPED = "dropped"
"""Marks training rows that a filter drops; it is not a split."""


@dataclass(frozen=True)
class RowFilter:
    """The filter that training rows pass through.

    Attributes
    ----------
    key
        Key of the trial that computes the filter.
    drawing
        How the rows of that trial are chosen.
    take
        `weights` or `sample` (see `experiment.cases.CaseFilter`).
    """

    key: str
    drawing: SamplingSpec
    take: str


@dataclass(frozen=True)
class TrainingRowsSpec:
    """How the training rows of a trial are chosen and filtered."""

    drawing: SamplingSpec
    row_filter: RowFilter | None = None


class NoRowsKeptError(FaultError):
    """Raised if a filter keeps no training rows."""


@lru_cache(maxsize=2)
def filter_trial_data(
    data: ExperimentData, seed: int, deployed: str | None, how: TrainingRowsSpec, blob: bytes
) -> TrialData:
    """Return the rows of `load_trial_data` after a stored filter, which changes only training rows.

    With `take: weights`, the weight of a training row is multiplied by its chance of being kept;
    with `take: sample`, it is kept with that chance. Dropped rows belong to no split, and features
    are encoded as the remaining rows require.

    Raises
    ------
    NoRowsKeptError
        E410 if no training row is left.
    """
    drawing, sieve = how.drawing, how.row_filter
    assert sieve is not None
    seen = load_trial_data(data, seed, None, sieve.drawing)
    train = seen.sample.part == "train"
    kept = np.where(train, seen.predictions(loads(blob)).decisions, 1.0)
    kept[kept < MIN_KEEP_CHANCE] = 0.0
    if sieve.take == "sample":
        drawn = random_stream(seed, "filter sample").random(len(kept)) < kept
        kept = np.where(train, drawn, 1.0)
    if not kept[train].any():
        message = "the filter keeps no training row"
        raise NoRowsKeptError(Diagnostic("E410", message, "say take: weights, or bound less"))
    dealt = {name: split_dataset(data, name, seed, drawing) for name in data.entries}
    rows = build_trial_data(data, _drop_rows(dealt, kept == 0), deployed, drawing.unseen)
    before = replace(rows.sample, part=seen.sample.part, _cache={})
    weight = before.weight * np.where(kept > 0, kept, 1.0)
    return replace(rows, sample=replace(rows.sample, weight=weight, _cache={}), before=before)


def _drop_rows(dealt: Mapping[str, RowSplit], gone: Mask) -> dict[str, RowSplit]:
    """Mark dropped rows in the splits of all data sets."""
    starts = np.cumsum([0, *(len(each.part) for each in dealt.values())])
    parts = [gone[a:b] for a, b in pairwise(starts)]
    return {
        name: RowSplit(each.rows, np.where(out, DROPPED, each.part))
        for (name, each), out in zip(dealt.items(), parts, strict=True)
    }


def load_training_rows(
    data: ExperimentData,
    seed: int,
    deployed: str | None,
    seen: TrainingRowsSpec,
    given: Mapping[str, TrialResult],
) -> TrialData:
    """Return the rows of a trial; `given` holds the result of the filter's trial, by key.

    Raises
    ------
    NoRowsKeptError
        As `filter_trial_data`.
    """
    if seen.row_filter is None:
        return load_trial_data(data, seed, deployed, seen.drawing)
    blob = next(iter(given[seen.row_filter.key].models.values()))
    return filter_trial_data(data, seed, deployed, seen, blob)
