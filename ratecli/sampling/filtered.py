"""Training rows behind a balanced filter: weighed by the chance that they are kept, or drawn with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.keys import random_stream
from ratecli.ledger.records import TrialResult
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
"""A chance below this is what rounding left of none."""
DROPPED = "dropped"
"""The part of training rows that a filter leaves out: it is no split."""


@dataclass(frozen=True)
class RowFilter:
    """What training rows go through.

    Attributes
    ----------
    key
        Of the trial that finds the filter.
    drawing
        How the rows came about of which it is found.
    take
        `weights` or `sample` (see `cases.Filtering`).
    """

    key: str
    drawing: SamplingSpec
    take: str


@dataclass(frozen=True)
class TrainingRowsSpec:
    """How the training rows of a trial come about."""

    drawing: SamplingSpec
    sieve: RowFilter | None = None


class NoRowsKeptError(FaultError):
    """A filter keeps no training row."""


@lru_cache(maxsize=2)
def filter_trial_data(
    data: ExperimentData, seed: int, deployed: str | None, how: TrainingRowsSpec, blob: bytes
) -> TrialData:
    """The rows of `load_trial_data` after a stored filter; validation, test and safety rows are as they were.

    The weight of a training row is multiplied by its chance, or it is drawn with it. One that does not
    train any more is in no split, and features are encoded as the others say.

    Raises
    ------
    NoneKeptError
        E410 where no training row is left.
    """
    drawing, sieve = how.drawing, how.sieve
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
    dealt = {name: split_dataset(data, name, seed, drawing) for name in data.options()}
    rows = build_trial_data(data, _drop_rows(dealt, kept == 0), deployed, drawing.unseen)
    before = replace(rows.sample, part=seen.sample.part, _cache={})
    weight = before.weight * np.where(kept > 0, kept, 1.0)
    return replace(rows, sample=replace(rows.sample, weight=weight, _cache={}), before=before)


def _drop_rows(dealt: Mapping[str, RowSplit], gone: Mask) -> dict[str, RowSplit]:
    """The rows of all data sets, some of which do not train."""
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
    """The rows as a trial is given them; `given` holds the result of the filter's.

    Raises
    ------
    NoneKeptError
        As `filter_trial_data`.
    """
    if seen.sieve is None:
        return load_trial_data(data, seed, deployed, seen.drawing)
    blob = next(iter(given[seen.sieve.key].models.values()))
    return filter_trial_data(data, seed, deployed, seen, blob)
