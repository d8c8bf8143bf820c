"""Random Fourier features of a Gaussian kernel: linear models of them are kernel machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import AllowInfNan, Field, Strict

from ratecli.config.dataset import MAX_COMPONENTS
from ratecli.models.base import Features

Whole: TypeAlias = Annotated[int, Strict()]


@dataclass(frozen=True)
class KernelMap:
    """Features whose inner products approximate the kernel `exp(-gamma |x - y|^2)`.

    They are those of scikit-learn's RBFSampler (Rahimi and Recht 2007): cosines of random
    projections, which depend on the seed and the number of features x alone.
    """

    gamma: Annotated[float, Strict(), AllowInfNan(False), Field(gt=0)]
    components: Annotated[Whole, Field(ge=1, le=MAX_COMPONENTS)]
    seed: Annotated[Whole, Field(ge=0, lt=2**32)]

    def __str__(self) -> str:
        kernel = f"kernel exp(-{self.gamma:.4g} |x - y|^2)"
        return f"{self.components} random features of the {kernel} of the encoded columns"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"rbf{k + 1}" for k in range(self.components))

    def sampler(self, width: int) -> Any:
        """Return the fitted RBFSampler of `width` features."""
        from sklearn.kernel_approximation import RBFSampler  # noqa: PLC0415  slow

        sampler = RBFSampler(gamma=self.gamma, n_components=self.components, random_state=self.seed)
        return sampler.fit(np.zeros((1, width)))  # of which it uses the width alone

    def transform(self, X: Features) -> NDArray[np.float64]:
        """Return (n, components) of features X (n, d)."""
        return np.asarray(self.sampler(X.shape[1]).transform(X))


def default_gamma(parts: Sequence[Features]) -> float:
    """Return 1 / (d var X), as for scikit-learn's SVC, or 1 / d if var X is 0.

    X (n, d) are training rows, those of one table in each part.
    """
    entries = [part.ravel() if isinstance(part, np.ndarray) else part.data for part in parts]
    count = sum(part.shape[0] * part.shape[1] for part in parts)
    mean, squares = (sum(float((x**k).sum()) for x in entries) / count for k in (1, 2))
    return float(1.0 / (parts[0].shape[1] * (max(squares - mean**2, 0.0) or 1.0)))
