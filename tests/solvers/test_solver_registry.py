import pytest

from ratecli.conformance.checks import run_checks
from ratecli.conformance.problems import SolverRuns
from ratecli.conformance.solvers import SOLVER_CHECKS, SOLVER_DECLARATIONS
from ratecli.solvers.base import Solver
from ratecli.solvers.registry import BUILT_IN_ALGORITHMS, all_algorithms

ENTRIES = pytest.mark.parametrize("entry", BUILT_IN_ALGORITHMS, ids=lambda entry: entry.name)


@ENTRIES
def test_every_algorithm_is_a_solver_with_documented_options(entry):
    solver = entry.load()
    assert issubclass(solver, Solver)
    assert solver.__module__ == f"ratecli.solvers.{entry.path.partition(':')[0]}"
    assert entry.summary
    assert entry.source
    declarations = {check: SOLVER_CHECKS[check] for check in SOLVER_DECLARATIONS}
    for result in run_checks(SolverRuns(solver()), declarations):
        assert result.state != "failed", result


def test_names_are_unique_and_found():
    names = [entry.name for entry in BUILT_IN_ALGORITHMS]
    assert len(set(names)) == len(names)
    assert set(names) <= set(all_algorithms())
    assert all(all_algorithms()[entry.name] is entry for entry in BUILT_IN_ALGORITHMS)
