"""Classes of models: what may be named, with which parameters, and fits of them.

Boosted trees (LightGBM, XGBoost, CatBoost, scikit-learn's histograms) are fitted to columns, with
categories and missing numbers, other models to features.
"""

from __future__ import annotations

import inspect
import io
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning

from ratecli import plugins
from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Classifier, Features
from ratecli.models.composed import ARGMAX_COSTS, CostSensitiveClassifier, ProbabilityThreshold
from ratecli.models.layout import ColumnLayout
from ratecli.models.linear import Logistic, Threshold, logistic
from ratecli.models.output_cache import array_digest
from ratecli.models.probabilities import ProbabilityModel, SklearnModel, takes_sparse
from ratecli.models.storage import dumps, load_probabilities
from ratecli.models.tree_formats.catboost import read_catboost
from ratecli.models.tree_formats.lightgbm import read_lightgbm
from ratecli.models.tree_formats.scikit_learn import TREE_CONVERTERS, convert_sklearn_trees
from ratecli.models.tree_formats.xgboost import read_xgboost
from ratecli.models.trees import TreeEnsemble
from ratecli.solvers.fit_cache import Codec, FitCache
from ratecli.solvers.liblinear import to_int32_indices
from ratecli.solvers.oracles.base import FitRows, as_linear_threshold
from ratecli.solvers.oracles.model_names import (
    EARLY_STOPPING,
    ModelKind,
    NamedOptions,
    class_path,
    find_instance,
)
from ratecli.version import __version__

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
    """Return the arguments of `fit` for early stopping, {} if the model does not stop early.

    `weights` is the name of the argument with the weights of the validation rows.
    """
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


BOOSTER_FITS: Mapping[str, Callable[[Any, FitRows, FitRows | None], TreeEnsemble]] = {
    "lightgbm": _fit_lightgbm,
    "xgboost": _fit_xgboost,
    "catboost": _fit_catboost,
}


def fit_booster(model: Any, rows: FitRows, stopping: FitRows | None) -> TreeEnsemble | None:
    """Fit boosted trees to rows and return them; None if the model is of another kind.

    Raises
    ------
    Exception
        As the library does.
    """
    if type(model).__name__.startswith("HistGradientBoosting"):
        return _fit_histogram(model, rows)
    fit = BOOSTER_FITS.get(library(type(model)))
    return fit(model, rows, stopping) if fit else None


def _columns(X: Features, layout: ColumnLayout) -> Array:
    """Return the columns (m, C); raise ValueError if they are too large."""
    _check_size(X.shape[0] * len(layout.levels), X)
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
    _check_size(X.shape[0] * X.shape[1], X)
    return np.asarray(X.toarray())


def _check_size(entries: int, X: Features) -> None:
    """Raise ValueError if a dense array would have too many entries."""
    if entries > MAX_DENSE_ENTRIES:
        raise ValueError(f"it needs a dense matrix, and {X.shape[0]} x {X.shape[1]} is too large")


def model_class(name: str, kind: ModelKind | None = None) -> type[BaseEstimator]:
    """Return the class of a name that `model_names.class_path` knows, after a check of its kind.

    Raises
    ------
    ImportError, AttributeError
        If it does not exist.
    TypeError
        If it is no classifier, or no regressor, whose fit takes sample weights.
    """
    path = class_path(name)
    assert path is not None
    module, _, attribute = path.partition(":")
    found: Any = getattr(import_module(module), attribute)
    if not isinstance(found, type):
        raise TypeError("it is not a class")
    if kind is not None:
        check_estimator(found, None, kind)
    return found


def check_estimator(found: type[Any], instance: Any, kind: ModelKind) -> None:
    """Raise TypeError unless a class is of a kind and its fit takes sample weights."""
    if estimator_kind(found, instance) != kind:
        raise TypeError(f"it is not a {kind} class")
    if kind == "regressor" and library(found) == "catboost":
        raise TypeError("its trees cannot be stored, those of LGBMRegressor can")
    if "sample_weight" not in inspect.signature(found.fit).parameters:
        raise TypeError("its fit takes no sample weights")


