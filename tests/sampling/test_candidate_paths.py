"""Failure rates of safety tests with several candidates or several algorithms, on known populations."""

import numpy as np
import pytest
from scipy.stats import binomtest

from ratecli.certify.trees import SafetyTestSpec
from ratecli.models.linear import Threshold
from ratecli.rates.analysis import constraint_goal
from ratecli.rates.parser import parse_constraint
from ratecli.rates.resolve import constraint_differences, violation_expression
from ratecli.rates.sample import Sample
from ratecli.rates.scope import Scope
from ratecli.sampling.rows import TrialData
from ratecli.sampling.safety_rows import SafetyRows
from ratecli.solvers.base import Solution

ROWS, DELTA = 300, 0.05
SHARES = np.array([0.3, 0.45, 0.5, 0.5001, 0.55])
"""Shares of positive decisions of candidates, of which the last two violate `LIMIT`."""
LIMIT = "positive_rate <= 0.5"


def limit_goal():
    differences = constraint_differences(parse_constraint(LIMIT), Scope())
    return constraint_goal("limit", LIMIT, differences, violation_expression(differences))


def data(seed, features=1):
    """Return rows of the test and of training, with independent uniform features."""
    rng, n = np.random.default_rng(seed), 2 * ROWS
    part = np.array(["safety"] * ROWS + ["train"] * ROWS)
    columns = (rng.integers(0, 2, n).astype(float), np.full(n, "d"), part, np.ones(n))
    return TrialData(Sample({}, *columns), rng.random((n, features)))


def returned(rows, path, feature=0, joint=0):
    """Return the share of positive decisions of the candidate that is returned, None if none is."""
    weights = -np.eye(rows.X.shape[1])[feature]
    variants = [{"main": Threshold(weights, share)} for share in path]
    solution = Solution(variants[0], bolder=tuple(variants[1:]))
    spec = SafetyTestSpec({"limit": DELTA / max(joint, 1)}, ROWS, joint=joint)
    test = SafetyRows(rows, spec, (0.0, 1.0), 0)
    found = test.verdict(solution, rows.answers(variants[0]), [limit_goal()])
    return found.solution.variants["main"].bias if found.solution.variants else None


def test_the_last_candidate_before_the_first_failure_is_returned():
    """Each candidate alone passes or not; a later success does not count."""
    for seed in range(20):
        rows = data(seed)
        alone = [returned(rows, [share]) is not None for share in SHARES]
        passed = SHARES[: alone.index(False)]
        assert returned(rows, SHARES) == (passed[-1] if len(passed) else None)
    rows = data(0)
    assert returned(rows, [0.9, 0.3]) is None
    assert returned(rows, [0.3, 0.9, 0.35]) == 0.3


def failures(draws, fails):
    """Return the number of draws in which a model that violates the limit is returned."""
    return sum(fails(data(seed, 3)) for seed in range(draws))


@pytest.mark.slow
def test_candidates_that_violate_are_returned_with_probability_delta():
    draws = 5000
    broken = failures(draws, lambda rows: (returned(rows, SHARES) or 0) > 0.5)
    assert binomtest(broken, draws, DELTA, "greater").pvalue > 0.01
    assert broken > 0.6 * DELTA * draws  # the safe candidates do not use up the error probability


@pytest.mark.slow
def test_joint_guarantees_cover_the_choice_among_algorithms_on_the_same_rows():
    draws = 5000

    def some(rows, joint):
        """Whether one of three algorithms, which barely violate the limit, passes."""
        path = [0.4, 0.5001]
        return any((returned(rows, path, k, joint) or 0) > 0.5 for k in range(3))

    broken = failures(draws, lambda rows: some(rows, 3))
    assert binomtest(broken, draws, DELTA, "greater").pvalue > 0.01
    assert failures(300, lambda rows: some(rows, 0)) > 0.1 * 300  # without it, many draws fail
