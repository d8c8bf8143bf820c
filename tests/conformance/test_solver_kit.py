# ruff: noqa: ARG002
"""Checks of solvers: ratecli's own algorithms pass, and each broken solver fails its check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mutants import CAUGHT, MUTANTS, Cuts, UnknownClass

from ratecli.conformance import check_solver
from ratecli.conformance.checks import run_checks
from ratecli.conformance.problems import SolverRuns
from ratecli.conformance.solvers import SOLVER_CHECKS
from ratecli.models.linear import Threshold
from ratecli.solvers.base import Solution
from ratecli.solvers.registry import all_algorithms

CHECKS = {each.__name__.replace("_", " "): {each: SOLVER_CHECKS[each]} for each in SOLVER_CHECKS}
QUICK = ("unconstrained", "post_shift", "audit")
FEWER = {"three_player": {"steps": 600}, "coco": {"steps": 40}}
"""Steps that are enough for 60 rows."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK))
        for name in sorted(all_algorithms())
    ],
)
def test_built_in_algorithms_pass(name):
    algorithm = all_algorithms()[name]
    solver = algorithm.load()(**algorithm.preset | FEWER.get(name, {}))
    found = check_solver(solver, name=name)
    found.require()
    # a row of weight 2 trains as two rows do
    assert {each.state for each in found.checks if each.name == "uses weights"} <= {"ok", "skipped"}


def test_the_example_passes_and_comes_near_the_optimum():
    found = check_solver(Cuts(tries=60))
    found.require()
    assert {check.state for check in found.checks} <= {"ok", "warning"}
    near = {gap.problem: gap for gap in found.gaps}
    assert near["least error"].best == pytest.approx(0.2)
    assert all(gap.objective >= gap.best - 1e-9 for gap in found.gaps if gap.status == "solved")
    assert near["out of reach"].status == "no_solution_found"


@pytest.mark.parametrize(
    ("check", "mutant", "reason"),
    [
        pytest.param(*each, id=getattr(each[1], "change", type(each[1]).__name__))
        for each in MUTANTS
    ],
)
def test_broken_solvers_fail_their_check(check, mutant, reason):
    (found,) = run_checks(SolverRuns(mutant), CHECKS[check])
    assert (found.state, bool(found.mend)) == ("failed", True), found
    assert reason in found.reason


def test_every_check_that_can_fail_has_a_broken_solver():
    assert CHECKS.keys() - {"ignores the order of rows"} == set(CAUGHT)


class Sorted(Cuts):
    """Decides by whether the first row is positive."""

    def solve(self, problem, rng, progress):
        w = (1.0 if problem.label[0] else -1.0) * np.eye(problem.X.shape[1])[0]
        return Solution({"it": Threshold(w)}, "iteration_limit", "so")


def test_questionable_solvers_get_a_warning():
    (found,) = run_checks(SolverRuns(Sorted()), CHECKS["ignores the order of rows"])
    assert found.state == "warning", found


def test_require_raises_with_the_failed_checks():
    with pytest.raises(AssertionError, match=r"fails:\n.*is not a class of goals"):
        check_solver(UnknownClass).require()


def test_the_kit_is_a_pytest_plugin():
    options = "-q -p no:cacheprovider -p ratecli.conformance -k unknownclass --ratecli-plugin"
    command = [sys.executable, "-m", "pytest", *options.split(), "mutants:UnknownClass", __file__]
    here = Path(__file__).parent
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)
    assert "unknownclass - AssertionError" in done.stdout
