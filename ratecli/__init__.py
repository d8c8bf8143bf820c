"""Train classifiers under goals written as rates, compare the ways to do it, prove what was found.

From Python there are `run` and `load_results` for experiments, `load_dataset`, the scikit-learn
estimators `RateConstrainedClassifier`, `BalancedFilter` and `SafetyTest`, and `rate_score`,
`rate_scorer` and `violation_scorer` to measure with. Each is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ratecli.api.balanced import BalancedFilter as BalancedFilter
    from ratecli.api.classifier import RateConstrainedClassifier as RateConstrainedClassifier
    from ratecli.api.errors import FaultError as FaultError
    from ratecli.api.errors import NoSolutionFoundError as NoSolutionFoundError
    from ratecli.api.errors import RatecliWarning as RatecliWarning
    from ratecli.api.runs import Results as Results
    from ratecli.api.runs import load_dataset as load_dataset
    from ratecli.api.runs import load_results as load_results
    from ratecli.api.runs import run as run
    from ratecli.api.scoring import rate_score as rate_score
    from ratecli.api.scoring import rate_scorer as rate_scorer
    from ratecli.api.scoring import violation_scorer as violation_scorer
    from ratecli.api.tested import SafetyTest as SafetyTest

__version__ = "0.1.0"

_WHERE = {
    "BalancedFilter": "api.balanced",
    "FaultError": "api.errors",
    "NoSolutionFoundError": "api.errors",
    "RateConstrainedClassifier": "api.classifier",
    "RatecliWarning": "api.errors",
    "Results": "api.runs",
    "SafetyTest": "api.tested",
    "load_dataset": "api.runs",
    "load_results": "api.runs",
    "rate_score": "api.scoring",
    "rate_scorer": "api.scoring",
    "run": "api.runs",
    "violation_scorer": "api.scoring",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'ratecli' has no attribute '{name}'")
    return getattr(import_module(f"ratecli.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *_WHERE])
