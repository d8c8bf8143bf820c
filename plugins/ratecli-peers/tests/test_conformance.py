"""The algorithms meet ratecli's requirements; those whose package is missing are skipped."""

import os

import pytest

from ratecli.conformance import check_solver
from ratecli.plugins import installed_plugins
from ratecli.solvers.oracles.choice import installed_version

FEW = {"tfco": {"steps": 50}, "seldonian_toolkit": {"num_iters": 50}}
PEERS = [each for each in installed_plugins() if each.package == "ratecli-peers"]


@pytest.mark.parametrize("plugin", PEERS, ids=[each.name for each in PEERS])
def test_it_passes_the_checks_of_test_plugin(plugin):
    solver = plugin.load()
    for needed in solver.needs:
        if installed_version(needed) is None:
            pytest.skip(f"{needed} is not installed")
    options = FEW.get(plugin.name, {})
    if hasattr(solver, "python"):
        name = f"{solver.script.upper()}_PYTHON"
        if not os.environ.get(name):
            pytest.skip(f"{name} names no interpreter that has it")
        options |= {"python": os.environ[name]}
    check_solver(solver(**options), name=plugin.name).require()
