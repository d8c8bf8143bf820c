from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from typing import get_args

import pytest

from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Role, Solver
from ratecli.solvers.registry import BUILT_IN_ALGORITHMS, all_algorithms

ENTRIES = pytest.mark.parametrize("entry", BUILT_IN_ALGORITHMS, ids=lambda entry: entry.name)


@ENTRIES
def test_every_algorithm_is_a_documented_solver_of_frozen_options(entry):
    solver = entry.load()
    assert issubclass(solver, Solver)
    assert is_dataclass(solver)
    assert solver.__dataclass_params__.frozen
    assert solver.__module__ == f"ratecli.solvers.{entry.path.partition(':')[0]}"
    assert solver.version >= 1
    assert entry.summary
    assert entry.source


@ENTRIES
def test_every_option_has_a_default_and_a_line_of_its_own(entry):
    solver = entry.load()
    text = inspect.getdoc(solver)
    assert solver() == solver()
    for option in fields(solver):
        assert f"\n{option.name}\n" in text, f"{entry.name} says nothing of '{option.name}'"


@ENTRIES
def test_accepted_goals_are_shapes_and_match_the_role(entry):
    solver = entry.load()
    assert solver.objectives | solver.constraints <= set(Shape)
    assert solver.role in get_args(Role)
    assert bool(solver.objectives) == bool(solver.constraints) == (solver.role != "ignores")


def test_names_are_unique_and_found():
    names = [entry.name for entry in BUILT_IN_ALGORITHMS]
    assert len(set(names)) == len(names)
    assert set(names) <= set(all_algorithms())
    assert all(all_algorithms()[entry.name] is entry for entry in BUILT_IN_ALGORITHMS)
