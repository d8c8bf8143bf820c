"""Checks of plugins, for `ratecli test-plugin` and for a plugin's own tests:

    from ratecli.conformance import check_solver

    def test_conformance():
        check_solver(MySolver).require()

This package uses the runner as `ratecli run` does; only `ratecli.cli` uses this package.
"""

from __future__ import annotations

from ratecli.conformance.datasets import check_dataset
from ratecli.conformance.metrics import check_metric
from ratecli.conformance.outcome import CheckResult, OptimalityGap, PluginReport
from ratecli.conformance.solvers import check_solver

__all__ = [
    "CheckResult",
    "OptimalityGap",
    "PluginReport",
    "check_dataset",
    "check_metric",
    "check_solver",
]
