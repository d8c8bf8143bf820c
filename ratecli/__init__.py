"""Train classifiers under goals written as rates, compare algorithms, and certify the results.

From Python there are `run`, `fit` and `load_results` for experiments, `load_dataset`, the
scikit-learn estimators `RateConstrainedClassifier`, `RateConstrainedRegressor`, `BalancedFilter`
and `SafetyTest`, and `rate_score`, `rate_scorer` and `violation_scorer` to measure with. Each is
imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ratecli.version import __version__ as __version__

if TYPE_CHECKING:
    from ratecli.api.balanced_filter import BalancedFilter as BalancedFilter
    from ratecli.api.errors import FaultError as FaultError
    from ratecli.api.errors import NoSolutionFoundError as NoSolutionFoundError
    from ratecli.api.errors import RatecliWarning as RatecliWarning
    from ratecli.api.estimators import RateConstrainedClassifier as RateConstrainedClassifier
    from ratecli.api.estimators import RateConstrainedRegressor as RateConstrainedRegressor
    from ratecli.api.runs import Results as Results
    from ratecli.api.runs import fit as fit
    from ratecli.api.runs import load_dataset as load_dataset
    from ratecli.api.runs import load_results as load_results
    from ratecli.api.runs import run as run
    from ratecli.api.safety_test import SafetyTest as SafetyTest
    from ratecli.api.scoring import rate_score as rate_score
    from ratecli.api.scoring import rate_scorer as rate_scorer
    from ratecli.api.scoring import violation_scorer as violation_scorer

_NAMES = {
    "balanced_filter": ("BalancedFilter",),
    "estimators": ("RateConstrainedClassifier", "RateConstrainedRegressor"),
    "errors": ("FaultError", "NoSolutionFoundError", "RatecliWarning"),
    "runs": ("Results", "fit", "load_dataset", "load_results", "run"),
    "scoring": ("rate_score", "rate_scorer", "violation_scorer"),
    "safety_test": ("SafetyTest",),
}
"""Public names by the module of `ratecli.api` that defines them."""
_WHERE = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'ratecli' has no attribute '{name}'")
    return getattr(import_module(f"ratecli.api.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *_WHERE])