def estimator_kind(found: type[Any], instance: Any = None) -> str | None:
    """Return whether a class, or an instance of it, is a classifier or a regressor."""
    if own := getattr(found, "_estimator_type", None):  # CatBoost's
        return str(own)
    if not issubclass(found, BaseEstimator):
        return None
    # an unfitted ensemble has no length, so it is neither true nor false
    made = found() if instance is None else instance
    return "classifier" if is_classifier(made) else "regressor" if is_regressor(made) else None


def class_name(found: type[Any]) -> str:
    """Return the name of a classifier class in a file."""
    for name in (found.__name__, library(found)):
        if class_path(name) is not None and model_class(name) is found:
            return name
    return f"{found.__module__}:{found.__qualname__}"


def parameter_names(estimator: type[BaseEstimator]) -> list[str]:
    """Return the names of the parameters that an option may set."""
    explicit = inspect.signature(estimator).parameters.values()
    names = {each.name for each in explicit if each.kind is not each.VAR_KEYWORD}
    more = {*estimator().get_params(deep=False), *LIBRARY_PARAMETERS.get(library(estimator), ())}
    return sorted((names | more) - FILE_PARAMETERS)


SOURCE_LINE = re.compile(r"^\S+\.(cpp|h):\d+: | at /\S+, line \d+ \.$")
"""A line of a library's source code in its messages."""
TREE_COUNTS = ("iterations", "n_estimators", "num_boost_round", "num_trees")
CHECKED_TREES = 3
"""Largest number of trees of the fit that checks parameters."""


def parameter_error(estimator: type[BaseEstimator], parameters: Mapping[str, Any]) -> str | None:
    """Return the library's message if it does not accept the parameters."""
    try:
        model = estimator(**parameters)
        if library(estimator) == "sklearn":
            # private, but `fit` runs the same check first
            model._validate_params()  # noqa: SLF001
        elif library(estimator) in LIBRARY_SETTINGS:
            X = np.random.default_rng(0).random((40, 2))
            classes = (X[:, 0] > 0.5).astype(np.intp)
            rows = FitRows(X, ColumnLayout.numbers(2), classes, np.ones(40))
            few = {
                key: min(value, CHECKED_TREES)
                for key, value in model.get_params().items()
                if key in TREE_COUNTS and isinstance(value, int)
            }
            model.set_params(**library_settings(estimator, parameters), **few)
            with warnings.catch_warnings(), redirect_stdout(io.StringIO()), _no_stderr():
                warnings.simplefilter("ignore")
                trees = fit_booster(model, rows, rows)
            if trees is None:
                model.fit(X, classes)
            elif is_regressor(model) and trees.classes > 1:
                return "this objective predicts classes, not numbers"
    except Exception as error:  # noqa: BLE001  every library has its own errors
        return SOURCE_LINE.sub("", " ".join(str(error).split()))
    return None


@contextmanager
def _no_stderr() -> Iterator[None]:
    """Discard what libraries write to stderr: LightGBM prints every error that it also raises."""
    sys.stderr.flush()
    with open(os.devnull, "wb") as nowhere, suppress(OSError):  # noqa: PTH123
        kept = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def make_estimator(
    name: str, options: Mapping[str, Any], rng: np.random.Generator
) -> BaseEstimator:
    """Return the unfitted model, seeded from `rng` unless `random_state` is a number.

    A booster gets ratecli's settings of its library for parameters that are left at their default.
    """
    instance = find_instance(name)
    model = model_class(name)() if instance is None else clone(instance)
    given = model.set_params(**options).get_params()
    settings = library_settings(type(model), [*given, *options])
    defaults = type(model)().get_params() if settings else {}
    unset = [key for key in settings if key not in options and given.get(key) == defaults.get(key)]
    model.set_params(**{key: settings[key] for key in unset})
    names = {*given, *LIBRARY_PARAMETERS.get(library(type(model)), ())}
    if "random_state" in names and given.get("random_state") is None:
        model.set_params(random_state=int(rng.integers(2**31)))
    return model


CACHED_ESTIMATORS = 32
"""Number of most recently used fits that are kept."""
_estimator_cache = FitCache(CACHED_ESTIMATORS, Codec(dumps, load_probabilities))


