"""What every classifier answers."""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array: TypeAlias = NDArray[np.float64]
Features: TypeAlias = NDArray[np.float64] | sparse.csr_array


class Classifier(Protocol):
    """A rule that maps rows of features, shape (n, d), to decisions.

    `decide` gives the probability of the positive decision, in [0, 1]: 0 or 1 if the rule is
    deterministic, the expectation over its randomness otherwise. `score` gives what rows are ranked
    by; `estimate` the predicted label on the label's own scale (mse, mean_error).

    A classifier that looks at slices is shown X of shape (n, d + S): behind the features a column
    of 0 and 1 for each of its `slices`, whether the row is in it.
    """

    kind: ClassVar[str]

    @property
    def width(self) -> int:
        """d, the number of features."""
        ...

    @property
    def slices(self) -> tuple[str, ...]:
        """S conditions as text, such as `age >= 30, sex = Female`; mostly there are none."""
        ...

    def decide(self, X: Features) -> Array: ...

    def score(self, X: Features) -> Array: ...

    def estimate(self, X: Features) -> Array: ...

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Arrays from which `models.storage` makes the classifier again."""
        ...
