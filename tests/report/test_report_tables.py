import math
import shutil
import subprocess
from dataclasses import replace

import pandas as pd
import pytest
from synthetic_ledger import certificate, measured, planned, texts, tutorial

from ratecli.ledger.records import BEST_CONSTANT_KEY, NEW_DATA_KEY, TrialResult
from ratecli.ledger.view import SAME_TEST_SET, Ledger
from ratecli.report.answer import answers
from ratecli.report.answer_text import (
    NEW_ROWS_HINT,
    answer_lines,
    answers_to_json,
    best_sheet,
    incomplete_notes,
)
from ratecli.report.groups import group_names
from ratecli.report.sheet import (
    LATEX_SETUP,
    Sheet,
    SheetCell,
    format_number,
    to_latex,
    to_markdown,
)
from ratecli.report.sheets import constraint_sheet, requested_sheets
from ratecli.report.tables import csv_text, metrics_table, summary_table, trials_table
from ratecli.report.write import summary_markdown


def with_tables(ledger: Ledger, *tables) -> Ledger:
    experiment = {**ledger.experiment, "report": {"tables": tables}}
    return replace(ledger, meta={**ledger.meta, "experiment": experiment})


@pytest.fixture(scope="session")
def two() -> Ledger:
    """Two seeds of one algorithm whose numbers can be added up in the head."""
    plan = [planned("fit", seed, kappa=0.8) for seed in (0, 1)]
    numbers = [{"error": 0.1, "ratio": math.nan}, {"error": 0.3, "ratio": 0.5}]
    results = {
        trial.key: measured(
            trial, {("main", split): found for split in ("test", "validation", "train")}
        )
        for trial, found in zip(plan, numbers, strict=True)
    }
    return Ledger(plan, results, {"experiment": {"name": "two"}})


def test_metrics_are_sorted_by_plan_variant_split_and_metric(two):
    frame = metrics_table(two)
    names = "algorithm variant kappa seed split metric value"
    assert list(frame.columns) == names.split()
    first = frame[frame["seed"] == 0]
    assert list(first["split"].unique()) == ["train", "validation", "test"]
    # objective and error are one number under two names
    assert list(first["metric"][:3]) == ["objective", "ratio", "error"]
    assert list(frame["seed"]) == sorted(frame["seed"])


def test_csv_has_floats_by_repr_and_words_of_yaml(two, example):
    lines = csv_text(metrics_table(example)).splitlines()[1:]
    assert [float(line.rpartition(",")[2]) for line in lines] == [*metrics_table(example)["value"]]
    assert csv_text(metrics_table(two)).splitlines()[1:4] == [
        "fit,main,0.8,0,train,objective,0.1",
        "fit,main,0.8,0,train,ratio,nan",
        "fit,main,0.8,0,train,error,0.1",
    ]
    frame = pd.DataFrame({"a": pd.Series([True, None, 1, 1.0, "x,y"], dtype=object)})
    assert csv_text(frame) == 'a\ntrue\n""\n1\n1.0\n"x,y"\n'


def test_nothing_measured_still_has_its_columns():
    plan = [planned("a", 0, kappa=0.5), planned("b", 0)]
    results = {t.key: measured(t, {("m", "test"): {"error": 0.5}}) for t in plan}
    lines = csv_text(metrics_table(Ledger(plan, results, {}))).splitlines()
    assert lines[-1] == "b,m,,0,test,error,0.5", "an algorithm without a swept name leaves it empty"
    ledger = Ledger([planned("a", 0, kappa=1)], {}, {})
    assert csv_text(metrics_table(ledger)) == "algorithm,variant,kappa,seed,split,metric,value\n"
    assert csv_text(summary_table(ledger)).startswith("algorithm,variant,kappa,split,metric,mean,")
    assert csv_text(trials_table(ledger)) == "algorithm,kappa,seed,status,reason\na,1,0,not_run,\n"


@pytest.mark.parametrize("name", ["n", "mean", "nan", "status"])
def test_a_swept_name_may_be_that_of_a_column(name):
    trial = planned("a", 0, **{name: "word"})
    ledger = Ledger([trial], {trial.key: measured(trial, {("m", "test"): {"error": 0.5}})}, {})
    lines = csv_text(summary_table(ledger), nan="").splitlines()
    assert lines[-1] == "a,m,word,test,error,0.5,,,1,0"


def test_trials_have_every_planned_one_and_no_numbers_of_failed_ones(example):
    frame, metrics = trials_table(example), metrics_table(example)
    keys = ["algorithm", "kappa", "seed"]
    assert list(frame.columns) == [*keys, "status", "reason"]
    counts = {"ok": 54, "not_met": 30, "no_solution_found": 5, "error": 1}
    assert dict(frame["status"].value_counts()) == counts
    assert len(frame) == len(example.plan)
    failed = frame.query("status in ['error', 'no_solution_found']")
    assert metrics.merge(failed, on=keys).empty


