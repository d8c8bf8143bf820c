"""Fits of boosted trees on columns: LightGBM, XGBoost, scikit-learn's histograms; CatBoost."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ratecli.models.base import Array, Features
from ratecli.models.layout import ColumnLayout
from ratecli.models.tree_formats import (
    convert_sklearn_trees,
    read_catboost,
    read_lightgbm,
    read_xgboost,
)
from ratecli.models.trees import TreeEnsemble
from ratecli.solvers.oracles.base import FitRows
from ratecli.solvers.oracles.model_names import EARLY_STOPPING

MAX_DENSE_ENTRIES = 2**28
"""Largest number of entries of a feature matrix that is made dense (2 GiB)."""
MAX_HISTOGRAM_LEVELS = 255
"""Largest number of levels of a category in scikit-learn's histograms."""

LIBRARY_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "lightgbm": {"n_jobs": 1, "verbosity": -1, "deterministic": True, "force_row_wise": True},
    "xgboost": {"n_jobs": 1, "verbosity": 0, "enable_categorical": True},
    "catboost": {"thread_count": 1, "verbose": False, "allow_writing_files": False},
}
"""Settings of a library in every fit, by its package, unless an option replaces them."""
QUIET_PARAMETERS = ("logging_level", "silent", "verbose_eval")
"""Parameters of CatBoost in place of `verbose`, which cannot be set together with them."""
LIBRARY_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "lightgbm": (
        *("bagging_seed", "cat_l2", "cat_smooth", "early_stopping_round", "extra_trees"),
        *("feature_fraction_bynode", "max_bin", "max_cat_threshold", "max_cat_to_onehot"),
        *("max_delta_step", "min_data_in_bin", "min_data_per_group", "path_smooth"),
        *("scale_pos_weight", "verbose", "verbosity"),
    ),
    "catboost": ("random_state",),
}
"""Parameters that the library takes beside those of its class."""
FILE_PARAMETERS = frozenset(
    {
        *("allow_writing_files", "input_borders", "output_borders", "roc_file", "save_snapshot"),
        *("snapshot_file", "snapshot_interval", "train_dir"),
    }
)
"""Parameters of CatBoost that let a fit read and write files, which no option may set."""

EXACT_LIGHTGBM = "\nobjective=binary sigmoid:1\n"
"""In the text of a booster whose raw scores are the log-odds of its trees, without rounding."""


def library(estimator: type[Any]) -> str:
    """Return the top-level package of a class."""
    return estimator.__module__.partition(".")[0]


def library_settings(estimator: type[Any], given: Collection[str]) -> dict[str, Any]:
    """Return ratecli's settings of a class's library, without those that conflict with options."""
    settings = dict(LIBRARY_SETTINGS.get(library(estimator), {}))
    if any(key in given for key in QUIET_PARAMETERS):
        settings.pop("verbose", None)
    return settings


def fit_booster(model: Any, rows: FitRows, stopping: FitRows | None) -> TreeEnsemble | None:
    """Fit boosted trees to rows and return them; None if the model is of another kind.

    Raises
    ------
    Exception
        As the library does.
    """
    match library(type(model)):
        case "lightgbm":
            return _fit_lightgbm(model, rows, stopping)
        case "xgboost":
            return _fit_xgboost(model, rows, stopping)
        case "catboost":
            return _fit_catboost(model, rows, stopping)
        case "sklearn" if type(model).__name__.startswith("HistGradientBoosting"):
            return _fit_histogram(model, rows)
    return None


def _fit_lightgbm(model: Any, rows: FitRows, stopping: FitRows | None) -> TreeEnsemble:
    more = _stopping_rows(model, stopping, "eval_sample_weight", lightgbm_columns)
    more["categorical_feature"] = rows.layout.categories or "auto"
    columns = lightgbm_columns(rows.X, rows.layout)
    model.fit(columns, rows.classes, sample_weight=rows.weights, **more)
    text = model.booster_.model_to_string()
    trees = read_lightgbm(text, rows.layout)
    same = EXACT_LIGHTGBM in text and "\naverage_output\n" not in text
    return trees.with_library(partial(lightgbm_sums, model.booster_)) if same else trees


