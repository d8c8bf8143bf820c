"""Mixtures of classifiers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ratecli.models.base import Array, Classifier, Features
from ratecli.models.linear import HALF


@dataclass(frozen=True)
class MixtureClassifier(Classifier):
    """Member k decides with probability `chances[k]`; every output is the mean over members.

    Rates are linear in decisions, so the rates of the mean decision are the expected rates. Apply
    nonlinear metrics to those rates; do not average metrics of members.
    """

    kind: ClassVar[str] = "mixture"
    members: tuple[Classifier, ...]
    chances: Array

    def __post_init__(self) -> None:
        chances = self.chances
        fits = chances.shape == (len(self.members),)
        if not (fits and (chances >= 0).all() and abs(chances.sum() - 1) <= 1e-9):
            raise ValueError(
                f"chances {chances} are not a distribution over {len(self.members)} members"
            )
        widths = {member.width for member in self.members}
        if len(widths) > 1:
            raise ValueError(f"members of a mixture have {sorted(widths)} features")
        if len({member.slices for member in self.members}) > 1:
            raise ValueError("members of a mixture use different slices")

    @property
    def width(self) -> int:
        return self.members[0].width

    @property
    def slices(self) -> tuple[str, ...]:
        return self.members[0].slices

    def _mean(self, answer: Callable[[Classifier], Array]) -> Array:
        answers = np.stack([answer(member) for member in self.members])
        return np.asarray(self.chances @ answers)

    def decide(self, X: Features) -> Array:
        return np.clip(self._mean(lambda member: member.decide(X)), 0.0, 1.0)  # rounding errors

    def score(self, X: Features) -> Array:
        return self._mean(lambda member: member.score(X))

    def estimate(self, X: Features) -> Array:
        return self._mean(lambda member: member.estimate(X))


@dataclass(frozen=True)
class MajorityVote(MixtureClassifier):
    """Deterministic: positive if the mixture's P(positive decision) is above 1/2."""

    kind: ClassVar[str] = "vote"

    def decide(self, X: Features) -> Array:
        return (super().decide(X) > HALF).astype(float)

    def estimate(self, X: Features) -> Array:
        return self.decide(X)
