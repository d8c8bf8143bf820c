"""What the formats share: their limits, refusals, and the linear part of a classifier."""

from __future__ import annotations

from ratecli.errors import Diagnostic, FaultError
from ratecli.models import composed as mc
from ratecli.models.base import Classifier
from ratecli.models.linear import LinearRegressor, Threshold
from ratecli.models.probabilities import ProbabilityModel, SklearnModel
from ratecli.models.proxies import ProxyFilter
from ratecli.models.trees import TreeEnsemble

LIMITS = {
    "json": "linear models, also with thresholds of groups",
    "sklearn": "linear models, also with thresholds of the values of one column, and "
    "scikit-learn's own classifiers except trees",
    "onnx": "linear models, trees, means of both, votes, most of scikit-learn's "
    "classifiers, and thresholds of groups on them",
}
"""What each format can represent."""


def linear_part(classifier: Classifier) -> Threshold | LinearRegressor | None:
    """Return the linear model of a classifier that may have thresholds of groups, else None."""
    inner = classifier.scorer if isinstance(classifier, mc.GroupThreshold) else classifier
    return inner if isinstance(inner, Threshold | LinearRegressor) else None


def refusal(classifier: Classifier, form: str, why: str = "") -> FaultError:
    """Return the E104 for a classifier, or a part `why` of it, that a format cannot represent."""
    what = why or _in_words(classifier)
    hint = "; ".join(f"{name} is for {text}" for name, text in LIMITS.items())
    if what in WITHOUT_FORMAT:
        hint = "use `ratecli predict`" + "; `randomize: false` trains a model without them" * (
            what == RANDOM
        )
    return FaultError(Diagnostic("E104", f"--format {form} cannot represent {what}", hint))


RANDOM, HASHED, FILTER = "random decisions", "decisions by a hash of each row", "a filter"
WITHOUT_FORMAT = (RANDOM, HASHED, FILTER)
"""What no format can represent."""


def is_random(classifier: Classifier) -> bool:
    """Return whether equal rows may get different decisions."""
    return _in_words(classifier) == RANDOM


def is_regression(classifier: Classifier) -> bool:
    """Return whether a classifier estimates numbers."""
    while isinstance(classifier, mc.MixtureClassifier):
        classifier = classifier.members[0]
    return isinstance(classifier, LinearRegressor | mc.ModelRegressor)


def _in_words(classifier: Classifier) -> str:
    match classifier:
        case ProxyFilter():
            return FILTER
        case mc.HashedRamp() | mc.HashedMixture():
            return HASHED
        case mc.GroupThreshold(scorer=scorer):
            return f"{_in_words(scorer)} with a threshold for each group"
        case mc.MajorityVote(members=members):
            return f"a vote of {len(members)} models"
        case mc.MixtureClassifier(members=members) if is_regression(classifier):
            return f"the mean of {len(members)} regressions"
        case mc.CostSensitiveClassifier(chances=model) | mc.ModelRegressor(values=model):
            return _named(model)
        case LinearRegressor():
            return "a regression whose estimates have limits"
        case Threshold():
            return "a linear model"
        case _:
            return RANDOM


def _named(model: ProbabilityModel) -> str:
    match model:
        case TreeEnsemble():
            return "trees"
        case SklearnModel(model=inner):
            return f"a {type(inner).__name__}"
        case _:
            return "a model of labels and groups together"