def test_summary_counts_what_it_averages(two):
    frame = summary_table(two).set_index(["split", "metric"])
    error, ratio = frame.loc["test", "error"], frame.loc["test", "ratio"]
    assert (error["mean"], error["n"], error["nan"]) == (0.2, 2, 0)
    assert error["high"] - error["mean"] == pytest.approx(12.7062047 * 0.1)
    assert (ratio["mean"], ratio["n"], ratio["nan"]) == (0.5, 1, 1)
    assert math.isnan(ratio["low"])
    assert "fit,main,0.8,test,ratio,0.5,,,1,1" in csv_text(summary_table(two), nan="").splitlines()


def test_the_table_has_the_requested_columns(example):
    sheet, named = requested_sheets(example)
    assert (sheet.title, named.title) == ("Table 1 (test)", "errors (train)")
    assert list(sheet.titles) == [
        "algorithm", "variant", "kappa", "ratio", "error",
        "violation.parity train", "violation.parity test", "n", "status",
    ]  # fmt: skip
    rows = texts(sheet)
    assert [row[1] for row in rows[6:18]] == ["deterministic"] * 6 + ["stochastic"] * 6
    assert rows[11][-2:] == ["4", "ok 4, error 1"]
    empty = [""] * 4
    assert rows[-1] == ["three_player", "stochastic", "1", *empty, "0", "no_solution_found 5"]


def test_columns_are_added_to_distinguish_rows(example):
    table = {"rows": ["algorithm"], "columns": ["error"]}
    (sheet,) = requested_sheets(with_tables(example, table))
    assert list(sheet.titles[:3]) == ["algorithm", "variant", "kappa"]
    rows = texts(sheet)
    assert len({tuple(row[:3]) for row in rows}) == len(rows)


def test_without_requested_tables_there_is_one_with_everything(two):
    (sheet,) = requested_sheets(two)
    assert sheet.titles[:4] == ("algorithm", "kappa", "objective", "ratio")
    assert "error" not in sheet.titles
    assert sheet.note == "Not repeated: error equals objective."
    # the ratio of one seed is NaN, which the cell says
    assert texts(sheet)[0][3] == "0.5000 (n=1)"
    table = {"rows": ["algorithm", "seed"], "columns": ["error"], "split": "train"}
    (sheet,) = requested_sheets(with_tables(two, table))
    assert texts(sheet) == [["fit", str(k), f"0.{2 * k + 1}000", "1", "ok 1"] for k in (0, 1)]


def test_constraints_are_shown_by_split(example):
    sheet = constraint_sheet(example, by_point=True)
    assert sheet.titles[3:] == ("constraint", "train", "test", "status")
    first, last = sheet.rows[0], sheet.rows[-1]
    assert (first[4].text[:5], first[4].text[-5:], first[4].tone) == ("✗ 0.0", "(0/5)", "bad")
    assert [cell.text for cell in last[4:6]] == ["-", "-"]


def test_satisfied_constraints_count_trials(example):
    rows = {tuple(row[:2]): row[2:] for row in texts(constraint_sheet(example))}
    assert rows["unconstrained", "hinge"] == ["parity", "✗ 0 of 30", "✗ 0 of 30", "not_met 30"]
    assert rows["majorize", "stochastic"][1] == "✗ 28 of 29"
    assert rows["three_player", "stochastic"][-1].endswith("no_solution_found 5")


NUMBERS = {
    0.0: "0.0000", -1.2e-16: "0.0000", 0.12345678: "0.1235", -0.00049: "-0.0005", 3.2e-7: "3.2e-07",
    1234.567: "1234.57", 1234567.0: "1234567", 1.23e9: "1.23e+09", math.nan: "nan", -math.inf: "-inf",
}  # fmt: skip


@pytest.mark.parametrize(("value", "text"), NUMBERS.items())
def test_numbers_show_their_size(value, text):
    assert format_number(value) == text


def test_markdown_is_aligned_and_cannot_be_broken_out_of():
    rows = (
        (SheetCell("a|b\n<i>"), SheetCell("0.5 ± 0.1", 0.5)),
        (SheetCell("<= 1"), SheetCell("12")),
    )
    assert to_markdown(Sheet("T", ("name", "x"), rows)).splitlines() == [
        "## T",
        "",
        "| name        |         x |",
        "| ----------- | --------: |",
        "| a\\|b &lt;i> | 0.5 ± 0.1 |",
        "| <= 1        |        12 |",
    ]


