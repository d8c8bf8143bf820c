"""Swept constraints: each applies alone, as in a file of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import faults, run_file, write
from ratecli.experiment.prepare import prepare
from ratecli.ledger.view import Ledger
from ratecli.report.answer import answers
from ratecli.report.answer_text import best_sheet
from ratecli.report.sheets import constraint_sheet

RULES = {"cover": "coverage <= 0.3", "found": "tpr[sex = Female] >= 0.9"}
BOTH = """
name: both
datasets: {loans: {source: loans, rows: 600}}
constraints: {cover: 'coverage <= 0.3', found: 'tpr[sex = Female] >= 0.9'}
sweep: {constraint: [cover, found]}
algorithms: [unconstrained, majorize: {iterations: 2}]
"""


def alone(name: str) -> str:
    kept = BOTH.replace("sweep: {constraint: [cover, found]}\n", "").replace("both", name)
    (other,) = RULES.keys() - {name}
    return kept.replace(f"{other}: '{RULES[other]}'", "").replace("{, ", "{").replace(", }", "}")


def test_trials_equal_those_of_a_file_for_each_constraint(tmp_path: Path):
    plan = prepare(write(tmp_path, BOTH)).plan.planned
    for name in RULES:
        own = prepare(write(tmp_path, alone(name), f"{name}.yaml")).plan.planned
        assert [each.key for each in own] == [
            each.key for each in plan if each.point["constraint"] == name
        ]


def test_tables_and_answers_show_each_constraint_where_it_applies(tmp_path: Path):
    _, store = run_file(write(tmp_path, BOTH))
    ledger = Ledger(*store.read())
    found = {each.task["constraint"]: each.best for each in answers(ledger)}
    assert {name: list(best.violations) for name, best in found.items()} == {
        name: [name] for name in RULES
    }
    measured = [row[-1].text for row in best_sheet(ledger).rows]
    assert all(float(text.split()[0]) <= 1 for text in measured)  # a rate without a name
    sheet = constraint_sheet(ledger, by_point=True)
    assert sheet.titles.count("constraint") == 1
    assert len(sheet.rows) == len(constraint_sheet(ledger).rows) == 4


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("[cover, found]", "[cover, fond]", "no constraint is called 'fond'"),
        ("{iterations: 2}", "{sweep: {constraint: [fond]}}", "no constraint is called 'fond'"),
        ("sweep: {constraint: [cover, found]}\n", "", "is swept for one algorithm only"),
    ],
)
def test_a_value_must_name_a_constraint(tmp_path: Path, before: str, after: str, message: str):
    text = BOTH.replace("{iterations: 2}", "{sweep: {constraint: [cover]}}") if not after else BOTH
    (fault,) = faults(write(tmp_path, text.replace(before, after)))
    assert fault.code == "E104"
    assert message in fault.message


def test_own_sweep_may_select_constraints(tmp_path: Path):
    text = BOTH.replace("{iterations: 2}", "{sweep: {constraint: [found]}}")
    planned = prepare(write(tmp_path, text)).plan.planned
    taken = {(trial.label, trial.point["constraint"]) for trial in planned}
    assert taken == {("unconstrained", "cover"), ("unconstrained", "found"), ("majorize", "found")}
