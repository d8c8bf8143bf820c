"""Whole runs with a safety test, by the command line."""

from __future__ import annotations

import json
import sqlite3

import pandas as pd
import pytest

from ratecli.ledger.view import Ledger
from ratecli.report.plots.canvas import PlotSelection, requested_plots
from ratecli.report.plots.guarantee import allowed_failure_rates
from ratecli.solvers.baselines.solvers import Unconstrained

LOANS = """\
name: promised
datasets:
  loans: {source: loans, rows: 8000}
groups: {women: sex = Female, men: sex = Male}
constraints: {parity: 'positive_rate[women] >= 0.55 * positive_rate[men]'}
safety: {delta: 0.1, fraction: 0.5}
algorithms:
  - unconstrained
  - majorize: {iterations: 2, margin: 0.9999}
metrics: {error: error, ratio: 'positive_rate[women] / positive_rate[men]', kept: error@safety}
report:
  tables: [{rows: [algorithm], columns: [error], split: safety, file: safe}]
"""


def trials(folder, name="promised"):
    """Label to status, reason and certificates."""
    with sqlite3.connect(folder / "results" / name / "trials.sqlite") as ledger:
        rows = ledger.execute(
            "SELECT label, status, reason, info FROM plan JOIN trials ON trials.key = plan.key"
        ).fetchall()
    return {label: (status, reason, json.loads(info)) for label, status, reason, info in rows}


def test_what_fails_is_told_and_what_passes_is_given(folder, cli):
    (folder / "exp.yaml").write_text(LOANS)
    answer = cli("run", "exp.yaml", "--jobs", "1")
    assert answer.code == 0, answer.err
    found = trials(folder)
    status, reason, info = found["unconstrained"]
    assert status == "no_solution_found"
    assert reason.startswith("'parity': the upper bound reached 0.")
    assert info["rows"] == {"train": 2667, "test": 2667, "safety": 2666}
    assert f"no solution: unconstrained seed=0: {reason}" in answer.out
    status, reason, info = found["majorize"]
    assert (status, reason) == ("ok", "")
    main = info["certificates"][0]
    assert (main["passed"], main["delta"], main["exact"]) == (True, 0.1, True)
    assert main["upper"] <= 0
    metrics = pd.read_csv(folder / "results" / "promised" / "metrics.csv")
    assert set(metrics.split) == {"train", "test", "safety"}
    assert set(metrics.algorithm) == {"majorize"}
    kept = metrics[metrics.metric == "kept"]
    assert kept.groupby("variant").value.nunique().eq(1).all()
    assert "safe (safety): mean" in answer.out


def test_every_tested_trial_has_its_certificates_in_a_file(folder, cli):
    """The stored records, with all that is needed to read them; `report` writes the same again."""
    (folder / "exp.yaml").write_text(LOANS.partition("report:")[0])
    answer = cli("run", "exp.yaml", "--jobs", "1")
    assert "models   models/TRIAL/VARIANT.npz, models/TRIAL/certificates.json\n" in answer.out
    place, stored = folder / "results" / "promised" / "models", trials(folder)
    found = {path.parent.name: path.read_bytes() for path in place.glob("*/certificates.json")}
    assert sorted(found) == ["majorize-seed=0", "unconstrained-seed=0"]
    assert [path.name for path in (place / "unconstrained-seed=0").iterdir()] == [
        "certificates.json"
    ]
    for name, data in found.items():
        content = json.loads(data)
        status, reason, info = stored[content["algorithm"]]
        assert (content["status"], content["reason"]) == (status, reason)
        assert len(content["certificates"]) == len(info["certificates"]) > 0
        for record, kept in zip(content["certificates"], info["certificates"], strict=True):
            assert kept.items() <= record.items()
            assert record["rule"] == "positive_rate[women] >= 0.55 * positive_rate[men]"
            assert "0.55 * positive_rate[sex = Male]" in record["violation"]
            assert (record["confidence"], record["seed"], record["safety_rows"]) == (0.9, 0, 2666)
            assert record["model"] is None or (place / name / record["model"]).is_file()
    for path in place.glob("*/certificates.json"):
        path.unlink()
    assert cli("report", "exp.yaml").code == 0
    again = {path.parent.name: path.read_bytes() for path in place.glob("*/certificates.json")}
    assert again == found