def test_latex_has_columns_of_numbers_that_siunitx_parses():
    rows = (
        (
            SheetCell("[a] 5%"),
            SheetCell("-0.5 ± 0.01 (n=3)", -0.5, best=True),
            SheetCell("1 of 2", 0.5),
        ),
        (SheetCell("*"), SheetCell("12.25 ± 0.01", 12.25), SheetCell("✓ 2 of 2", 1)),
        (SheetCell("b^2_~"), SheetCell("0.1 ± 1.2e-05", 0.1, best=True), SheetCell("", 1)),
    )
    sheet = Sheet("T\nU", ("a|b", "x", "y"), rows, "Of T.")
    assert to_latex(sheet, ["Not real."]).splitlines() == [
        "% T U",
        r"% Needs \usepackage{booktabs, siunitx} (v3)",
        "% Of T.",
        "% Not real.",
        rf"\begingroup\sisetup{{{LATEX_SETUP}}}",
        r"\begin{tabular}{lSS}",
        r"\toprule",
        r"a\textbar{}b & {x} & {y} \\",
        r"\midrule",
        r"{[}a] 5\% & \bfseries -0.5 \pm 0.01 {~(n=3)} & 1 {~of 2} \\",
        r"{*} & 12.25 \pm 0.01 & {$\surd$ 2 of 2} \\",
        r"b\textasciicircum{}2\_\textasciitilde{} & {\bfseries 0.1 $\pm$ 1.2e-05} & {} \\",
        r"\bottomrule",
        r"\end{tabular}\endgroup",
    ]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="LaTeX is not installed")
def test_latex_compiles(example, tmp_path):
    every = SheetCell("".join(map(chr, range(32, 127))) + "±✓✗")
    sheets = [*requested_sheets(example), constraint_sheet(example), Sheet("", ("a",), ((every,),))]
    start = r"\documentclass{article}\usepackage{booktabs, siunitx}\begin{document}"
    text = "\n\n".join([start, *map(to_latex, sheets), r"\end{document}"])
    (tmp_path / "a.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=batchmode", "a.tex"]
    subprocess.run(command, cwd=tmp_path, check=True)


def ledger_of(
    answers, constraints=("parity",), split="test", rule="abs(fpr - kappa) <= tpr", **experiment
) -> Ledger:
    """Take objective and violation of each seed by label and sweep point (as pairs).

    A violation may be missing. They are None for a trial that has not run, and empty for one without a solution.
    """
    plan, results = [], {}
    for (label, point), seeds in answers.items():
        for seed, numbers in enumerate(seeds):
            trial = planned(label, seed, **dict(point))
            plan.append(trial)
            if numbers:
                found = dict(zip(("objective", "violation.parity"), numbers, strict=False))
                results[trial.key] = measured(trial, {("main", split): found})
            elif numbers is not None:
                results[trial.key] = measured(trial, {}, "no_solution_found")
    asked = {"constraints": dict.fromkeys(constraints, rule), **experiment}
    return Ledger(plan, results, {"experiment": asked})


A, B, C = ("a", (("kappa", 1),)), ("b", (("kappa", 1),)), ("a", (("kappa", 2),))
GOOD, WORSE, VIOLATED = [(0.1, -0.2)] * 2, [(0.2, -0.1)] * 2, [(0.0, 0.1)] * 2
BEST_ROWS = {
    "low": ("error", {A: GOOD, B: WORSE, C: WORSE}, [A]),
    "high": ("tpr", {A: GOOD, B: WORSE}, [B]),
    "unknown": ("positive_rate", {A: GOOD, B: WORSE}, []),
    "equal": ("error", {A: GOOD, B: GOOD}, [A, B]),
    "for each value of the limit": ("error", {A: GOOD, C: WORSE, ("b", C[1]): GOOD}, [("b", C[1])]),
    "with a satisfied constraint": ("error", {A: VIOLATED, B: WORSE}, [B]),
    "with a model in every trial": ("error", {A: [GOOD[0], ()], B: WORSE}, [B]),
    "without a limit": ("error", {("a", ()): GOOD, B: WORSE, C: WORSE}, [("a", ())]),
}


@pytest.mark.parametrize(("metric", "answers", "expected"), BEST_ROWS.values(), ids=BEST_ROWS)
def test_the_best_means_of_a_table(metric, answers, expected):
    table = {"rows": ["algorithm", "kappa"], "columns": ["error", "violation.parity"]}
    ledger = with_tables(ledger_of(answers, metrics={"error": metric}), table)
    (sheet,) = requested_sheets(ledger)
    found = [tuple(each.text for each in row[:2]) for row in sheet.rows if row[2].best]
    assert found == [(label, "".join(str(v) for _, v in point)) for label, point in expected]
    assert not any(row[3].best for row in sheet.rows)


def best(ledger):
    return texts(best_sheet(ledger))


def test_the_lowest_objective_of_feasible_candidates():
    answers = {
        ("plain", ()): [(0.1, 0.3), (0.1, 0.3)],
        ("good", ()): [(0.2, -0.1), (0.2, -0.1)],
        ("careful", ()): [(0.3, -0.2), (0.3, -0.2)],
    }
    assert best(ledger_of(answers)) == [["good", "0.2000", "no", "confirmed", "-0.1000"]]
    assert best(ledger_of(answers, constraints=())) == [["plain", "0.1000", "2"]]


