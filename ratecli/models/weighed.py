"""Decisions by expected cost, given class probabilities and costs of a positive decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array, Features
from ratecli.models.fitted import SklearnModel, load_skops
from ratecli.models.trees import TreeEnsemble

ARGMAX_COSTS = np.array([1.0, -1.0])
"""Costs that make a decision positive if the second of two classes is the likelier one."""


@dataclass(frozen=True)
class CostSensitiveClassifier:
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

    @property
    def slices(self) -> tuple[str, ...]:
        return ()

    def gains(self, X: Features) -> Array:
        """Return (n,) the expected gain of a positive decision: minus its expected cost."""
        return np.asarray(self.chances.of(X) @ -self.costs)

    def score(self, X: Features) -> Array:
        return self.gains(X) - self.cut

    def decide(self, X: Features) -> Array:
        return (self.score(X) > 0).astype(float)

    def estimate(self, X: Features) -> Array:
        return self.decide(X)

    def state(self) -> dict[str, NDArray[np.generic]]:
        arrays: dict[str, NDArray[np.generic]] = {
            "costs": self.costs,
            "cut": np.asarray(self.cut),
            "chances.kind": np.asarray(self.chances.kind),
        }
        return arrays | {f"chances.{name}": array for name, array in self.chances.state().items()}


def load_probability_model(
    arrays: Mapping[str, NDArray[np.generic]],
) -> TreeEnsemble | SklearnModel:
    """Restore trees or a fitted classifier from `state`, with its kind under `kind`.

    Raises
    ------
    ValueError, KeyError, TypeError
        If the arrays are invalid.
    """
    kind = str(arrays["kind"])
    if kind == SklearnModel.kind:
        return load_skops(arrays["skops"].astype(np.uint8, casting="no").tobytes())
    if kind == TreeEnsemble.kind:
        return TreeEnsemble(
            width=int(arrays["width"]),
            roots=_as_int_array(arrays["roots"]),
            feature=_as_int_array(arrays["feature"]),
            threshold=_as_float_array(arrays["threshold"]),
            children=_as_int_array(arrays["children"]),
            values=_as_float_array(arrays["values"]),
            start=_as_float_array(arrays["start"]),
            rounded=bool(arrays["rounded"]),
            softmax=bool(arrays["softmax"]),
        )
    raise ValueError(f"chances of the kind '{kind}' are unknown")


def _as_int_array(array: NDArray[np.generic]) -> NDArray[np.intp]:
    return array.astype(np.intp, casting="same_kind")


def _as_float_array(array: NDArray[np.generic]) -> Array:
    return array.astype(np.float64, casting="same_kind")
