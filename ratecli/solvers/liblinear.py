"""Weighted linear classifiers fitted by LIBLINEAR through scikit-learn."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from scipy import sparse

from ratecli.models.base import Array, Features

ClassificationLoss = Literal["hinge", "logistic"]


def import_sklearn_linear() -> Any:
    """Return scikit-learn with its linear models, which take longer to import than most fits."""
    import sklearn.linear_model
    import sklearn.svm

    return sklearn


def fit_liblinear(
    loss: ClassificationLoss,
    X: Features,
    signs: Array,
    weights: Array,
    *,
    seed: int,
    tolerance: float,
    iterations: int,
) -> tuple[Array, bool]:
    """Minimize `|w|^2 / 2 + sum of weights * loss(signs * Xw)`.

    Return the weights (d,) and whether the tolerance was reached.

    The loss `hinge` is max(0, 1 - z), minimized by dual coordinate descent; `logistic` is
    log(1 + exp(-z)), minimized by trust region Newton.
    """
    sklearn = import_sklearn_linear()
    if loss == "hinge":
        model = sklearn.svm.LinearSVC(loss="hinge", dual=True)
    else:
        model = sklearn.linear_model.LogisticRegression(solver="liblinear")
    model.set_params(tol=tolerance, max_iter=iterations, random_state=seed)
    model.set_params(fit_intercept=False, C=1.0)
    if len(np.unique(signs)) == 1:
        # LIBLINEAR rejects a single class; a zero row of the other class does not change the fit.
        if isinstance(X, np.ndarray):
            X = np.pad(X, ((0, 1), (0, 0)))
        else:
            X = X.copy()
            X.resize((X.shape[0] + 1, X.shape[1]))
        signs, weights = np.append(signs, -signs[0]), np.append(weights, weights.min())
    early = sklearn.exceptions.ConvergenceWarning
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", early)
        model.fit(to_int32_indices(X), signs, sample_weight=weights)
    converged = not any(issubclass(w.category, early) for w in caught)
    return np.asarray(model.coef_[0], dtype=float), converged


def to_int32_indices(X: Features) -> Features:
    """Return X with 32-bit sparse indices, the only ones that LIBLINEAR accepts.

    Files and stacking may produce 64-bit ones.
    """
    if isinstance(X, np.ndarray) or X.indices.dtype == X.indptr.dtype == np.int32:
        return X
    indices, starts = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return sparse.csr_array((X.data, indices, starts), shape=X.shape)