@pytest.mark.slow
def test_the_same_numbers_for_any_number_of_jobs(folder, cli):
    text = LOANS + "resample: k\nsweep: {k: [0.1, 0.5]}\n"
    text = text.replace("rows: 8000", "rows: 1000").replace(
        "fraction: 0.5", "fraction: 0.5, method: leaves, bound: bootstrap"
    )
    (folder / "exp.yaml").write_text(text)
    found = []
    for jobs in ("1", "2"):
        assert cli("run", "exp.yaml", "-o", f"results{jobs}", "--jobs", jobs).code == 0
        with sqlite3.connect(folder / f"results{jobs}" / "promised" / "trials.sqlite") as ledger:
            trial = "SELECT key, status, reason, info FROM trials ORDER BY key"
            values = "SELECT key, variant, split, metric, value FROM metrics ORDER BY 1, 2, 3, 4"
            found.append([ledger.execute(query).fetchall() for query in (trial, values)])
    assert found[0] == found[1]
    assert len(found[0][0]) == 4


@pytest.mark.parametrize(("ratio", "status"), [(0.3, "ok"), (0.9, "no_solution_found")])
def test_the_rule_in_use_is_audited(folder, cli, ratio, status):
    text = LOANS.replace("rows: 8000", "rows: 1000, preparation: deployed, split: {train: 1}")
    text = text.replace("0.55 *", f"{ratio} *").partition("algorithms")[0]
    text += "deployed: {column: approved}\nalgorithms: [audit]\nmetrics: {churn: churn}\n"
    (folder / "exp.yaml").write_text(text.replace("0.5}", "0.99}"))
    answer = cli("run", "exp.yaml", "--jobs", "1")
    assert answer.code == 0, answer.err
    found, reason, info = trials(folder)["audit"]
    assert (found, bool(reason)) == (status, status != "ok")
    assert info["rows"] == {"train": 10, "safety": 990}
    assert info["certificates"][0]["bound"] == "clopper_pearson"


def test_the_problem_is_explained_with_its_test(folder, cli):
    text = LOANS.replace("parity: '", "gap: 'max_gap(tpr, by=sex) <= 0.3', parity: '")
    text = text.replace("delta: 0.1", "delta: {gap: 0.2}, method: leaves")
    (folder / "exp.yaml").write_text(text.replace("majorize: {", "majorize: {safety: false, "))
    answer = cli("explain", "exp.yaml")
    assert answer.code == 0, answer.err
    gap, parity = answer.out.split("constraint parity")
    assert "delta 0.2, bound auto, method leaves, on 0.5 of the training rows" in gap
    assert gap.count("bound of tpr[sex = ") == 4
    assert gap.count("delta 0.05\n") == 4
    assert "lower bound of positive_rate[sex = Female], delta 0.025" in parity
    assert "upper bound of positive_rate[sex = Male], delta 0.025" in parity


def test_rates_pooled_of_several_data_sets_are_certified_approximately(folder, cli):
    """The same share of each data set is tested: their shares are no chance, as those of groups are."""
    both = LOANS.replace("rows: 8000}", "rows: 4000}\n  more: {source: loans, rows: 4000, seed: 1}")
    for rate, exact in [("positive_rate", False), ("positive_rate[more]", True)]:
        text = both.replace("0.55 * positive_rate[men]'", f"0.1 * {rate}'")
        text = text.replace("positive_rate[women] >=", "positive_rate[women, loans] >=")
        (folder / "exp.yaml").write_text(text)
        answer = cli("explain", "exp.yaml")
        assert answer.code == 0, answer.err
        assert ("stratified by data set: what is certified is approximate" in answer.out) != exact
        assert cli("run", "exp.yaml", "--jobs", "1").code == 0
        assert trials(folder)["majorize"][2]["certificates"][0]["exact"] is exact


def test_rows_that_are_tested_may_not_stand_in_another_data_set(folder, cli):
    """Each draws its own: a row would be tested as the one and trained on as the other."""
    rows = pd.DataFrame({"x": range(400), "sex": ["f", "m"] * 200, "y": [0, 0, 1, 1] * 100})
    for name in ("one", "other"):
        rows.to_csv(folder / f"{name}.csv", index=False)
    both = "{path: one.csv, label: y}\n  more: {path: other.csv, label: y}"
    text = LOANS.replace("{source: loans, rows: 8000}", both)
    (folder / "exp.yaml").write_text(text.replace("Female", "f").replace("Male", "m"))
    answer = cli("run", "exp.yaml")
    assert (answer.code, answer.out) == (4, "")
    assert "error[E411]: 'more' has the same rows as 'loans'" in answer.err
    assert "exp.yaml:4:3" in answer.err
    assert not (folder / "results").exists()
    rows.assign(x=-1).to_csv(folder / "third.csv", index=False)
    text = (folder / "exp.yaml").read_text().replace("other.csv", "third.csv")
    (folder / "exp.yaml").write_text(text)
    assert cli("validate", "exp.yaml").code == 0


