"""The best results among those that satisfy all constraints."""

from __future__ import annotations

import math

from synthetic_ledger import measured, planned, texts

from ratecli.ledger.view import Ledger
from ratecli.report.sheets import best_sheet


def ledger_of(answers, constraints=("parity",), split="test", **experiment) -> Ledger:
    """Take objective and violation (or None) of each seed by label and sweep point (as pairs)."""
    plan, results = [], {}
    for (label, point), seeds in answers.items():
        for seed, numbers in enumerate(seeds):
            trial = planned(label, seed, **dict(point))
            plan.append(trial)
            if numbers:
                found = dict(zip(("objective", "violation.parity"), numbers, strict=True))
                results[trial.key] = measured(trial, {("main", split): found})
    asked = {"constraints": dict.fromkeys(constraints, "kappa * 1 <= 2"), **experiment}
    return Ledger(plan, results, {"experiment": asked})


def best(ledger):
    return texts(best_sheet(ledger))


def test_the_lowest_objective_of_feasible_candidates():
    answers = {
        ("plain", ()): [(0.1, 0.3), (0.1, 0.3)],
        ("good", ()): [(0.2, -0.1), (0.2, -0.1)],
        ("careful", ()): [(0.3, -0.2), (0.3, -0.2)],
    }
    assert best(ledger_of(answers)) == [["good", "0.2000 ± 0.0000", "-0.1000", "✓ 2 of 2", "2"]]
    assert best(ledger_of(answers, constraints=()))[0][0] == "plain"


def test_a_candidate_feasible_on_average_has_its_share_of_trials():
    answers = {("a", ()): [(0.2, -0.3), (0.2, 0.1), None]}
    assert best(ledger_of(answers)) == [["a", "0.2000 ± 0.0000", "-0.1000", "✗ 1 of 2", "2 of 3"]]


def test_the_closest_candidate_if_none_is_feasible():
    answers = {("a", ()): [(0.1, 0.3)], ("b", ()): [(0.5, 0.2)], ("c", ()): [(0.0, math.nan)]}
    (row,) = best_sheet(ledger_of(answers)).rows
    assert (row[0].text, row[0].tone, row[2].text) == ("none (closest: b)", "bad", "0.2000")


def test_swept_names_of_constraints_make_tasks():
    answers = {
        ("a", (("kappa", kappa), ("rate", rate))): [(kappa * rate, -1.0)]
        for kappa in (1, 2)
        for rate in (3, 4)
    }
    sheet = best_sheet(ledger_of(answers))
    assert [column.title for column in sheet.columns] == [
        "kappa", "best", "at", "objective", "worst violation", "satisfied in", "n",
    ]  # fmt: skip
    assert [[cell.text for cell in row[:3]] for row in sheet.rows] == [
        ["1", "a", "rate = 3"],
        ["2", "a", "rate = 3"],
    ]
    swept = best_sheet(ledger_of(answers, sweep={"rate": [3, 4]}))
    assert len(swept.rows) == 4


def test_1_and_1_point_0_are_the_same_task():
    answers = {("a", (("kappa", 1),)): [(0.2, -1.0)], ("b", (("kappa", 1.0),)): [(0.1, -1.0)]}
    assert [row[:2] for row in best(ledger_of(answers))] == [["1", "b"]]


def test_without_a_test_set_another_split_is_used():
    assert (
        best_sheet(ledger_of({("a", ()): [(0.1, 0.0)]}, split="train")).title
        == "Best results (train)"
    )
    assert best_sheet(ledger_of({("a", ()): [None]})).rows == ()