def test_a_candidate_feasible_on_average_is_not_the_best_if_it_often_violates():
    answers = {
        ("a", ()): [(0.2, -0.3), (0.2, 0.1), None],
        ("b", ()): [(0.3, -0.01), (0.3, -0.01), (0.3, -0.01)],
    }
    assert best(ledger_of(answers))[0][0] == "b"
    del answers["b", ()]
    assert best(ledger_of(answers)) == [
        ["none (closest: a)", "0.2000", "no", "violated", "-0.1000 ± 2.5412"]
    ]


def test_the_closest_candidate_if_none_is_feasible():
    answers = {("a", ()): [(0.1, 0.3)], ("b", ()): [(0.5, 0.2)], ("c", ()): [(0.0, math.nan)]}
    (row,) = best_sheet(ledger_of(answers)).rows
    assert (row[0].text, row[0].tone, row[-2].text) == ("none (closest: b)", "bad", "violated")


def test_a_best_setting_that_is_no_better_than_a_constant_is_marked():
    ledger = ledger_of({("a", ()): [(0.2, -0.1)] * 3})
    info = {BEST_CONSTANT_KEY: {"test": 0.15}}
    results = {key: replace(each, info=info) for key, each in ledger.results.items()}
    (row,) = best_sheet(replace(ledger, results=results)).rows
    assert (row[0].text, row[0].tone) == ("a, no better than a constant", "bad")


MOSTLY_BAD, BALANCED = (0.1, 0.12, 0.08, 0.1, -0.1), (0.1, -0.12, 0.08, -0.1, -0.1)


def with_noise(ledger, error, levels):
    """Add the standard error of violations, and the stated level of each label, None for none.

    The error may be one for each label.
    """
    metrics, results = {each.metrics["violation.parity"] for each in ledger.plan}, {}
    for trial in ledger.plan:
        result, level = ledger.results[trial.key], levels[trial.label]
        own = error[trial.label] if isinstance(error, dict) else error
        ((metric, value),) = ((v.metric, v.value) for v in result.values if v.metric in metrics)
        info = {
            "levels": {} if level is None else {"main": level},
            "pieces": {"main": {metric: [(value, own)]}},
            "test": (trial.key, 0.0),
        }
        results[trial.key] = replace(result, info=result.info | {NEW_DATA_KEY: info})
    return replace(ledger, results=results)


@pytest.mark.parametrize(
    ("constant", "first"),
    [
        (0.3, "flat, objective 0.2000"),
        (0.2, "no model qualifies; the closest is fair, objective 0.1000"),
    ],
)
def test_a_cheaper_setting_comes_before_a_constant_although_it_is_not_confirmed(constant, first):
    fair = [(0.1, each) for each in (-0.3, -0.01, -0.2, -0.02, -0.01)]
    ledger = ledger_of({("flat", ()): [(0.2, -0.9)] * 5, ("fair", ()): fair})
    info = {BEST_CONSTANT_KEY: {"test": constant}}
    results = {key: replace(each, info=info) for key, each in ledger.results.items()}
    levels = {"flat": None, "fair": None}
    assert answer_lines(with_noise(replace(ledger, results=results), 0.0, levels))[0] == first


@pytest.mark.parametrize(
    ("violation", "evidence"),
    [
        (
            -0.05,
            "the test sets of 0 rows are too small to tell",
        ),
        (
            0.02,
            "the test sets of 0 rows are too small to tell",
        ),
        (0.2, "violated on 1 of 1 test sets"),
        (-0.2, "confirmed by the test sets"),
    ],
)
def test_a_single_seed_is_judged_with_the_sampling_error_of_its_test_set(violation, evidence):
    ledger = with_noise(ledger_of({("fair", ()): [(0.1, violation)]}), 0.05, {"fair": None})
    assert answer_lines(ledger)[1].startswith(f"{evidence}: violation of parity {violation:.4f} (")


def test_the_closest_has_the_smallest_violation_of_those_that_hardly_hold():
    """The constraint holds with probability 0.006 and 0.0002."""
    ledger = ledger_of({("far", ()): [(0.1, 0.3)], ("near", ()): [(0.2, 0.07)]})
    found = with_noise(ledger, {"far": 0.12, "near": 0.02}, {"far": None, "near": None})
    assert answer_lines(found)[0].startswith("no model qualifies; the closest is near")
    assert best(found)[0][0] == "none (closest: near)"


def test_a_setting_with_a_model_in_few_trials_comes_after_others():
    answers = {
        ("seldom", ()): [(0.1, -0.2), (0.1, -0.2), ()],
        ("always", ()): [(0.2, -0.1), (0.2, -0.1), (0.2, -0.1)],
    }
    assert best(ledger_of(answers))[0][0] == "always"
    del answers["always", ()]
    (row,) = best(ledger_of(answers))
    assert row[0] == "seldom (no model in 1 of 3 seeds)"


