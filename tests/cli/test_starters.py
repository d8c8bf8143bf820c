"""`init`: a starter file for each family, and one for a table of one's own."""

from __future__ import annotations

import csv
import json
import os
import re
import time

import numpy as np
import pandas as pd
import pytest

from ratecli.config.experiment import load_experiment
from ratecli.experiment.catalogue import template_summaries, template_text
from ratecli.report.regression.statistics import MIN_SEEDS

QUICK = ("-j", 1, "--offline", "--set", "seeds=1", "--set", "report.plots=[]")
FEWER = {
    "quickstart": ("--set", "datasets.loans.rows=300", "--set", "sweep.kappa=[0.8]", "--set", "expect=[]"),
    "majorize": ("--set", "datasets.loans.rows=300", "--set", "sweep.kappa=[0.8]"),
    "players": ("--set", "datasets.loans.rows=300", "--set", "algorithms.1.three_player.steps=40"),
    "seldonian": ("--set", "datasets.loans.rows=1000", "--set", "sweep.amount=[0.5]"),
    "filtering": ("--set", "datasets.loans.rows=400", "--set", "sweep.alpha=[0.3]"),
}  # fmt: skip


@pytest.mark.parametrize("name", template_summaries())
def test_every_template_runs_offline(folder, cli, name):
    assert cli("init", "exp.yaml", "--template", name).code == 0
    assert (folder / "exp.yaml").read_text() == template_text(name)
    assert cli("validate", "exp.yaml").code == 0
    answer = cli("run", "exp.yaml", *QUICK, *FEWER[name])
    assert answer.code == 0, answer.err
    experiment, _ = load_experiment(folder / "exp.yaml")
    assert len(experiment.seeds) >= MIN_SEEDS  # for the intervals of a later check
    summary = (folder / "results" / experiment.name / "summary.md").read_text()
    shown = {entry.label for entry in experiment.algorithms}
    assert all(label in summary for label in shown)


def test_templates_are_listed_with_a_line(cli):
    out = cli("init", "--list").out
    for name, line in template_summaries().items():
        assert re.search(rf"^{name} +{re.escape(line)}$", out, re.MULTILINE)
        assert line.endswith((".", "?"))
        assert len(line) < 110
    assert "own-data" in out
    assert next(iter(template_summaries())) == "quickstart"


def test_to_standard_output(cli, listing):
    before = listing()
    assert cli("init", "-", "-t", "players").out == template_text("players")
    assert listing() == before


def test_a_file_that_is_there_stays_unless_told(folder, cli):
    (folder / "experiment.yaml").write_text("mine")
    refused = cli("init")
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert (folder / "experiment.yaml").read_text() == "mine"
    assert cli("init", "--force").code == 0
    assert (folder / "experiment.yaml").read_text() == template_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--template", "seldonan"], "did you mean 'seldonian'?"),
        (["--template", "own-data"], "--data CSV --label COLUMN --group COLUMN"),
        (["--label", "y"], "name it with --data"),
        (["--data", "t.csv"], "columns: id, sex"),
        (["--data", "t.csv", "--label", "approved"], "--group"),
        (["--data", "t.csv", "--template", "players", "--label", "y", "--group", "g"], "own-data"),
    ],
)
@pytest.mark.usefixtures("table")
def test_wrong_use(cli, listing, arguments, said):
    before = listing()
    answer = cli("init", *arguments)
    assert answer.code == 2
    assert said in answer.err
    assert listing() == before


HEAD = ["id", "sex", "job title", "age", "score", "approved"]


def rows(count=400):
    for k in range(count):
        sex = "FM"[k % 2]
        score = (k * 37 % 100) / 10 + 2 * (sex == "M")
        yield [
            f"p{k}",
            sex,
            ("a b", "c:d", "e")[k % 3],
            20 + k % 40,
            score,
            ("no", "yes")[score > 5.5],
        ]


@pytest.fixture
def table(folder):
    """Writes t.csv, each row after a change."""

    def write(change=lambda row: row, head=HEAD, name="t.csv"):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([head, *map(change, rows())])
        return folder / name

    write()
    return write


def own(*options, group="sex", label="approved"):
    return ("init", "exp.yaml", "--data", "t.csv", "--label", label, "--group", group, *options)


def with_cell(column, value, every=1):
    def change(row):
        at = HEAD.index(column)
        number = int(row[0][1:])
        return [*row[:at], value, *row[at + 1 :]] if number % every == 0 else row

    return change