def fit_estimator(
    model: BaseEstimator, rows: FitRows, stopping: FitRows | None = None
) -> ProbabilityModel:
    """Fit the classifier to rows of Q classes, 0 to Q - 1.

    The result of an identical recent fit of a trusted package's class is reused. A `random_state`
    must be an integer, which `make_estimator` ensures. Booster libraries see columns with
    categories and missing numbers, other classifiers the features; `stopping` are rows for a
    library's early stopping.

    Raises
    ------
    FaultError
        E501 if it rejects the rows or the options, or cannot be stored.
    """
    name = type(model).__name__

    def fit() -> ProbabilityModel:
        # results and JSON are written to stdout
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            # an oracle may be approximate: accept a fit that stopped early
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", FutureWarning)
            return fit_booster(model, rows, stopping) or _fit_to_features(model, rows)

    parameters = model.get_params()
    nested = [each for each in parameters.values() if isinstance(each, BaseEstimator)]
    kinds = [type(each) for each in (model, *nested)]
    known = all(plugins.is_trusted_package(library(kind)) for kind in kinds)
    names = [(kind.__module__, kind.__qualname__, _version(kind)) for kind in kinds if known]
    said = __version__, names, sorted(parameters.items(), key=str)
    parts = [(each.X, each.layout.levels, *each[2:]) for each in (rows, stopping) if each]
    key = b"".join(array_digest(said, *part) for part in parts)
    try:
        return _estimator_cache.get(key, fit) if known else fit()
    except Exception as error:  # every library has its own errors
        if isinstance(error, FaultError):
            raise
        message = f"{name} cannot be fitted or stored: {' '.join(str(error).split())}"
        raise FaultError(Diagnostic("E501", message)) from error


def _version(found: type[Any]) -> str | None:
    """Return the version of a class's package, or if it has none, the code of the module."""
    version = sys.modules[library(found)].__dict__.get("__version__")
    with suppress(OSError):
        return str(version) if version else inspect.getsource(sys.modules[found.__module__])
    return None


def _fit_to_features(model: BaseEstimator, rows: FitRows) -> ProbabilityModel:
    X = to_int32_indices(rows.X) if takes_sparse(model) else dense_features(rows.X)
    model.fit(X, rows.classes, sample_weight=rows.weights)
    if type(model).__name__ in TREE_CONVERTERS:
        return convert_sklearn_trees(model, ColumnLayout.numbers(rows.layout.width))
    if not hasattr(model, "n_features_in_"):  # only scikit-learn's own classes must set it
        model.n_features_in_ = rows.X.shape[1]
    return SklearnModel(model)


def fit_named(
    value: Any,
    rows: FitRows,
    l2: float,
    rng: np.random.Generator,
    stopping: FitRows | None = None,
    *,
    total: float | None = None,
) -> ProbabilityModel:
    """Fit the classifier or regressor that a checked option names to rows of classes, or numbers.

    `l2` is the regularization of a logistic regression without a `C` of its own, whose weights add
    up to `total`, by default the number of rows. `stopping` are rows for early stopping.

    Raises
    ------
    FaultError
        E501 if the model rejects the rows or its options, or cannot be stored.
    """
    choice = NamedOptions.parse(value)
    parameters = choice.parameters(l2, total or rows.X.shape[0])
    return fit_estimator(make_estimator(choice.name, parameters, rng), rows, stopping)


def as_classifier(model: ProbabilityModel) -> Classifier:
    """Return the decisions of a model of two classes as its library makes them."""
    if isinstance(model, SklearnModel):
        line = as_linear_threshold(model.model)
        if line is not None:
            is_logistic = model.has_probabilities and _is_logistic(model.model, line)
            return Logistic(line.weights, line.bias) if is_logistic else line
    if isinstance(model, SklearnModel) and not model.has_probabilities:
        return CostSensitiveClassifier(model, ARGMAX_COSTS)
    return ProbabilityThreshold(model)


def _is_logistic(model: BaseEstimator, line: Threshold) -> bool:
    """Return whether `predict_proba` is the logistic function of the linear score."""
    w = line.weights
    rows = np.outer(np.linspace(-2, 2, 5), w / max(float(w @ w), np.finfo(float).tiny))
    chances = model.predict_proba(rows)[:, 1]
    return bool(np.allclose(chances, logistic(line.score(rows)), rtol=1e-9, atol=0))