@pytest.mark.parametrize(
    ("rule", "objective", "place"),
    [
        ("recall >= kappa", "error", 0.8),
        ("recall <= kappa", "error", 0.6),
        ("kappa <= recall", "error", 0.8),
        ("recall >= kappa * precision", "error", 0.8),
        ("1 - kappa >= fnr", "error", 0.8),
        ("recall / kappa >= 1", "error", 0.8),
        ("kappa >= recall", "error", 0.6),
        ("0.4 >= kappa * recall", "error", 0.8),
        ("0.4 <= kappa * recall", "error", 0.6),
        ("-kappa <= recall - fpr <= kappa", "error", 0.6),
        ("recall - fpr >= -(kappa ** 2)", "error", 0.6),
        ("max_gap(recall, by=sex) <= 0.1 / kappa", "error", 0.8),
        ("error <= kappa * of(fit, error)", "error", 0.6),
        ("abs(recall - kappa) <= 0.1", "error", 0.7),
        ("recall * (recall - fpr) <= kappa * (recall - fpr)", "error", 0.7),
        ("f_score(kappa) >= 0.5", "error", 0.7),
        ("recall >= kappa", "error + kappa", 0.7),
    ],
)
def test_a_model_for_a_stricter_limit_answers_looser_ones(rule, objective, place):
    """It is the answer if it costs less, or if no model for the looser limit satisfies it."""
    limits = (0.6, 0.7, 0.8)
    points = {("fit", (("kappa", k),)): [(0.1 if k == place else 0.3, -0.1)] * 2 for k in limits}
    borrowed = f"fit at kappa = {place}" if place != 0.7 else "fit"
    wanted = ["fit" if k == place else borrowed for k in limits]
    assert [row[1] for row in best(ledger_of(points, rule=rule, objective=objective))] == wanted


CHEAP, DEAR = (0.1, -0.1), (0.2, -0.1)


@pytest.mark.parametrize(
    ("trials", "wanted"),
    [
        ({0.7: [(), ()], 0.8: [DEAR] * 2}, ["fit at kappa = 0.8", "fit"]),
        ({0.7: [CHEAP, CHEAP, ()], 0.8: [DEAR] * 3}, ["fit at kappa = 0.8", "fit"]),
        (
            {0.7: [(0.2, 0.1)] * 2, 0.8: [(0.1, 0.1)] * 2, 0.9: [(0.4, -0.1)] * 2},
            ["fit at kappa = 0.9", "fit at kappa = 0.9", "fit"],
        ),
        ({0.7: [CHEAP] * 2, 0.8: [DEAR] * 2}, ["fit", "fit"]),
    ],
    ids=["no model", "it has more models", "the looser limit is violated", "it costs more"],
)
def test_when_a_stricter_limit_is_the_answer(trials, wanted):
    points = {("fit", (("kappa", k),)): values for k, values in trials.items()}
    assert [row[1] for row in best(ledger_of(points, rule="recall >= kappa"))] == wanted


def test_an_algorithm_that_does_not_sweep_a_limit_belongs_to_each_of_its_values():
    swept = {("fit", (("kappa", k),)): [(0.3, -0.1)] * 2 for k in (0.7, 0.8)}
    ledger = ledger_of({("unconstrained", ()): [(0.1,)] * 2} | swept, rule="recall >= kappa")
    assert [row[:2] for row in best(ledger)] == [[k, "fit"] for k in ("0.7", "0.8")]
    assert [each.cost.mean for each in answers(ledger)] == pytest.approx([0.2, 0.2])
    assert "at 2 of 2 values of kappa;" in answer_lines(ledger)[0]


def test_values_that_agree_to_six_digits_are_different_tasks():
    limits = (0.12345671, 0.12345672)
    ledger = ledger_of(
        {("fit", (("kappa", k),)): [(k, -0.1)] * 2 for k in limits}, rule="recall >= kappa"
    )
    assert [row[0] for row in best(ledger)] == ["0.12345671", "0.12345672"]


def test_an_unconfirmed_setting_that_costs_more_is_not_named():
    ledger = ledger_of(
        {("flat", ()): [(0.2, -0.9)] * 5, ("fair", ()): [(0.3, -0.3), (0.3, -0.01)] * 2}
    )
    info = {BEST_CONSTANT_KEY: {"test": 0.2}}
    results = {key: replace(each, info=info) for key, each in ledger.results.items()}
    found = with_noise(replace(ledger, results=results), 0.0, {"flat": None, "fair": None})
    assert answer_lines(found)[0] == "flat, objective 0.2000"


@pytest.mark.parametrize(("values", "error", "level", "name"), [
    (MOSTLY_BAD, 0.0, None, "none (closest: a)"),
    (MOSTLY_BAD, 0.0, 0.9, "none (closest: a)"),  # contradicted: without noise, it is violated
    (BALANCED, 0.2, None, "none (closest: a)"),
    (BALANCED, 0.2, 0.9, "a"),  # it is expected to hold; the test sets are too small to tell
    (MOSTLY_BAD, 0.2, 0.9, "none (closest: a)"),  # more likely violated than not
])  # fmt: skip
def test_a_stated_probability_counts_unless_test_sets_contradict_it(values, error, level, name):
    trials = [(0.2, each) for each in values]
    ledger = ledger_of({("a", (("kappa", kappa),)): trials for kappa in (1, 2)})
    found = with_noise(ledger, error, dict.fromkeys("a", level))
    for row in best_sheet(found).rows:
        assert (row[1].text, row[3].text) == (name, "0.9" if name == "a" else "no")
    one = replace(found, meta={"experiment": {**found.experiment, "goal": {"kappa": 1}}})
    how = "expected" if name == "a" else "trained"
    promise = f"{how} to hold on new rows (probability 0.9)"
    assert answer_lines(one)[1].startswith(promise) == (level is not None)
    count = f"new rows at {2 * (name == 'a')} of 2 values of kappa"
    assert count in answer_lines(found)[0]