def test_a_sorted_file_whose_last_rows_are_tested_is_warned_of(folder, cli):
    """Defect 5 of the toolkit: candidate labels of 0 on average, safety labels of .83."""
    rows = pd.DataFrame({"x": range(400), "sex": ["f", "m"] * 200, "y": [0] * 200 + [1] * 200})
    rows.to_csv(folder / "sorted.csv", index=False)
    rows.sample(frac=1, random_state=0).to_csv(folder / "shuffled.csv", index=False)
    text = LOANS.replace("Female", "f").replace("Male", "m")
    for file, test, warned in [
        ("sorted", "order: positional", True),
        ("shuffled", "order: positional", False),
        ("sorted", "fraction: 0.5", False),
    ]:
        own = text.replace("{source: loans, rows: 8000}", f"{{path: {file}.csv, label: y}}")
        (folder / "exp.yaml").write_text(own.replace("fraction: 0.5", test))
        answer = cli("validate", "exp.yaml")
        assert answer.code == 0
        found = "warning[W403]: the last rows of 'loans' are tested" in answer.err
        assert found == ("exp.yaml:6:" in answer.err) == warned


def test_how_rows_are_taken_and_delta_is_divided_is_explained(folder, cli):
    text = LOANS.replace("fraction: 0.5", "method: leaves, division: optimized, stratify: [sex]")
    text = text.replace("margin: 0.9999", "safety: {aim: 0.8}").replace("0.55 *", "0.1 *")
    (folder / "exp.yaml").write_text(text)
    answer = cli("explain", "exp.yaml")
    assert answer.code == 0, answer.err
    plain, aimed = answer.out.split("    of majorize\n")
    rows = "on 0.5 of the training rows, stratified by sex: what is certified is approximate\n"
    divided = "these deltas are a start: candidate rows tell how the delta is divided\n"
    assert all(part.count(rows) == part.count(divided) == 1 for part in (plain, aimed))
    tightened = "constraints are tightened until it is passed with a chance of 0.8\n"
    assert (tightened in plain, tightened in aimed) == (False, True)
    (folder / "exp.yaml").write_text(LOANS.replace("fraction: 0.5", "order: positional"))
    assert (
        "of the training rows, the last ones: what is certified is approximate\n"
        in cli("explain", "exp.yaml").out
    )


def test_no_rounding_error_is_shown(folder, cli):
    text = LOANS.replace(
        "parity: 'positive_rate[women] >= 0.55 * positive_rate[men]'", "p: precision >= 0.55"
    )
    (folder / "exp.yaml").write_text(text)
    assert "upper bound of -0.45 * true_positives + 0.55 *" in cli("explain", "exp.yaml").out


def test_who_trains_for_a_test_needs_one(folder, cli, monkeypatch):
    monkeypatch.setattr(Unconstrained, "needs_safety_test", True)
    text = LOANS.replace("safety: {delta: 0.1, fraction: 0.5}\n", "").partition("report")[0]
    (folder / "exp.yaml").write_text(text)
    answer = cli("validate", "exp.yaml")
    assert answer.code == 2
    assert "error[E102]: 'unconstrained' trains for a safety test, and there is none" in answer.err
    assert "--> exp.yaml:7:5" in answer.err
    (folder / "exp.yaml").write_text(
        text.replace("- unconstrained", "- unconstrained: {safety: {}}")
    )
    assert cli("validate", "exp.yaml").code == 0


def test_a_plot_has_lines_at_the_deltas_of_the_test_and_none_of_who_is_not_tested(folder, cli):
    """What is swept may be a fraction in words, and a test that is not taken allows nothing."""
    text = LOANS.replace("rows: 8000", "rows: 400").replace("delta: 0.1", "delta: risk")
    text = text.replace("majorize: {", "unconstrained: {as: aside, safety: {test: false}}\n  #")
    text = text.replace("[{rows: [algorithm], columns: [error], split: safety, file: safe}]", "[]")
    plots = [
        f"{{kind: guarantee, x: n, y: error, algorithms: [{label}]}}"
        for label in ("unconstrained", "aside")
    ]
    text += f"  plots: [{', '.join(plots)}]\nsweep: {{n: [1, 2], risk: ['1/10', 0.2]}}\n"
    (folder / "exp.yaml").write_text(text)
    answer = cli("run", "exp.yaml", "--jobs", "1")
    assert answer.code == 0, answer.err
    ledger = Ledger.read(folder / "results" / "promised" / "trials.sqlite")
    drawn = [
        list(allowed_failure_rates(ledger, plot, PlotSelection.of(plot.options)))
        for plot in requested_plots(ledger)
    ]
    assert drawn == [[0.1, 0.2], []]