@pytest.mark.usefixtures("table")
def test_a_table_of_ones_own_from_file_to_trade_off(folder, cli):
    answer = cli(*own("--positive", "yes"))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        'label    "approved": "yes" counts as yes, "no" as no',
        'groups   "sex": "F" (200 rows), "M" (200 rows)',
        'left out "id": 400 different texts: probably a row ID',
        "wrote exp.yaml; next: ratecli run exp.yaml",
    ]
    experiment, _ = load_experiment(folder / "exp.yaml")
    assert experiment.name == "t"
    assert len(experiment.seeds) >= MIN_SEEDS
    assert experiment.groups == {"sex_F": "sex = F", "sex_M": "sex = M"}
    assert experiment.datasets["table"].drop == ("sex", "id")
    assert experiment.datasets["table"].positive == "yes"
    assert experiment.constraints == {"parity": "min_ratio(positive_rate, by=sex) >= kappa"}
    assert cli("validate", "exp.yaml").out == "exp.yaml: no errors, 50 trials\n"
    answer = cli("run", "exp.yaml", "-j", 1, "--set", "seeds=1", "--set", "sweep.kappa=[0.8]")
    assert answer.code == 0
    assert (folder / "results" / "t" / "figures" / "tradeoff.svg").is_file()


@pytest.mark.parametrize(
    ("change", "options", "fault"),
    [
        (None, [], ("E406", """--positive "yes\"""")),
        (None, ["--positive", "Yes"], ("E406", "did you mean 'yes'?")),
        (with_cell("approved", "maybe", 3), [], ("E406", "has 3 values, not two")),
        (with_cell("approved", "yes"), [], ("E406", "one class only")),
        (with_cell("approved", ""), [], ("E406", "no value at all")),
        (with_cell("sex", "F"), ["--positive", "yes"], ("E411", "one value only")),
        (None, ["--positive", "yes", "--group", "age"], ("E411", "40 values")),
        (
            None,
            ["--positive", "yes", "--group", "approved"],
            ("E411", "both the label and the group"),
        ),
        (None, ["--positive", "yes", "--group", "Sex"], ("E205", "did you mean 'sex'?")),
        (None, ["--label", "aproved"], ("E205", "did you mean 'approved'?")),
        (None, ["--separator", ";"], ("E205", "columns: id,sex")),
        (None, ["--separator", ";;"], ("E104", "cannot separate columns")),
        (None, ["--data", "nowhere.csv"], ("E405", "does not exist")),
        (None, ["--data", "exp.pdf"], ("E405", "does not exist")),
    ],
)
def test_what_a_table_does_not_say_is_asked(table, cli, change, options, fault):
    code, said = fault
    if change:
        table(change)
    answer = cli(*own(*options))
    assert answer.code in {2, 4}
    assert f"error[{code}]" in answer.err
    assert said in answer.err
    assert "wrote" not in answer.out


def test_a_table_of_many_columns_costs_little_more_than_reading_it(folder, cli):
    columns, rows = 1500, 200
    words = np.random.default_rng(0).integers(0, 90, (rows, columns)).astype(str).astype(object)
    words[:, ::4] = "color " + words[:, ::4]
    words[::9, 1::4] = ""
    frame = pd.DataFrame(words, columns=[f"f{k}" for k in range(columns)])
    frame["sex"], frame["paid"] = np.resize(["F", "M", "M"], rows), np.resize(["no", "yes"], rows)
    frame.to_csv(folder / "wide.csv", index=False)
    asked = ("--data", "wide.csv", "--label", "paid", "--group", "sex", "--positive", "yes")

    def seconds(act):
        begun = time.process_time()
        act()
        return time.process_time() - begun

    assert cli("init", "exp.yaml", *asked).code == 0  # and everything is imported
    with (folder / "wide.csv").open("a") as file:
        file.write(",".join(["", *words[0, 1:], "F", "no"]) + "\n")
    reading = min(seconds(lambda: pd.read_csv(folder / "wide.csv")) for _ in range(3))
    assert seconds(lambda: cli("init", "exp.yaml", "--force", *asked)) < 30 * reading
    assert cli("validate", "exp.yaml").code == 0


def test_labels_that_say_themselves_which_is_the_yes(folder, table, cli):
    table(lambda row: [*row[:-1], int(row[-1] == "yes")])
    answer = cli(*own())
    assert '"1" counts as yes, "0" as no' in answer.out
    assert cli("validate", "exp.yaml").code == 0
    assert load_experiment(folder / "exp.yaml")[0].datasets["table"].positive in {1, "1"}