@pytest.mark.parametrize(("error", "name"), [(0.2, "cheap"), (0.0, "safe")])
def test_a_passed_safety_test_counts_unless_test_sets_contradict_it(error, name):
    """Both passed; by the test sets, the safe one holds and the cheap one is probably violated."""
    cheap, safe = [(0.2, each) for each in MOSTLY_BAD], [(0.3, -1.0)] * 5
    ledger = ledger_of({("cheap", ()): cheap, ("safe", ()): safe})
    info = {"certificates": [certificate(tutorial(), -0.1, passed=True)]}
    tested = {key: replace(each, info=info) for key, each in ledger.results.items()}
    found = with_noise(replace(ledger, results=tested), error, {"cheap": None, "safe": None})
    assert best(found)[0][0] == name
    proof = "the test sets of 0 rows are too small to tell"
    proof = proof if name == "cheap" else "confirmed by the test sets"
    start = f"passed a safety test (confidence 0.95); {proof}: "
    assert answer_lines(found)[1].startswith(start)


def test_a_cheaper_setting_that_is_expected_to_hold_comes_before_a_confirmed_one():
    cheap, safe = ([(cost, each) for each in BALANCED] for cost in (0.2, 0.3))
    ledger = ledger_of({("cheap", ()): cheap, ("safe", ()): [(cost, -1.0) for cost, _ in safe]})
    noisy = with_noise(ledger, 0.2, {"cheap": 0.9, "safe": None})
    assert best(noisy)[0][0] == "cheap"


def test_status_counts_models_that_are_no_better_than_a_constant():
    ledger = ledger_of({("a", ()): [(0.2, -0.1), (0.3, -0.1), (0.1, -0.1), (math.nan, -0.1)]})
    info = {BEST_CONSTANT_KEY: {"test": 0.2, "train": 0.0}}
    results = {key: replace(each, info=info) for key, each in ledger.results.items()}
    for sheet in (
        *requested_sheets(replace(ledger, results=results)),
        constraint_sheet(replace(ledger, results=results)),
    ):
        assert sheet.rows[0][-1].text == "ok 4; 2 no better than a constant"


def test_the_best_row_says_why_there_is_no_solution():
    ledger = ledger_of({("plain", ()): [(0.1, 0.3)], ("fair", ()): [None]})
    (trial,) = (trial for trial in ledger.plan if trial.label == "fair")
    failed = TrialResult(trial.key, "no_solution_found", "too few rows")
    (row,) = best_sheet(replace(ledger, results={**ledger.results, trial.key: failed})).rows
    assert (row[0].text, row[0].more) == ("none (closest: plain)", "fair, seed 0: too few rows")


def test_swept_names_of_constraints_make_tasks():
    answers = {
        ("a", (("kappa", kappa), ("rate", rate))): [(kappa * rate, -1.0)]
        for kappa in (1, 2)
        for rate in (3, 4)
    }
    sheet = best_sheet(ledger_of(answers))
    assert sheet.titles == (
        "kappa", "best model", "at", "objective", "expected", "verdict", "measured"
    )  # fmt: skip
    assert [row[:3] for row in texts(sheet)] == [[k, "a", "rate = 3"] for k in "12"]
    swept = best_sheet(ledger_of(answers, sweep={"rate": [3, 4]}))
    assert len(swept.rows) == 4


def test_without_a_test_set_another_split_is_used():
    sheet = best_sheet(ledger_of({("a", ()): [(0.1, 0.0)]}, split="train"))
    assert sheet.title == "Best models (train)"
    assert [cell.text for cell in sheet.rows[0][3:]] == ["satisfied", "0.0000"]
    assert best_sheet(ledger_of({("a", ()): [None]})).rows == ()


PAID = {
    ("unconstrained", (("kappa", 1),)): [(0.1, 0.3), (0.2, 0.3), (0.3, 0.1)],
    ("fair", (("kappa", 1),)): [(0.2, -0.1), (0.3, -0.2), (0.4, -0.1)],
    ("unconstrained", (("kappa", 2),)): [(0.1, 0.3), (0.2, 0.3), (0.3, 0.1)],
    ("fair", (("kappa", 2),)): [(0.2, 0.1), None, (0.4, 0.2)],
}


