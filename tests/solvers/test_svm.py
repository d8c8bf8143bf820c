"""The SVMs inside Algorithm 2."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.instances import instance
from oracles.problem3 import least, toy_dual

from ratecli.solvers.design_matrix import DesignMatrix, Intercept
from ratecli.solvers.majorize import cutting_plane as svm
from ratecli.solvers.majorize.convex import ConvexProblem, RampProblem


def lagrangian(seed: int, intercept: Intercept, kind: str) -> ConvexProblem:
    convex = instance(seed, 2, intercept, kind)
    return convex.lagrangian(np.random.default_rng(seed).uniform(0, 2, size=2))


@pytest.mark.parametrize("kind", ["dense", "sparse", "merged", "wide"])
@pytest.mark.parametrize("intercept", ["regularized", "unregularized", "none"])
def test_newton_is_as_exact_as_it_is_asked_to_be(intercept, kind):
    for seed in range(3):
        convex = lagrangian(seed, intercept, kind)
        optimum = least(convex)
        assert optimum
        for accuracy in (1e-2, 1e-6):
            fit = svm.newton_svm()(convex, np.zeros(convex.ramp.rows.width), accuracy)
            assert fit.converged
            assert fit.lower is not None
            assert optimum[0] - accuracy - 1e-9 <= fit.lower <= optimum[0] + 1e-8
            assert convex.values(fit.w)[0] <= optimum[0] + accuracy + 1e-9


@pytest.mark.parametrize("kind", ["dense", "sparse", "merged"])
@pytest.mark.parametrize("intercept", ["regularized", "none"])
def test_liblinear_comes_close_and_proves_nothing(intercept, kind):
    for seed in range(3):
        convex = lagrangian(seed, intercept, kind)
        optimum = least(convex)
        assert optimum
        fit = svm.liblinear_svm(0, 1e-7, 1_000_000)(convex, np.zeros(convex.ramp.rows.width), 0.0)
        assert fit.converged
        assert fit.lower is None
        assert optimum[0] - 1e-8 <= convex.values(fit.w)[0] <= optimum[0] + 1e-5


@pytest.mark.parametrize("least_by", [svm.newton_svm(), svm.liblinear_svm(0)])
def test_a_problem_without_costs_is_left_at_zero(least_by):
    ramp = RampProblem.of(DesignMatrix(np.ones((4, 2))), np.zeros((1, 4)), np.array([0.5]), 1.0)
    fit = least_by(ConvexProblem.tight_at(ramp, np.zeros(4)), np.zeros(3), 1e-6)
    assert fit.converged
    assert not fit.w.any()


def test_dual_function_of_two_points_under_a_coverage_constraint():
    """Protocols of Goh et al. 2016, vector 9.3; the penalty is tiny, not absent."""
    rows = DesignMatrix(np.array([[1.0], [-1.0]]), "unregularized")
    coefficients = np.array([[-0.5, 0.5], [0.5, 0.5]])
    ramp = RampProblem.of(rows, coefficients, np.array([0.5, -0.25]), 1e-6)
    convex = ConvexProblem.tight_at(ramp, np.zeros(2))
    for v, wanted in ((0.0, 0.0), (0.5, 0.125), (1.0, 0.25), (1.5, 0.125), (2.0, 0.0)):
        fit = svm.newton_svm()(convex.lagrangian(np.array([v])), np.zeros(2), 1e-7)
        assert fit.lower == pytest.approx(wanted, abs=2e-6)
        assert toy_dual(v) == pytest.approx(wanted, abs=1e-9)
