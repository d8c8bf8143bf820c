"""A model as it would have been deployed, and the rows it would have labelled next."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression

Floats = NDArray[np.float64]


def train_logistic_regression(features: sparse.csr_array, label: Floats) -> LogisticRegression:
    """Logistic regression with scikit-learn's penalty, to its exact optimum.

    What is left over by a looser solver would differ between versions, and with it decisions.
    """
    model = LogisticRegression(solver="newton-cholesky", tol=1e-10, max_iter=100)
    return model.fit(features.toarray(), label)


def sample_near_boundary(
    score: Floats, scale: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Keeps a row with probability exp(-|score| / scale): what the model is unsure of, above all."""
    return rng.random(len(score)) < np.exp(-np.abs(score) / scale)