def test_the_cost_is_the_mean_of_paired_differences():
    sheet = best_sheet(ledger_of(PAID, objective="error"))
    assert sheet.titles[:4] == ("kappa", "best model", "error", "cost")
    # the objectives differ between seeds, their differences do not
    assert [each.cost.half for each in answers(ledger_of(PAID))] == pytest.approx([0.0, 0.0])
    assert texts(sheet)[0][:5] == ["1", "fair", "0.3000 ± 0.2484", "+0.1000", "no"]
    assert texts(sheet)[1][:4] == ["2", "none (closest: fair)", "0.3000 ± 1.2706", ""]


def test_the_goal_is_answered_in_two_lines():
    ledger = ledger_of(PAID, objective="error", rule="recall >= kappa", goal={"kappa": 1})
    assert answer_lines(ledger) == [
        "kappa = 1: fair, error 0.3000 ± 0.2484 (+0.1000 over unconstrained)",
        "confirmed by the test sets: parity 1.1333 ± 0.1434 (must be at least 1)",
    ]
    hopeless = {**ledger.experiment, "goal": {"kappa": 2}}
    first, second, *more = answer_lines(replace(ledger, meta={"experiment": hopeless}))
    assert first.startswith(
        "kappa = 2: no model qualifies; the closest is fair, error 0.3000 ± 1.2706"
    )
    assert second.startswith("violated on 2 of 2 test sets: parity 1.8500 ± 0.6353 (")
    assert more == [NEW_ROWS_HINT]
    del hopeless["goal"]
    assert answer_lines(replace(ledger, meta={"experiment": hopeless})) == [
        f"a model is expected or confirmed to hold on new rows at 1 of 2 values of kappa; {NEW_ROWS_HINT}"
    ]


def test_the_answers_as_plain_data():
    ledger = ledger_of(PAID, objective="error", rule="recall >= kappa", goal={"kappa": 1})
    first, second = answers_to_json(ledger)
    assert first == {
        "at": {"kappa": 1},
        "is_goal": True,
        "algorithm": "fair",
        "point": {"kappa": 1},
        "qualifies": True,
        "split": "test",
        "objective": pytest.approx(0.3),
        "cost": pytest.approx(0.1),
        "expected": None,
        "violations": {"parity": pytest.approx(-0.4 / 3)},
        "verdict": "confirmed",
    }
    assert (second["is_goal"], second["qualifies"], second["verdict"]) == (False, False, "violated")


@pytest.mark.parametrize(
    ("rule", "quantity"),
    [
        ("recall >= kappa", "parity 0.8500 (must be at least 0.8)"),
        ("kappa <= recall", "parity 0.8500 (must be at least 0.8)"),
        ("fpr <= kappa", "parity 0.7500 (must be at most 0.8)"),
        ("fpr <= kappa / 4", "parity 0.1500 (must be at most 0.2)"),
        ("abs(fpr - tpr) <= 0.1", "parity 0.0500 (must be at most 0.1)"),
        ("tpr >= kappa * fpr", "violation of parity -0.0500 (must be at most 0)"),
        ("0.1 <= tpr <= kappa", "violation of parity -0.0500 (must be at most 0)"),
    ],
)
def test_a_quantity_that_is_compared_with_a_number_is_shown(rule, quantity):
    ledger = ledger_of({("fit", (("kappa", 0.8),)): [(0.1, -0.05)]}, rule=rule)
    assert answer_lines(ledger)[1].endswith(f": {quantity}")


def test_a_violation_of_0_is_worse_than_none():
    ledger = ledger_of({("fit", ()): [(0.1, 0.0)]}, constraints=("parity", "other"))
    metrics = {"violation.other": "other - 1"}
    plan = [replace(each, metrics={**each.metrics, **metrics}) for each in ledger.plan]
    (found,) = ledger.results.values()
    value = replace(found.values[-1], metric="other - 1", value=-0.7)
    results = {found.key: replace(found, values=(*found.values, value))}
    lines = answer_lines(replace(ledger, plan=plan, results=results))
    assert lines[1].endswith("violation of parity 0.0000 (must be at most 0)")


def test_few_models_and_no_constraints_have_an_answer():
    (row,) = best(ledger_of({("a", ()): [(0.1,), (), ()]}, constraints=()))
    assert row == ["a (no model in 2 of 3 seeds)", "0.1000", "1"]


def test_a_name_of_a_constraint_or_a_swept_value_is_no_title():
    points = {("a", (("cost", k),)): [(0.1, -0.1)] for k in (1, 2)}
    ledger = ledger_of(points, rule="recall >= cost")
    assert best_sheet(ledger).titles == (
        "cost", "best model", "objective", "expected", "verdict", "measured"
    )  # fmt: skip


def test_the_verdict_is_about_the_stated_probability():
    """The constraint holds on 14 of 20 test sets without noise, and should with probability 0.7."""
    trials = [(0.2, -0.2 + 0.01 * (k % 7)) for k in range(14)] + [(0.2, 0.05)] * 6
    found = with_noise(ledger_of({("a", ()): trials}), 0.0, {"a": 0.6})
    assert [row[3] for row in best(found)] == ["confirmed"]


