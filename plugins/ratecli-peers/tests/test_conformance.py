"""The algorithms meet ratecli's requirements; those whose package is missing are skipped."""

from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import Rules, problem, run, smooth_rows
from peers import CLASSES, solver_of
from scipy import sparse

from ratecli.conformance import check_solver

FEW = {"tfco": {"steps": 50}, "seldonian_toolkit": {"num_iters": 50}}


@pytest.mark.parametrize("name", CLASSES)
def test_it_passes_the_checks_of_test_plugin(name):
    check_solver(solver_of(name, **FEW.get(name, {})), name=name).require()


@pytest.mark.parametrize("name", CLASSES)
def test_it_learns_from_sparse_features_with_long_indices(name):
    rows = smooth_rows(3)
    group = np.where(rows.group == "a", "a", "b").astype(object)
    table = sparse.csr_array(rows.X)
    table.indices, table.indptr = table.indices.astype(np.int64), table.indptr.astype(np.int64)
    rules = Rules({"rule": "max_gap(tpr, by=g) <= 0.2"})
    given = problem(replace(rows, X=table, group=group), rules)
    dense = problem(replace(rows, group=group), rules)
    found, same = (run(solver_of(name, **FEW.get(name, {})), each) for each in (given, dense))
    assert found.status == same.status
    if found.variants:
        apart = given.decisions(found.main) - dense.decisions(same.main)
        assert np.abs(apart).mean() < 0.01
