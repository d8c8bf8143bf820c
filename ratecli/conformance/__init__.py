"""Does a plugin keep what ratecli takes for granted? A kit of small checks, for `ratecli test-plugin` and
for the tests of whoever writes one:

    from ratecli.conformance import check_solver

    def test_it_fits():
        check_solver(MySolver).require()

A room of its own: it uses the runner as `ratecli run` does, and nothing below knows of it.
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
