import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from ratecli import (
    BalancedFilter,
    RateConstrainedClassifier,
    RateConstrainedRegressor,
    SafetyTest,
)

ESTIMATORS = [
    RateConstrainedClassifier(),
    RateConstrainedClassifier(solver="majorize", solver_options={"iterations": 2}),
    RateConstrainedRegressor(),
    BalancedFilter(),
    SafetyTest(LogisticRegression()),
]


def not_met(estimator):
    """Checks that are not to be met, and why."""
    if getattr(estimator, "solver", "") != "majorize":
        return {}
    why = "its solver ends within a tolerance, and repeated rows come in another order than weights"
    return {"check_sample_weight_equivalence_on_dense_data": why}


# checks fit nonsense, and scikit-learn looks at warnings itself
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=not_met)
def test_an_estimator_is_one_of_scikit_learn(estimator, check):
    check(estimator)
