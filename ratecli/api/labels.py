"""Two labels, one of which is a yes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from ratecli.models.base import Array


@dataclass(frozen=True)
class BinaryLabels:
    """`labels` (2,), sorted, and which of them is a yes, 0 or 1."""

    labels: NDArray[Any]
    positive: int

    @classmethod
    def of(cls, y: Any, pos_label: Any) -> BinaryLabels:
        """Raises ValueError unless there are two, and `pos_label` is one of them or None."""
        if y is None:
            raise ValueError("it requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        if not len(y):
            raise ValueError("y holds no label")
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        labels = np.unique(y)
        if kind != "binary":
            message = "Only binary classification is supported. The type of the target is"
            raise ValueError(f"{message} {kind}.")
        if len(labels) < 2:
            raise ValueError(f"rates are of two classes, and y has 1 class: {labels[0]!r}")
        if pos_label is None:
            return cls(labels, 1)
        if pos_label not in labels.tolist():
            raise ValueError(f"pos_label is {pos_label!r}, and the labels are {labels.tolist()}")
        return cls(labels, labels.tolist().index(pos_label))

    def yes(self, y: Any) -> Array:
        """(n,) 1 where the label is the yes, else 0."""
        return np.asarray(column_or_1d(y) == self.labels[self.positive], dtype=np.float64)

    def of_decisions(self, yes: NDArray[np.bool_]) -> NDArray[Any]:
        """Labels (n,)."""
        return np.asarray(self.labels[np.where(yes, self.positive, 1 - self.positive)])

    def signed(self, margin: Array) -> Array:
        """(n,) above 0 for the larger label; one that is not above 0 for a yes that is not."""
        return margin if self.positive else -margin

    def both(self, chance: Array) -> Array:
        """(n, 2) chances in the order of the labels, of chances (n,) of a yes."""
        pair = [1 - chance, chance] if self.positive else [chance, 1 - chance]
        return np.stack(pair, axis=1)
