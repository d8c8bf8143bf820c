"""Whole runs with a safety test, by the command line."""

import numpy as np
import pandas as pd

from ratecli.ledger.view import Ledger

LOANS = """\
name: promised
datasets:
  loans: {source: loans, rows: 8000}
groups: {women: sex = Female, men: sex = Male}
constraints: {parity: 'positive_rate[women] >= 0.55 * positive_rate[men]'}
safety: {delta: 0.1, fraction: 0.5}
algorithms:
  - unconstrained
  - majorize: {iterations: 2, holds: new_rows, level: 0.9999}
metrics: {error: error, ratio: 'positive_rate[women] / positive_rate[men]', kept: error@safety}
report:
  plots: []
  tables: [{rows: [algorithm], columns: [error], split: safety, file: safe}]
"""


def trials(folder):
    """Return the results of trials by label."""
    ledger = Ledger.read(folder / "results" / "promised" / "trials.sqlite")
    return {trial.label: ledger.results[trial.key] for trial in ledger.plan}


def test_only_models_that_pass_have_metrics(folder, cli):
    (folder / "exp.yaml").write_text(LOANS)
    answer = cli("run", "exp.yaml", "--jobs", "1")
    assert answer.code == 0, answer.err
    failed = trials(folder)["unconstrained"]
    assert failed.status == "no_solution_found"
    assert f"no solution: unconstrained seed=0: {failed.reason}" in answer.out
    assert answer.out.count(failed.reason) == 1
    quiet = cli("run", "exp.yaml", "--quiet")
    assert not quiet.out
    assert f"no solution: unconstrained seed=0: {failed.reason}" in quiet.err
    assert "safe (safety): mean" in answer.out
    metrics = pd.read_csv(folder / "results" / "promised" / "metrics.csv")
    assert set(metrics.split) == {"train", "test", "safety"}
    assert set(metrics.algorithm) == {"majorize"}


def test_explain_shows_the_bounds_of_a_test(folder, cli):
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


def test_certificates_of_pooled_rates_are_approximate(folder, cli):
    both = LOANS.replace("rows: 8000}", "rows: 4000}\n  more: {source: loans, rows: 4000, seed: 1}")
    for rate, exact in [("positive_rate", False), ("positive_rate[more]", True)]:
        text = both.replace("0.55 * positive_rate[men]'", f"0.1 * {rate}'")
        text = text.replace("positive_rate[women] >=", "positive_rate[women, loans] >=")
        (folder / "exp.yaml").write_text(text)
        answer = cli("explain", "exp.yaml")
        assert answer.code == 0, answer.err
        assert ("stratified by data set: the guarantee is approximate" in answer.out) != exact
        assert cli("run", "exp.yaml", "--jobs", "1").code == 0
        assert trials(folder)["majorize"].info["certificates"][0]["exact"] is exact


def test_data_sets_of_a_test_may_not_share_rows(folder, cli):
    rows = pd.DataFrame({"x": range(400), "sex": ["f", "m"] * 200, "y": [0, 0, 1, 1] * 100})
    rows.to_csv(folder / "one.csv", index=False)
    rows.to_csv(folder / "other.csv", index=False)
    both = "{path: one.csv, label: y}\n  more: {path: other.csv, label: y}"
    text = LOANS.replace("{source: loans, rows: 8000}", both)
    (folder / "exp.yaml").write_text(text.replace("Female", "f").replace("Male", "m"))
    answer = cli("run", "exp.yaml")
    assert (answer.code, answer.out) == (4, "")
    assert "error[E411]: 'more' has the same rows as 'loans'" in answer.err
    assert "exp.yaml:4:3" in answer.err
    assert not (folder / "results").exists()
    rows.assign(x=-1).to_csv(folder / "other.csv", index=False)
    assert cli("validate", "exp.yaml").code == 0


def test_testing_the_last_rows_of_a_sorted_file_is_a_warning(folder, cli):
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
        found = "warning[W403]: the last rows of 'loans' are held out" in answer.err
        assert found == ("exp.yaml:6:" in answer.err) == warned


def test_explain_shows_options_of_a_test(folder, cli):
    text = LOANS.replace("fraction: 0.5", "method: leaves, stratify: [sex]")
    text = text.replace("holds: new_rows, level: 0.9999", "safety: {aim: 0.8}").replace(
        "0.55 *", "0.1 *"
    )
    (folder / "exp.yaml").write_text(text)
    answer = cli("explain", "exp.yaml")
    assert answer.code == 0, answer.err
    plain, aimed = answer.out.split("    of majorize\n")
    for part in (plain, aimed):
        assert "stratified by sex: the guarantee is approximate\n" in part
    tightened = "constraints are tightened to pass it with probability 0.8\n"
    assert (tightened in plain, tightened in aimed) == (False, True)
    (folder / "exp.yaml").write_text(LOANS.replace("fraction: 0.5", "order: positional"))
    assert "the last rows: the guarantee is approximate\n" in cli("explain", "exp.yaml").out


def test_why_a_model_does_not_meet_its_constraints_is_printed(folder, cli):
    """Where nobody is selected, a precision is 0 / 0: `mixture` with the smallest error selects none."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=400), "y": (rng.random(400) < 0.05).astype(int)})
    frame.to_csv(folder / "rare.csv", index=False)
    text = "name: rare\ndatasets: {d: {path: rare.csv, label: y}}\nobjective: error\n"
    text += "constraints: {p: precision >= 0.3}\nalgorithms: [mixture: {randomize: true}]\n"
    (folder / "rare.yaml").write_text(text)
    loud, quiet = cli("run", "rare.yaml", "--jobs", "1"), cli("run", "rare.yaml", "--quiet")
    line = "not met: mixture seed=0: for the best mixture, a ratio in a constraint is 0 / 0"
    assert line in loud.out
    assert line in quiet.err
