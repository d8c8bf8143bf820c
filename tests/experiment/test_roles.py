"""Roles of algorithms (enforces, reads, ignores), shown by a plugin package."""

import pytest

from experiments import people, run_file, write
from ratecli.errors import FaultError
from ratecli.experiment.entries import solver_class
from ratecli.experiment.explain import explain
from ratecli.experiment.prepare import check_available, prepare
from ratecli.models.storage import loads
from ratecli.plugins import installed_plugins
from ratecli.solvers.registry import all_algorithms

PACKAGE = '''
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from ratecli.models.linear import Threshold
from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Solution, Solver

@dataclass(frozen=True)
class Yes(Solver):
    """A yes for all; its score is how many constraints it was given."""
    objectives: ClassVar = frozenset({Shape.AFFINE})
    constraints: ClassVar = frozenset({Shape.AFFINE})
    def solve(self, problem, rng, progress):
        weights = np.zeros(problem.X.shape[1])
        return Solution({"yes": Threshold(weights, 1.0 + len(problem.constraints))})

@dataclass(frozen=True)
class Reads(Yes):
    role: ClassVar = "reads"

@dataclass(frozen=True)
class Ignores(Yes):
    role: ClassVar = "ignores"
    objectives: ClassVar = frozenset()
    constraints: ClassVar = frozenset()
'''
ENTRIES = """\
[ratecli.solvers]
yes_enforces = yes_package:Yes
yes_reads = yes_package:Reads
yes_ignores = yes_package:Ignores
"""
FILE = """
name: roles
datasets: {people: {path: people.csv, label: y, drop: [old]}}
objective: error
constraints: {few: 'RULE'}
algorithms: [yes_enforces, yes_reads, yes_ignores]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A table, and a package as an installer leaves it."""
    people(90, 1).to_csv(tmp_path / "people.csv", index=False)
    site = tmp_path / "site"
    info = site / "yes_package-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "yes_package.py").write_text(PACKAGE)
    (info / "entry_points.txt").write_text(ENTRIES)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: yes-package\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(site)
    caches = (installed_plugins, all_algorithms, solver_class)
    for known in caches:
        known.cache_clear()
    yield tmp_path
    for known in caches:
        known.cache_clear()


def test_which_algorithms_get_goals_must_meet_them_and_are_explained(folder):
    outcome, store = run_file(write(folder, FILE.replace("RULE", "positive_rate <= 0.5")))
    found = {trial.label: store.result(trial.key) for trial in store.plan()}
    told = {each: (found[each].status, loads(found[each].models["yes"]).bias) for each in found}
    assert told == {
        "yes_enforces": ("not_met", 2.0),
        "yes_reads": ("not_met", 2.0),
        "yes_ignores": ("ok", 1.0),
    }
    for result in found.values():
        missed = {v.value for v in result.values if "positive_rate" in v.metric}
        assert missed == {0.5}
    assert {fault.code for fault in outcome.warnings} == {"W408"}  # always yes is a constant
    lines = explain(check_available(folder / "exp.yaml"))
    chosen = lines[lines.index("which algorithm") + 1 : lines.index("metrics") - 1]
    said = dict(line.split(maxsplit=1) for line in chosen)
    shown = {
        name: f"see `ratecli show {name}`" for name in ("yes_enforces", "yes_reads", "yes_ignores")
    }
    assert said["yes_enforces"] == shown["yes_enforces"]
    assert said["yes_reads"] == f"best effort: {shown['yes_reads']}"
    assert said["yes_ignores"] == f"ignores the goals: {shown['yes_ignores']}"


def test_unsupported_goals_are_refused_to_algorithms_that_get_them(folder):
    with pytest.raises(FaultError) as caught:
        prepare(write(folder, FILE.replace("RULE", "kl(0.3, positive_rate) <= 0.1")))
    assert [(fault.code, fault.message.partition(":")[0]) for fault in caught.value.faults] == [
        ("E308", "algorithm 'yes_enforces' cannot enforce 'few'"),
        ("E308", "algorithm 'yes_reads' cannot use 'few'"),
    ]