def test_the_answer_without_constraints_without_models_and_of_a_maximum():
    alone = {("a", ()): [(0.1, -1.0), (), None]}
    assert answer_lines(ledger_of(alone))[0] == "a, objective 0.1000 (no model in 1 of 2 seeds)"
    (line,) = answer_lines(ledger_of(alone, constraints=(), objective="-value(gain)"))
    assert line == "a, value(gain) -0.1000 (no model in 1 of 2 seeds)"
    assert answer_lines(ledger_of({("a", ()): [None]})) == ["not run yet"]
    ledger = ledger_of({("a", ()): [()]})
    failed = {key: replace(each, reason="too few rows") for key, each in ledger.results.items()}
    assert answer_lines(replace(ledger, results=failed)) == [
        "No trial returned a model. a, seed 0: too few rows"
    ]


def test_training_for_new_rows_is_advised_where_it_is_possible():
    hopeless = ledger_of({("a", ()): [(0.1, 0.2)]})
    assert NEW_ROWS_HINT in answer_lines(hopeless)
    disclosed = {"goals": [{"name": "parity", "class": "disclosure"}]}  # of a filter
    others = [replace(hopeless, meta=hopeless.meta | disclosed)]
    others += [
        ledger_of({("a", ()): [(0.1, 0.2)]}, **stated)
        for stated in ({"holds": "new_rows"}, {"algorithms": [{"a": {"holds": "new_rows"}}]})
    ]
    assert not any(NEW_ROWS_HINT in answer_lines(each) for each in others)


def test_a_sweep_point_without_a_model_is_part_of_the_answer():
    found = {("a", (("kappa", 1),)): [(0.1, -1.0)], ("a", (("kappa", 2),)): [(), ()]}
    assert "on new rows at 1 of 2 values" in answer_lines(ledger_of(found))[0]
    (line,) = answer_lines(ledger_of(found, goal={"kappa": 2}))
    assert line.startswith("kappa = 2: No trial returned a model. a, seed 0: ")
    assert best(ledger_of(found))[1][:2] == ["2", "none: no model"]


@pytest.mark.parametrize(("left_out", "word"), [(1, "a smoke run"), (0, "an unfinished run")])
def test_results_of_a_part_say_so(left_out, word):
    ledger = ledger_of({("a", ()): [(0.1, 0.2), None]})
    part = replace(ledger, meta={**ledger.meta, "left_out": left_out})
    assert incomplete_notes(part) == [f"Results of {word}: 1 of 2 planned trials have run."]
    assert incomplete_notes(ledger_of({("a", ()): [(0.1, 0.2)]})) == []


@pytest.mark.parametrize(("tests", "same"), [((1, 1), True), ((1, 2), False), ((1, None), False)])
def test_equal_test_sets_of_all_seeds_are_noted(tests, same):
    ledger = ledger_of({("a", ()): [(0.1, 0.2), (0.1, 0.2)]})
    for trial, test in zip(ledger.plan, tests, strict=True):
        if test is None:
            del ledger.results[trial.key]
        else:
            info = {NEW_DATA_KEY: {"levels": {}, "pieces": {}, "test": [test, 0.3]}}
            ledger.results[trial.key] = replace(ledger.results[trial.key], info=info)
    assert list(ledger.row_notes) == [SAME_TEST_SET] * same
    assert (SAME_TEST_SET in summary_markdown(ledger)) == same


def test_a_satisfied_mean_has_no_alarm_colour_and_rounding_is_zero():
    answers = {("a", ()): [(0.2, -0.3), (0.2, 0.1)], ("b", ()): [(0.2, 0.3), (0.2, 0.1)]}
    answers |= {
        ("c", ()): [(0.2, -1e-16), (0.2, -3e-16)],
        ("d", ()): [(0.2, 0.02), (0.2, -0.01996)],
    }
    rows = constraint_sheet(ledger_of(answers), by_point=True).rows
    cells = [(row[2].text, row[2].tone) for row in rows]
    assert cells == [
        ("✗ -0.1000 ± 2.5412 (1/2)", ""),
        ("✗ 0.2000 ± 1.2706 (0/2)", "bad"),
        ("✓ 0.0000 ± 0.0000 (2/2)", "good"),
        ("✗ 0.0000 ± 0.2539 (1/2)", "part"),
    ]


def test_a_group_is_named_by_its_conditions_in_the_data_set_of_the_trial():
    """One data set's condition for a group may be another's for the other group."""
    north, south = (planned("fit", 0, dataset=name) for name in ("north", "south"))
    ledger = Ledger(
        [north, south],
        {},
        {
            "experiment": {
                "datasets": {"north": {}, "south": {}},
                "groups": {
                    "many": {"north": "sex = M", "south": "sex = F"},
                    "few": {"north": "sex = F", "south": "sex = M"},
                },
            }
        },
    )
    names = [group_names(ledger, trial) for trial in ledger.plan]
    assert names == [{"sex = M": "many", "sex = F": "few"}, {"sex = F": "many", "sex = M": "few"}]
