"""What a classifier says of rows, as columns that a table gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import Fault, FaultError
from ratecli.ledger.keys import stream
from ratecli.models.base import Array, Classifier, Features
from ratecli.models.proxies import Filter, Sampled


@dataclass(frozen=True)
class Answers:
    """Columns (n,) by name, and a few words that sum them up."""

    columns: Mapping[str, NDArray[np.generic]]
    told: str


def answers(classifier: Classifier, X: Features, seed: int) -> Answers:
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
        raise FaultError(Fault("E404", message, "look at the numbers of that row"))
    if isinstance(classifier, Filter):
        return _kept(classifier, X, seed)
    chances = classifier.decide(X)
    if np.isnan(chances).any():
        return _estimates(classifier.estimate(X))
    return _decisions(scores, chances, seed)


def _kept(found: Filter, X: Features, seed: int) -> Answers:
    columns: dict[str, NDArray[np.generic]] = {"chance": found.chance(X)}
    how = "by a hash of each"
    if isinstance(found, Sampled):
        kept = found.decide(X) > 0.5
    else:
        columns["value"], kept = found.drawn(X, stream(seed, "predict"))
        how = f"drawn with --seed {seed}"
    columns["kept"] = kept.astype(np.int8)
    return Answers(columns, f"{kept.sum()} of them kept, {how}")


def _decisions(scores: Array, chances: Array, seed: int) -> Answers:
    draws = stream(seed, "predict").random(len(chances))
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
    return Answers(columns, told)


def _estimates(estimates: Array) -> Answers:
    told = f"estimates from {estimates.min():g} to {estimates.max():g}"
    return Answers({"estimate": estimates}, told)
