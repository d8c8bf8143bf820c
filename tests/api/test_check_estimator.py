import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from ratecli import BalancedFilter, RateConstrainedClassifier, SafetyTest

ESTIMATORS = [
    RateConstrainedClassifier(),
    RateConstrainedClassifier(solver="majorize", solver_options={"iterations": 2}),
    BalancedFilter(),
    SafetyTest(LogisticRegression()),
]


@pytest.mark.filterwarnings(
    "ignore"
)  # checks fit nonsense, and scikit-learn looks at warnings itself
@parametrize_with_checks(ESTIMATORS)
def test_an_estimator_is_one_of_scikit_learn(estimator, check):
    check(estimator)
