# ruff: noqa: ARG002
"""The kit for solvers: ours pass it, and each way to be wrong is caught by the check that is meant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from mutants import CAUGHT, MUTANTS, Cuts, UnknownClass

from ratecli.conformance import check_solver
from ratecli.conformance.outcome import run_checks, watch_side_effects
from ratecli.conformance.problems import SolverSubject
from ratecli.conformance.solvers import OPTION_CHECKS, SOLUTION_CHECKS
from ratecli.models.linear import Threshold
from ratecli.solvers.base import Solution
from ratecli.solvers.registry import all_algorithms

QUICK = ("unconstrained", "post_shift", "audit")
FEWER = {"three_player": {"steps": 600}, "coco": {"steps": 40}}
"""Steps that are enough for 60 rows."""
SLOW = sorted(set(all_algorithms()) - set(QUICK))


def checked(name):
    algorithm = all_algorithms()[name]
    if algorithm.missing() is not None:
        pytest.skip(f"{name} is not installed")
    return check_solver(algorithm.load()(**algorithm.preset | FEWER.get(name, {})), name=name)


def look(check, solver):
    """The outcome of one check."""
    chosen = [each for each in (*OPTION_CHECKS, *SOLUTION_CHECKS) if each.name == check]
    (found,) = run_checks(chosen, SolverSubject(solver))
    return found


@pytest.mark.parametrize("name", QUICK)
def test_our_quick_algorithms_pass(name):
    checked(name).require()


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_our_other_algorithms_pass(name):
    checked(name).require()


def test_the_example_passes_and_comes_near_the_optimum():
    found = check_solver(Cuts(tries=60))
    found.require()
    assert {check.state for check in found.checks} <= {"ok", "warning"}
    near = {gap.problem: gap for gap in found.gaps}
    assert near["least error"].best == pytest.approx(0.2)
    assert all(gap.objective >= gap.best - 1e-9 for gap in found.gaps if gap.status == "solved")
    assert near["out of reach"].status == "no_solution_found"


@pytest.mark.parametrize(
    ("check", "mutant"), MUTANTS, ids=lambda each: getattr(each, "change", type(each).__name__)
)
def test_each_mistake_is_caught(check, mutant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = look(check, mutant)
    assert found.state == "failed", found
    assert found.reason
    assert found.mend


def test_all_that_is_checked_of_answers_has_a_mistake_that_it_catches():
    names = {check.name for check in (*OPTION_CHECKS, *SOLUTION_CHECKS)}
    only_told = {
        "is measured correctly",
        "ignores the order of rows",
        "checks the types of its options",
    }
    assert names - only_told == set(CAUGHT)


class Sorted(Cuts):
    """Decides by whether the first row is positive."""

    def solve(self, problem, rng, progress):
        side = 1.0 if problem.label[0] else -1.0
        return Solution(
            {"it": Threshold(side * np.eye(problem.X.shape[1])[0])}, "iteration_limit", "so"
        )


@dataclass(frozen=True)
class Loose(Cuts):
    """One option that takes all.

    Attributes
    ----------
    tries
        How many.
    other
        Anything.
    """

    other: object = None


@pytest.mark.parametrize(
    ("check", "mutant"),
    [("ignores the order of rows", Sorted), ("checks the types of its options", Loose)],
)
def test_what_may_matter_is_a_warning(check, mutant):
    found = look(check, mutant())
    assert found.state == "warning", found


def test_what_fails_is_listed_for_pytest():
    with pytest.raises(AssertionError, match="is not a class of goals") as raised:
        check_solver(UnknownClass).require()
    assert "fails:" in str(raised.value)


def test_files_are_seen_wherever_they_are_and_reading_is_not(tmp_path):
    there = tmp_path / "there.txt"
    there.write_text("x")
    with watch_side_effects() as seen:
        there.read_text()
    assert not seen.written
    with watch_side_effects() as seen, open(tmp_path / "new.bin", "ab"):  # noqa: PTH123
        pass
    assert seen.written == [str(tmp_path / "new.bin")]
