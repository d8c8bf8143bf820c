"""Methods compared over experiments: what is counted, ranked and written."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import synthetic_ledger

from ratecli.ledger.records import PlannedTrial, TrialResult
from ratecli.ledger.view import Ledger
from ratecli.report import html
from ratecli.report.comparison import Comparison, MethodSummary, critical_difference

SEEDS = 5
SETTING = "dataset = known, constraint = parity, model = logistic"
METHODS = {  # violations of each seed, error, seconds; None without a model
    "unconstrained": ([0.1] * 5, 0.1, 2.0),
    "careful": ([-0.1] * 5, 0.3, 4.0),
    "tight": ([-0.1] * 4 + [0.1], 0.2, 8.0),
    "loose": ([-0.1] * 2 + [0.1] * 3, 0.15, 6.0),
    "refusing": ([-0.1] + [None] * 4, 0.12, 10.0),
}


def ledger(name: str, more: float = 0.0, without: str = "", source: str = "") -> Ledger:
    """Return five methods with errors raised by `more`, of which one is left out."""
    point = {"dataset": "known", "constraint": "parity", "model": "logistic"}
    plan, results = [], {}
    for label, (violations, error, seconds) in METHODS.items():
        for seed in range(SEEDS) if label != without else ():
            metrics = {"objective": "error", "violation.parity": "gap"}
            trial = PlannedTrial(f"{name} {label} {seed}", label, label, {}, point, seed, metrics)
            plan.append(trial)
            found = TrialResult(trial.key, "no_solution_found", "why", seconds)
            if (violation := violations[seed]) is not None:
                numbers = {"objective": error + more, "violation.parity": violation}
                place = {("deterministic", "test"): numbers}
                found = synthetic_ledger.measured(trial, place, seconds=seconds)
            results[trial.key] = found
    file = {
        "datasets": {"table": {"source": source or name}},
        "name": name,
        "constraints": {"parity": "gap <= 0"},
        "sweep": {name: [value] for name, value in point.items()},
    }
    return Ledger(plan, results, {"experiment": file})


@pytest.fixture
def ledgers() -> dict[str, Ledger]:
    return {"a": ledger("a"), "b": ledger("b", 2.0, without="tight")}


def test_a_method_holds_with_four_fifths_of_its_models_and_a_model_in_half_of_the_trials(ledgers):
    rows = Comparison.of(ledgers, {}).rows.set_index(["experiment", "method"])
    assert rows["holds"].loc["a"].to_dict() == {
        "unconstrained": False, "careful": True, "tight": True, "loose": False, "refusing": False
    }  # fmt: skip
    assert rows["no_model"]["a", "refusing"] == 4
    assert rows["excess"].loc["a"].round(9).to_dict() == {
        "unconstrained": -0.1, "careful": 0.1, "tight": 0.0, "loose": -0.05, "refusing": -0.08
    }  # fmt: skip
    assert rows["times"].loc["b"].to_dict() == {
        "unconstrained": 1, "careful": 2, "loose": 3, "refusing": 5
    }  # fmt: skip


def test_complete_methods_that_hold_are_ranked_by_error_then_others_by_trials(ledgers):
    """`refusing` has one model, which satisfies the rule: 1 of 5 trials, `loose` 2 of 5."""
    comparison = Comparison.of(ledgers, {})
    ranks = comparison.rows.dropna(subset="rank").set_index(["experiment", "method"])["rank"]
    expected = {"careful": 1, "loose": 2, "refusing": 3, "unconstrained": 4}
    assert ranks.loc["a"].to_dict() == ranks.loc["b"].to_dict() == expected
    methods = {each.method: each for each in comparison.settings[SETTING]}
    assert list(methods) == ["tight", "careful", "loose", "refusing", "unconstrained"]
    assert methods["tight"].row(best=True)["rank"] == ""  # it does not take part in b
    assert methods["careful"].holds == methods["careful"].tasks == 2
    assert methods["careful"].short == "careful (2/2, +0.0500)"
    undefined = methods["careful"].rows.assign(excess=math.nan)
    assert MethodSummary("careful", undefined).short == "careful (2/2)"


def test_files_with_the_same_tasks_count_as_one_experiment():
    files = {"a": ledger("a", without="tight"), "more": ledger("more", source="a")}
    more = [
        replace(each, point=dict(reversed(each.point.items())))
        for each in files["more"].plan
        if each.label in {"tight", "unconstrained"}
    ]
    files["more"] = replace(files["more"], plan=more)
    together, alone = (Comparison.of(each, {}).rows for each in (files, {"a": ledger("a")}))
    of = {"experiment", "setting", "method", "rank", "excess", "times"}
    known = [rows[[*of]].sort_values("method", ignore_index=True) for rows in (together, alone)]
    pd.testing.assert_frame_equal(*known)
    assert set(together["file"]) == {"a", "more"}


@pytest.mark.parametrize(("methods", "tasks", "difference"), [(4, 14, 1.25), (5, 30, 1.11)])
def test_critical_differences_are_those_of_demsar(methods: int, tasks: int, difference: float):
    assert critical_difference(methods, tasks) == pytest.approx(difference, abs=0.006)


def test_the_page_and_its_files_have_each_method(tmp_path: Path, ledgers):
    for name, each in ledgers.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.html").touch()
        synthetic_ledger.store(tmp_path / name, each, each.plan)
    page = html.write_joined([tmp_path / "a", tmp_path / "b"], tmp_path / "report.html")
    text = page.read_text("utf-8")
    assert f"<summary>{SETTING}</summary>" in text
    assert '<a href="a/report.html">0.1500 (2/5)</a>' in text
    assert "<code>holds</code>: the number of experiments in which it does" in text
    assert (tmp_path / next(iter(re.findall(r'href="(.*/methods.md)"', text)))).is_file()
    folder = tmp_path / "comparison"
    assert {each.name for each in folder.iterdir()} == {
        "methods.md", "methods.csv", "methods-1.tex", "tasks-1.tex",
        *(f"comparison-1.{form}" for form in ("svg", "png", "pdf")),
    }  # fmt: skip
    assert (
        "| known   | parity     | logistic | tight (1/1, 0.0000)"
        in (folder / "methods.md").read_text()
    )
    assert r"careful & 2 {~of 2}" in (folder / "methods-1.tex").read_text()
    rows = pd.read_csv(folder / "methods.csv")
    assert len(rows) == 9
    assert set(METHODS) == set(rows["method"])


def test_experiments_that_do_not_sweep_constraints_are_not_compared():
    known = synthetic_ledger.example()
    assert not Comparison.of({"a": known}, {}).points
