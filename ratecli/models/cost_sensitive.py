"""Decisions by expected cost, given class probabilities and costs of a positive decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ratecli.models.base import Array, Classifier, Features
from ratecli.models.sklearn_model import SklearnModel
from ratecli.models.trees import TreeEnsemble

ARGMAX_COSTS = np.array([1.0, -1.0])
"""Costs that make a decision positive if the second of two classes is the likelier one."""


@dataclass(frozen=True)
class CostSensitiveClassifier(Classifier):
    """Deterministic: positive if its expected cost is below `-cut`, negative in a tie.

    Attributes
    ----------
    chances
        Returns the probabilities (n, Q) of Q classes for each row.
    costs
        (Q,) cost of a positive decision for each class.
    """

    kind: ClassVar[str] = "weighed"
    chances: TreeEnsemble | SklearnModel
    costs: Array
    cut: float = 0.0

    def __post_init__(self) -> None:
        if self.costs.shape != (self.chances.classes,):
            raise ValueError(f"{self.costs.size} costs of {self.chances.classes} classes")

    @property
    def width(self) -> int:
        return self.chances.width

    def gains(self, X: Features) -> Array:
        """Return (n,) the expected gain of a positive decision: minus its expected cost."""
        return np.asarray(self.chances.probabilities(X) @ -self.costs)

    def score(self, X: Features) -> Array:
        return self.gains(X) - self.cut
