"""What a classifier says of rows, as columns that a table gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.keys import random_stream
from ratecli.models.base import Array, Classifier, Features
from ratecli.models.proxies import ProxyFilter, SampledFilter


@dataclass(frozen=True)
class PredictedColumns:
    """Columns (n,) by name, and a few words that sum them up."""

    columns: Mapping[str, NDArray[np.generic]]
    told: str


def prediction_columns(classifier: Classifier, X: Features, seed: int) -> PredictedColumns:
    """Of who decides: `score`, the `chance` of a yes and a `decision`; of who does not, an `estimate`.

    Of a filter the `chance` that a row is kept, the `value` of its proxy that was drawn, from 0, and
    whether the row is `kept` by the chance of that value. One that keeps by a hash of the row draws no value.

    A decision is 1 for yes, 0 for no. Where the chance is neither, it is drawn: the same seed gives the
    row at the same place the same draw, whatever the chances are and how many rows follow.

    Raises
    ------
    FaultError
        E404 where scores are not finite.
    """
    scores = classifier.score(X)
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores))[0]) + 1
        message = f"the model gives row {row} a score that is not finite"
        raise FaultError(Diagnostic("E404", message, "look at the numbers of that row"))
    if isinstance(classifier, ProxyFilter):
        return _filter_columns(classifier, X, seed)
    chances = classifier.decide(X)
    if np.isnan(chances).any():
        return _estimate_columns(classifier.estimate(X))
    return _decision_columns(scores, chances, seed)


def _filter_columns(found: ProxyFilter, X: Features, seed: int) -> PredictedColumns:
    columns: dict[str, NDArray[np.generic]] = {"chance": found.chance(X)}
    how = "by a hash of each"
    if isinstance(found, SampledFilter):
        kept = found.decide(X) > 0.5
    else:
        columns["value"], kept = found.drawn(X, random_stream(seed, "predict"))
        how = f"drawn with --seed {seed}"
    columns["kept"] = kept.astype(np.int8)
    return PredictedColumns(columns, f"{kept.sum()} of them kept, {how}")


def _decision_columns(scores: Array, chances: Array, seed: int) -> PredictedColumns:
    draws = random_stream(seed, "predict").random(len(chances))
    yes = draws < chances
    drawn = int(((chances > 0) & (chances < 1)).sum())
    told = f"{yes.sum()} yes, {(~yes).sum()} no"
    if drawn:
        told += f"; {drawn} of them by chance, drawn with --seed {seed}"
    columns: dict[str, NDArray[np.generic]] = {
        "score": scores,
        "chance": chances,
        "decision": yes.astype(np.int8),
    }
    return PredictedColumns(columns, told)


def _estimate_columns(estimates: Array) -> PredictedColumns:
    told = f"estimates from {estimates.min():g} to {estimates.max():g}"
    return PredictedColumns({"estimate": estimates}, told)