def lightgbm_sums(booster: Any, columns: Array, *, rounds: int | None = None) -> Array:
    """Return the sums (n, 2) of a binary booster's first trees, for `TreeEnsemble.with_library`."""
    raw = booster.predict(columns, raw_score=True, num_iteration=rounds, num_threads=1)
    return np.column_stack([np.zeros(len(raw)), raw])


def _fit_xgboost(model: Any, rows: FitRows, stopping: FitRows | None) -> TreeEnsemble:
    if not np.isnan(model.missing):
        raise ValueError("'missing' must be NaN: the model file records no other missing value")
    kinds = np.where(rows.layout.levels > 0, "c", "q").tolist()
    model.set_params(feature_types=kinds)
    more = _stopping_rows(model, stopping, "sample_weight_eval_set", _columns)
    columns = _columns(rows.X, rows.layout)
    model.fit(columns, rows.classes, sample_weight=rows.weights, verbose=False, **more)
    booster = model.get_booster()
    if more:
        booster = booster[: model.best_iteration + 1]
    return read_xgboost(bytes(booster.save_raw("json")), rows.layout)


def _stopping_rows(
    model: Any, stopping: FitRows | None, weights: str, columns: Callable[..., Any]
) -> dict[str, Any]:
    """Return the arguments of a fit that stops early; `weights` is the name of one of them."""
    if stopping is None or not any(model.get_params().get(key) for key in EARLY_STOPPING):
        return {}
    given = [(columns(stopping.X, stopping.layout), stopping.classes)]
    return {"eval_set": given, weights: [stopping.weights]}


def _fit_catboost(model: Any, rows: FitRows, stopping: FitRows | None) -> TreeEnsemble:
    """Fit on one-hot features: CatBoost's own categories are not stored as plain splits."""
    from catboost import Pool

    more: dict[str, Any] = {}
    if stopping is not None and model.get_params().get("early_stopping_rounds"):
        more["eval_set"] = Pool(
            dense_features(stopping.X), stopping.classes, weight=stopping.weights
        )
    model.fit(dense_features(rows.X), rows.classes, sample_weight=rows.weights, **more)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        return read_catboost(path.read_bytes(), ColumnLayout.numbers(rows.layout.width))


def _fit_histogram(model: Any, rows: FitRows) -> TreeEnsemble:
    categories, layout = rows.layout.categories, rows.layout
    if (layout.levels > min(MAX_HISTOGRAM_LEVELS, model.max_bins)).any():
        layout, categories = ColumnLayout.numbers(layout.width), []
    if model.categorical_features == "from_dtype":
        model.set_params(categorical_features=categories or None)
    X = _columns(rows.X, layout) if layout is rows.layout else dense_features(rows.X)
    model.fit(X, rows.classes, sample_weight=rows.weights)
    return convert_sklearn_trees(model, layout)


def _columns(X: Features, layout: ColumnLayout) -> Array:
    """Return the columns (m, C); raise ValueError if they are too large."""
    check_size(X.shape[0] * len(layout.levels), X)
    return layout.columns(X)


def lightgbm_columns(X: Features, layout: ColumnLayout) -> Array | sparse.csr_matrix:
    """Return the columns (m, C); sparse features that are all numbers stay sparse.

    XGBoost would take their zeros for missing. Raises ValueError if the columns are too large.
    """
    if isinstance(X, np.ndarray) or layout.levels.any():
        return _columns(X, layout)
    return sparse.csr_matrix(X)  # LightGBM warns of an array


def dense_features(X: Features) -> Array:
    """Return X as a dense array; raise ValueError if it is too large."""
    if isinstance(X, np.ndarray):
        return X
    check_size(X.shape[0] * X.shape[1], X)
    return np.asarray(X.toarray())


def check_size(entries: int, X: Features) -> None:
    """Raise ValueError if a dense array would have too many entries."""
    if entries > MAX_DENSE_ENTRIES:
        raise ValueError(f"it needs a dense matrix, and {X.shape[0]} x {X.shape[1]} is too large")
