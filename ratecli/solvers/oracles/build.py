"""The oracle that an option names, and the rows in the form that it needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ratecli.models.composed import append_memberships
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.oracles.base import Oracle, OracleRows
from ratecli.solvers.oracles.choice import (
    LINEAR_ORACLE,
    REGRESSION_ORACLE,
    oracle_uses_groups,
)
from ratecli.solvers.oracles.linear_search import LinearOracle, PairedRegressionOracle
from ratecli.solvers.oracles.model_names import PLUGIN_ORACLE, NamedOptions
from ratecli.solvers.problem import Groups, Problem


def make_oracle_rows(value: Any, problem: Problem, kinds: RowKinds) -> OracleRows:
    """Return the rows in the form that the oracle of a checked option needs."""
    if not oracle_uses_groups(value):
        return OracleRows.of(problem.X, kinds, layout=problem.column_layout)
    slices = Groups.of_problem(problem).slices
    X = append_memberships(problem.X, [problem.slices[text] for text in slices])
    return OracleRows.of(X, kinds, slices, problem.column_layout)


def make_oracle(
    value: Any, rows: OracleRows, l2: float, rng: np.random.Generator, *, sweeps: int = 0
) -> Oracle:
    """Return the oracle that a checked option names; `sweeps` are for `LinearOracle`."""
    choice = NamedOptions.parse(value)
    if choice.name == LINEAR_ORACLE:
        return LinearOracle(rows, l2, sweeps, rng)
    if choice.name == REGRESSION_ORACLE:
        return PairedRegressionOracle(rows)
    # imports scikit-learn, which takes longer than most trials of linear models
    from ratecli.solvers.oracles.plugin import ClassFit, ClassifierOracle, PlugInOracle

    if choice.name != PLUGIN_ORACLE:
        return ClassifierOracle(rows, ClassFit(value, l2, rows.count, lambda: rng))
    fitted = {choice.fitted.name: choice.fitted.options}
    fit = ClassFit(fitted, l2, rows.count, lambda: rng)
    return PlugInOracle(rows, rows, fit, groups=oracle_uses_groups(value))