def test_columns_with_missing_numbers_are_features(folder, table, cli):
    table(with_cell("age", "", 5))
    answer = cli(*own("--positive", "yes"))
    assert 'missing  "age" (80 rows): the mean, and a feature that says where' in answer.out
    written = load_experiment(folder / "exp.yaml")[0].datasets["table"]
    assert (written.drop, written.missing) == (("sex", "id"), "mean")
    quick = ("--set", "sweep.kappa=[0.8]", "--set", "algorithms=[unconstrained]")
    answer = cli("run", "exp.yaml", "-j", 1, *QUICK, *quick)
    assert answer.code == 0, answer.err
    encoder = next((folder / "results").glob("t/models/unconstrained*/encoder.json"))
    (age,) = [b for b in json.loads(encoder.read_text())["blocks"] if b["column"] == "age"]
    assert age["missing"] is True
    table(lambda row: [*row[:3], row[3] if row[0] in {"p1", "p2"} else "", *row[4:]])
    answer = cli(*own("--positive", "yes", "--force"))
    assert 'left out "age": 2 rows only with a number there' in answer.out
    assert load_experiment(folder / "exp.yaml")[0].datasets["table"].missing is None


@pytest.mark.usefixtures("table")
def test_the_table_is_found_from_wherever_the_experiment_is(folder, cli):
    (folder / "exp").mkdir()
    (folder / "data").mkdir()
    for path in ("exp.yaml", "exp/exp.yaml"):
        answer = cli("init", path, *own("--positive", "yes")[2:])
        assert answer.code == 0
        assert cli("validate", path).code == 0
    os.chdir(folder / "data")
    assert cli("validate", "../exp/exp.yaml").code == 0


def test_names_keep_letters_without_their_accents(folder, table, cli):
    table(with_cell("job title", "Süd", 2), name="anträge.csv")
    answer = cli(
        "init",
        "exp.yaml",
        "--data",
        "anträge.csv",
        *own("--positive", "yes")[4:6],
        "--group",
        "job title",
        "--positive",
        "yes",
    )
    assert answer.code == 0, answer.err
    experiment, _ = load_experiment(folder / "exp.yaml")
    assert experiment.name == "antrage"
    assert "job_title_Sud" in experiment.groups


def test_other_separators_are_kept(folder, table, cli):
    path = table()
    path.write_text(path.read_text().replace(",", ";"))
    unnamed = cli("init", "--data", "t.csv")
    assert "say --separator ';'" in unnamed.err
    refused = cli(*own("--positive", "yes"))
    assert "say --separator ';'" in refused.err
    assert cli(*own("--positive", "yes", "--separator", ";")).code == 0
    assert load_experiment(folder / "exp.yaml")[0].datasets["table"].separator == ";"
    assert cli("validate", "exp.yaml").code == 0


def test_small_groups_are_warned_of(table, cli):
    table(with_cell("sex", "X", 20))
    answer = cli(*own("--positive", "yes"))
    assert answer.code == 0
    assert "warning[W401]" in answer.err


@pytest.mark.parametrize(
    ("change", "groups"),
    [
        (
            with_cell("job title", '"it\'s": #1, [x]', 2),
            ["job_title_it_s_1_x", "job_title_a_b", "job_title_c_d", "job_title_e"],
        ),
        (
            lambda row: [*row[:2], ("a-b", "a b")[row[3] % 2], *row[3:]],
            ["job_title_a_b", "job_title_a_b__2"],
        ),
        (lambda row: [*row[:2], row[3] % 2, *row[3:]], ["job_title_0", "job_title_1"]),
    ],
    ids=["quotes", "the same name", "numbers"],
)
def test_names_of_groups(folder, table, cli, change, groups):
    table(change)
    answer = cli(*own("--positive", "yes", group="job title"))
    assert answer.code == 0, answer.err
    assert list(load_experiment(folder / "exp.yaml")[0].groups) == groups
    assert cli("validate", "exp.yaml").code == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: [int(row[0][1:]) + 7, *row[1:]], '"id": a running number'),
        (with_cell("age", "inf", 5), '"age": infinite in 80 rows: correct them to use it'),
        (with_cell("age", "1.034,5", 1), '"age": numbers with decimal commas: write points'),
    ],
)
def test_columns_that_are_left_out(table, cli, change, said):
    table(change)
    answer = cli(*own("--positive", "yes"))
    assert f"left out {said}" in answer.out
    assert answer.out.count("left out") == 1 + ("age" in said)
    assert cli("validate", "exp.yaml").code == 0
