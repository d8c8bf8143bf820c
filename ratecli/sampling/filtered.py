"""Training rows behind a balanced filter: weighed by the chance that they are kept, or drawn with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ratecli.errors import Fault, FaultError
from ratecli.ledger.keys import stream
from ratecli.ledger.records import TrialResult
from ratecli.models.storage import loads
from ratecli.rates.sample import Mask
from ratecli.sampling.resampling import Dealt, Drawing
from ratecli.sampling.rows import Data, World, dealt_of, world, world_of

NEVER = 1e-12
"""A chance below this is what rounding left of none."""
DROPPED = "dropped"
"""The part of training rows that a filter leaves out: it is no split."""


@dataclass(frozen=True)
class Sieve:
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
    drawing: Drawing
    take: str


@dataclass(frozen=True)
class Seen:
    """How the training rows of a trial come about."""

    drawing: Drawing
    sieve: Sieve | None = None


class NoneKeptError(FaultError):
    """A filter keeps no training row."""


@lru_cache(maxsize=2)
def filtered(data: Data, seed: int, deployed: str | None, how: Seen, blob: bytes) -> World:
    """The rows of `world` after a stored filter; validation, test and safety rows are as they were.

    The weight of a training row is multiplied by its chance, or it is drawn with it. One that does not
    train any more is in no split, and features are encoded as the others say.

    Raises
    ------
    NoneKeptError
        E410 where no training row is left.
    """
    drawing, sieve = how.drawing, how.sieve
    assert sieve is not None
    seen = world(data, seed, None, sieve.drawing)
    train = seen.sample.part == "train"
    kept = np.where(train, seen.predictions(loads(blob)).decisions, 1.0)
    kept[kept < NEVER] = 0.0
    if sieve.take == "sample":
        drawn = stream(seed, "filter sample").random(len(kept)) < kept
        kept = np.where(train, drawn, 1.0)
    if not kept[train].any():
        message = "the filter keeps no training row"
        raise NoneKeptError(Fault("E410", message, "say take: weights, or bound less"))
    dealt = {name: dealt_of(data, name, seed, drawing) for name in data.options()}
    rows = world_of(data, _without(dealt, kept == 0), deployed, drawing.unseen)
    before = replace(rows.sample, part=seen.sample.part, _cache={})
    weight = before.weight * np.where(kept > 0, kept, 1.0)
    return replace(rows, sample=replace(rows.sample, weight=weight, _cache={}), before=before)


def _without(dealt: Mapping[str, Dealt], gone: Mask) -> dict[str, Dealt]:
    """The rows of all data sets, some of which do not train."""
    starts = np.cumsum([0, *(len(each.part) for each in dealt.values())])
    parts = [gone[a:b] for a, b in pairwise(starts)]
    return {
        name: Dealt(each.rows, np.where(out, DROPPED, each.part))
        for (name, each), out in zip(dealt.items(), parts, strict=True)
    }


def seen_rows(
    data: Data, seed: int, deployed: str | None, seen: Seen, given: Mapping[str, TrialResult]
) -> World:
    """The rows as a trial is given them; `given` holds the result of the filter's.

    Raises
    ------
    NoneKeptError
        As `filtered`.
    """
    if seen.sieve is None:
        return world(data, seed, deployed, seen.drawing)
    blob = next(iter(given[seen.sieve.key].models.values()))
    return filtered(data, seed, deployed, seen, blob)
