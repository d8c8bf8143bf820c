import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from ratecli import (
    BalancedFilter,
    RateConstrainedClassifier,
    RateConstrainedRegressor,
    SafetyTest,
)

MAJORIZE = RateConstrainedClassifier(solver="majorize", solver_options={"iterations": 2})
ESTIMATORS = [
    RateConstrainedClassifier(),
    RateConstrainedRegressor(),
    BalancedFilter(),
    SafetyTest(LogisticRegression()),
]


def not_met(_estimator):
    """Checks that `majorize` is not to meet, and why."""
    why = "its solver ends within a tolerance, and repeated rows come in another order than weights"
    return {"check_sample_weight_equivalence_on_dense_data": why}


# checks fit nonsense, and scikit-learn looks at warnings itself
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ESTIMATORS)
def test_an_estimator_is_one_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([MAJORIZE], expected_failed_checks=not_met)
def test_an_estimator_with_another_solver_is_one_of_scikit_learn(estimator, check):
    check(estimator)
