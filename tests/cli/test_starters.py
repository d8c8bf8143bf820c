"""`init`: starter files from templates, and for the user's own table."""

import csv
import os
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from ratecli.config.experiment import load_experiment
from ratecli.config.sweep import sweep_points
from ratecli.experiment.starters.columns import find_leaks
from ratecli.experiment.starters.options import GOALS, template_summaries, template_text
from ratecli.ledger.view import SAME_TEST_SET
from ratecli.report.check.compare import MIN_SEEDS


@pytest.mark.parametrize("name", template_summaries())
def test_every_template_runs_offline(folder, cli, name):
    assert cli("init", "exp.yaml", "--template", name).code == 0
    assert (folder / "exp.yaml").read_text() == template_text(name)
    assert cli("validate", "exp.yaml").code == 0
    answer = cli("run", "exp.yaml", "-j", 1, "--offline", "--smoke")
    assert answer.code == 0, answer.err
    experiment, _ = load_experiment(folder / "exp.yaml")
    assert len(experiment.seeds) >= MIN_SEEDS  # for the intervals of a later check
    summary = (folder / "results" / experiment.name / "summary.md").read_text()
    shown = {entry.label for entry in experiment.algorithms}
    assert all(label in summary for label in shown)


def test_list_of_templates(cli):
    out = cli("init", "--list").out
    for name, line in template_summaries().items():
        assert re.search(rf"^{name} +{re.escape(line)}$", out, re.MULTILINE)
        assert line.endswith((".", "?"))
    assert "own-data" in out
    assert all(
        re.search(rf"^{name} +{re.escape(goal.means[:14])}", out, re.MULTILINE)
        for name, goal in GOALS.items()
    )


def test_an_existing_file_is_replaced_only_with_force(folder, cli):
    (folder / "experiment.yaml").write_text("mine")
    assert cli("init", "-", "-t", "players").out == template_text("players")
    refused = cli("init")
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert [path.read_text() for path in folder.iterdir()] == ["mine"]
    assert cli("init", "--force").code == 0
    assert (folder / "experiment.yaml").read_text() == template_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--template", "seldonan"], "did you mean 'seldonian'?"),
        (["--template", "own-data"], "--data CSV --label COLUMN --group COLUMN"),
        (["--label", "y"], "--label needs a table\n   = help: add --data CSV"),
        (["--data", "t.csv"], "needs --label or --target COLUMN, and --group COLUMN or --goal"),
        (["--data", "t.csv", "--label", "approved"], "--group"),
        (["--data", "t.csv", "--label", "y", "--target", "z", "--group", "g"], "exclude each"),
        (
            ["--data", "t.csv", "--target", "age", "--group", "sex", "--score", "score"],
            "--score is",
        ),
        (
            ["--data", "t.csv", "--label", "y", "--score", "s", "--model", "svm"],
            "--model and --score",
        ),
        (["--data", "t.csv", "--template", "players", "--label", "y", "--group", "g"], "own-data"),
    ],
)
@pytest.mark.usefixtures("table")
def test_invalid_options(cli, listing, arguments, said):
    before = listing()
    answer = cli("init", *arguments)
    assert answer.code == 2
    assert said in answer.err
    assert listing() == before


GOAL = ["--goal"]
HEAD = ["id", "sex", "job title", "age", "score", "approved"]


def rows(count=400):
    for k in range(count):
        sex = "FM"[k % 2]
        score = (k * 37 % 100) / 10 + 2 * (sex == "M")
        job = ("a b", "c:d", "e")[k % 3]
        yield [f"p{k}", sex, job, 20 + k % 40, score, ("no", "yes")[score + k % 7 > 8]]


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


@pytest.mark.parametrize("goal", ["equalized-odds", "predictive-parity"])
@pytest.mark.usefixtures("table")
def test_algorithms_in_comments_support_the_goal(folder, cli, goal):
    assert cli(*own("--positive", "yes", "--goal", goal)).code == 0
    text = (folder / "exp.yaml").read_text("utf-8")
    (folder / "exp.yaml").write_text(text.replace("# - ", "- "))
    assert cli("validate", "exp.yaml").code == 0


def test_names_of_groups_have_letters_without_accents(folder, cli):
    rows = "".join(f"{name},{k % 2},{k}\n" for k in range(80) for name in ("Süd", "Île", "男"))
    (folder / "t.csv").write_text(f"Région,ok,x\n{rows}", encoding="utf-8")
    assert cli(*own("--positive", "1", group="Région", label="ok")).code == 0
    experiment, _ = load_experiment(folder / "exp.yaml")
    values = {"Region_Ile": '"Région" = "Île"', "Region_Sud": '"Région" = "Süd"'}
    assert experiment.groups == values | {"Region": '"Région" = "男"'}


def test_a_goal_without_quotes_is_no_file_name(folder, cli):
    answer = cli("init", "--goal", "equalized-odds", "0.05")
    assert answer.code == 2
    assert "put the goal in quotes: --goal 'equalized-odds 0.05'" in answer.err
    assert not any(folder.iterdir())


@pytest.mark.parametrize(
    ("options", "rule", "limits", "algorithm"),
    [
        (
            ["--group", "age", "--goal", "equalized-odds 0.1"],
            "equalized_odds_difference(by=[sex, age]) <= limit",
            [0.4, 0.2, 0.15, 0.1, 0.05],
            "mixture",
        ),
        (
            ["--goal", "equal-opportunity <= 8%"],
            "equal_opportunity_difference(by=sex) <= limit",
            [0.32, 0.16, 0.12, 0.08, 0.04],
            "mixture",
        ),
        (
            ["--goal", "recall"],
            "min(recall, by=sex) >= limit",
            [0.2, 0.6, 0.7, 0.8, 0.9],
            "mixture",
        ),
        (
            ["--goal", "fpr 8%"],
            "max_gap(fpr, by=sex) <= limit",
            [0.32, 0.16, 0.12, 0.08, 0.04],
            "mixture",
        ),
        (["--score", "score"], "demographic_parity_ratio(by=sex) >= limit", None, "post_shift"),
    ],
)
@pytest.mark.usefixtures("table")
def test_goals_groups_and_scores(folder, cli, *, options, rule, limits, algorithm):
    answer = cli(*own("--positive", "yes", *options))
    assert answer.code == 0, answer.err
    experiment, _ = load_experiment(folder / "exp.yaml")
    assert list(experiment.constraints.values()) == [rule]
    if limits is not None:
        assert [point["limit"] for point in sweep_points(experiment.sweep, None)] == limits
    assert experiment.algorithms[-1].name == algorithm
    assert cli("validate", "exp.yaml").code == 0
    if "age" in options:
        assert experiment.bins == {"age": (30.0, 40.0, 49.0)}
        assert len(experiment.groups) == 8
        assert "sex_F__age_30_to_40" in experiment.groups
        side = "a value at a cut is in the group above it"
        assert f'groups   "age": cut at 30, 40, 49; {side}' in answer.out
        assert "8 combinations with at least 30 rows, the smallest sex = " in answer.out


def test_cuts_beyond_64_bits_can_be_read(folder, cli):
    rows = "".join(f"{k % 7},{k - 60}e306,{k % 2}\n" for k in range(120))
    (folder / "t.csv").write_text("z,x,y\n" + rows)
    answer = cli("init", "exp.yaml", "--data", "t.csv", "--label", "y", "--group", "x")
    assert answer.code == 0, answer.err
    experiment, _ = load_experiment(folder / "exp.yaml")
    assert max(experiment.bins["x"]) > 1e307


@pytest.mark.parametrize(
    ("options", "rules", "algorithm"),
    [
        (
            "--group sex --goal demographic-parity --goal recall=0.7",
            ["demographic_parity_ratio(by=sex) >= limit", "min(recall, by=sex) >= 0.7"],
            "mixture",
        ),
        ("--group sex --goal selection-rate=30%", ["selection_rate <= limit"], "post_shift"),
        (
            "--goal churn=0.1 --goal recall --deployed used",
            ["churn <= limit", "recall >= 0.8"],
            "mixture",
        ),
        (
            "--goal churn --score score --deployed used --deployed-positive yes",
            ["churn <= limit"],
            "post_shift",
        ),
    ],
)
def test_several_goals_and_those_of_all_rows(table, cli, options, rules, algorithm):
    place = table(lambda row: [*row, ("no", "yes")[row[4] > 6]], [*HEAD, "used"]).parent
    own = ("--data", "t.csv", "--label", "approved", "--positive", "yes", *options.split())
    answer = cli("init", "exp.yaml", *own)
    assert answer.code == 0, answer.err
    experiment, _ = load_experiment(place / "exp.yaml")
    assert [*experiment.constraints.values()] == rules
    assert experiment.algorithms[-1].name == algorithm
    assert answer.out.count("\ngoal     ") == len(rules)
    assert ("churn" in experiment.metrics) == ("--deployed" in options)
    assert ('left out "used"' in answer.out) == (
        "--deployed used" in options and "--score" not in options
    )
    deployed = experiment.deployed
    assert ("-positive" in options) == (deployed is not None and deployed.positive == "yes")


def test_a_goal_without_groups(folder, table, cli):
    arguments = ("--data", table(), "--label", "approved", "--positive", "yes")
    assert cli("init", "exp.yaml", *arguments, "--goal", "selection-rate 0.3").code == 0
    experiment, _ = load_experiment(folder / "exp.yaml")
    assert experiment.constraints == {"selection_rate": "selection_rate <= limit"}
    refused = cli("init", "other.yaml", *arguments, "--goal", "equalized-odds 0.1")
    assert (refused.code, "--group COLUMN" in refused.err) == (2, True)
    refused = cli("init", "other.yaml", *arguments[:2], "--label", "aproved")
    assert (refused.code, "did you mean 'approved'?" in refused.err) == (2, True)


@pytest.mark.usefixtures("folder")
def test_a_goal_for_each_of_many_groups(cli):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"x": rng.normal(size=2400), "country": [f"c{k % 40}" for k in range(2400)]}
    )
    rows.assign(y=(rows.x + rng.normal(size=2400) > 0).astype(int)).to_csv("rows.csv", index=False)
    request = ("--data", "rows.csv", "--label", "y", "--positive", "1", "--group", "country")
    answer = cli("init", "many.yaml", *request, "--goal", "recall 0.5")
    assert answer.code == 0
    assert "(60 rows), and 28 more\n" in answer.out


@pytest.mark.parametrize(
    ("change", "options", "fault"),
    [
        (None, [], ("E406", """--positive "yes\"""")),
        (None, ["--positive", "Yes"], ("E406", "did you mean 'yes'?")),
        (with_cell("approved", "maybe", 3), [], ("E406", "has 3 values, not two")),
        (with_cell("approved", "yes"), [], ("E406", "only one class")),
        (with_cell("approved", ""), [], ("E406", "is empty")),
        (with_cell("sex", "F"), ["--positive", "yes"], ("E411", "only one value")),
        (None, ["--positive", "yes", "--group", "id"], ("E411", "400 values")),
        (None, ["--group", "approved"], ("E411", "'approved' is the label")),
        (None, ["--positive", "yes", "--group", "Sex"], ("E205", "did you mean 'sex'?")),
        (None, ["--positive", "yes", "--goal", "equalised-odds"], ("E104", "'equalized-odds'?")),
        (None, ["--positive", "yes", *GOAL, "recall", *GOAL, "recall 1%"], ("E104", "given twice")),
        (None, ["--positive", "yes", "--goal", "recall 80"], ("E104", "between 0 and 1, not '80'")),
        (None, ["--positive", "yes", "--goal", "equalized-odds <= 5"], ("E104", "odds 0.05'")),
        (None, ["--positive", "yes", "--goal", "churn 5%"], ("E104", "--deployed COLUMN")),
        (None, ["--positive", "yes", "--deployed", "job title"], ("E406", "'a b' in the column")),
        (None, ["--positive", "yes", "--goal", "mse 8"], ("E104", "'mse' is not a goal here")),
        (None, ["--label", "aproved"], ("E205", "did you mean 'approved'?")),
        (with_cell("age", "inf", 5), ["--positive", "yes"], ("E407", "'age'")),
        (None, ["--separator", ";"], ("E205", "columns: id,sex")),
        (None, ["--decimal", ";"], ("E104", "cannot be the decimal sign")),
        (None, ["--separator", ";;"], ("E104", "cannot separate columns")),
        (None, ["--data", "nowhere.csv"], ("E405", "does not exist")),
    ],
)
def test_unclear_tables_are_errors(table, cli, change, options, fault):
    code, said = fault
    if change:
        table(change)
    answer = cli(*own(*options))
    assert answer.code in {2, 4}
    assert f"error[{code}]" in answer.err
    assert said in answer.err
    assert "wrote" not in answer.out


def test_missing_numbers_are_replaced_by_means(folder, table, cli):
    table(with_cell("age", "", 5))
    answer = cli(*own("--positive", "yes"))
    assert 'missing  "age" (80 rows): set to the mean, and marked by a feature' in answer.out
    written = load_experiment(folder / "exp.yaml")[0].datasets["table"]
    assert (written.drop, written.missing) == (("sex", "id"), "mean")
    assert cli("validate", "exp.yaml").code == 0
    table(lambda row: [*row[:3], row[3] if row[0] in {"p1", "p2"} else "", *row[4:]])
    answer = cli(*own("--positive", "yes", "--force"))
    assert 'left out "age": only 2 rows with a number' in answer.out
    assert load_experiment(folder / "exp.yaml")[0].datasets["table"].missing is None


def test_empty_text_is_a_category(folder, table, cli):
    table(with_cell("job title", "", 5))
    answer = cli(*own("--positive", "yes"))
    assert 'missing  "job title" (80 rows): a category of its own' in answer.out
    assert load_experiment(folder / "exp.yaml")[0].datasets["table"].missing is None


@pytest.mark.usefixtures("table")
def test_the_table_is_found_from_any_folder(folder, cli):
    (folder / "exp").mkdir()
    (folder / "data").mkdir()
    for path in ("exp.yaml", "exp/exp.yaml"):
        answer = cli("init", path, *own("--positive", "yes")[2:])
        assert answer.code == 0
        assert cli("validate", path).code == 0
    os.chdir(folder / "data")
    assert cli("validate", "../exp/exp.yaml").code == 0


@pytest.mark.parametrize(
    ("keys", "change"),
    [
        ({"separator": ";"}, {",": ";"}),
        ({"separator": "\t", "encoding": "utf-16"}, {",": "\t"}),
        ({"separator": "|", "decimal": ",", "encoding": "cp1252"}, {",": "|", ".": ",", "b": "ß"}),
        ({}, {}),
    ],
)
def test_the_format_of_a_table_is_recognized(folder, table, cli, keys, change):
    path = table()
    text = path.read_text().translate(str.maketrans(change))
    path.write_text(text, encoding=keys.get("encoding"))
    answer = cli(*own("--positive", "yes"))
    assert answer.code == 0
    assert answer.out.startswith("format   ") == bool(keys)
    written = load_experiment(folder / "exp.yaml")[0].datasets["table"].stated()
    formats = ("separator", "decimal", "thousands", "encoding")
    assert {key: written[key] for key in formats if key in written} == keys
    assert cli("validate", "exp.yaml").code == 0


@pytest.mark.parametrize(("mark", "key"), [(",", "thousands"), (";", "decimal")])
def test_a_sign_with_two_meanings_is_reported(folder, cli, mark, key):
    rows = [f'"{k % 7 + 1},{k:03}"{mark}{k % 2}{mark}{k % 3 > 0:d}\n' for k in range(300)]
    (folder / "t.csv").write_text(f"x{mark}g{mark}y\n" + "".join(rows))
    answer = cli("init", "--data", "t.csv", "--label", "y", "--group", "g")
    assert f'{key} ","' in answer.out
    other = {"decimal": "thousands", "thousands": "decimal"}[key]
    assert f'if they mean something else, set {other}: ","' in answer.out
    stated = cli("init", "-", "--data", "t.csv", "--label", "y", "--group", "g", f"--{other}", ",")
    assert f"{other}: ','" in stated.out


@pytest.mark.parametrize(
    ("change", "groups"),
    [
        (with_cell("job title", '"it\'s": #1, [x]', 2), ["it_s_1_x", "a_b", "c_d", "e"]),
        (lambda row: [*row[:2], ("a-b", "a b")[row[3] % 2], *row[3:]], ["a_b", "a_b__2"]),
        (lambda row: [*row[:2], row[3] % 2, *row[3:]], ["0", "1"]),
        (lambda row: [*row[:2], ("none", "n/a", "x")[row[3] % 3], *row[3:]], ["none", "x"]),
    ],
)
def test_names_of_groups(folder, table, cli, change, groups):
    table(change)
    answer = cli(*own("--positive", "yes", group="job title"))
    assert answer.code == 0, answer.err
    names = load_experiment(folder / "exp.yaml")[0].groups
    assert sorted(names) == sorted(f"job_title_{group}" for group in groups)
    assert cli("validate", "exp.yaml").code == 0


def number(row):
    return int(row[0][1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: [number(row) + 7, *row[1:]], 'left out "id": consecutive row numbers'),
        (lambda row: [number(row) * 7 % 400, *row[1:]], 'left out "id": a different number'),
        (
            lambda row: [*row[:3], number(row) * 7 % 401, *row[4:]],
            'left out "age": a different number in each row: probably a row ID',
        ),
        (lambda row: [f"{number(row) % 28 + 1}/06/1999", *row[1:]], 'left out "id": dates'),
        (
            lambda row: [("train", "test")[number(row) % 3 == 0], *row[1:]],
            'split    "id" says which rows to train and to test on',
        ),
        (lambda row: ["k", *row[1:]], 'left out "id": the same value in all rows'),
        (lambda row: ["NA", *row[1:]], 'left out "id": empty'),
        (with_cell("sex", "X", 20), "leaves out groups with fewer than 30 rows: sex = X (20)"),
        (with_cell("sex", "", 20), "20 rows without a value belong to no group"),
        (with_cell("approved", "", 20), "20 rows without a label"),
        (lambda row: [*row[:4], row[-1] == "yes", row[-1]], 'check    "score" alone predicts the'),
        (lambda row: [*row[:2], row[-1].upper(), *row[3:]], 'check    "job title" alone predicts'),
        (
            lambda row: [f"2024-{number(row) // 28 % 12 + 1}-{number(row) % 28 + 1}", *row[1:]],
            'left out "id": dates: to train on them, add a year or an age\n',
        ),
        (lambda row: [*row[:-1], int(row[-1] == "yes")], '"1" is positive, "0" is negative'),
        (lambda row: [*row[:-1], row[-1].replace("no", "none")], '"none" is negative'),
    ],
)
def test_notes_and_warnings_about_columns(table, cli, change, message):
    table(change)
    is_number = isinstance(change(next(rows()))[-1], int)
    answer = cli(*own(*([] if is_number else ["--positive", "yes"])))
    assert answer.code == 0
    assert message in answer.out + answer.err


def test_a_column_of_parts_is_the_split(folder, table, cli):
    table(lambda row: [("train", "test")[int(row[0][1:]) % 4 == 0], *row[1:]])
    assert cli(*own("--positive", "yes")).code == 0
    table_entry = load_experiment(folder / "exp.yaml")[0].datasets["table"]
    assert (table_entry.split.by, table_entry.drop) == ("id", ("sex",))
    answer = cli("run", "exp.yaml", "-j", 1, "--set", "seeds=2", "--set", "sweep.limit=[0.8]")
    assert SAME_TEST_SET in answer.out


OTHER = "x,when,year,delay,num,y,code\n" + "".join(
    f"{k % 13},2020-0{k % 9 + 1}-{k % 28 + 1:02d}T00:00:00+0{k % 3}:00,{1970 + k % 30},{(k % 40 - 20) / 10},"
    f"{k % 17},{k * 7 % 11 % 2},1.{k}.1\n"
    for k in range(400)
)
CLASSIFIERS = ("unconstrained", "mixture", "post_shift")


def test_the_split_by_dates_that_is_suggested(folder, table, cli):
    table(lambda row: [f"2024-{int(row[0][1:]) % 12 + 1:02}-28", *row[1:]])
    assert "`init --order id` tests on the newest" in cli(*own("--positive", "yes")).out
    said = cli(*own("--positive", "yes", "--order", "id", "--force")).out
    assert 'split    the third of rows with the largest "id" is for testing' in said
    entry = load_experiment(folder / "exp.yaml")[0].datasets["table"]
    assert (entry.split.order, entry.split.test, entry.drop) == ("id", "1/3", ("sex",))
    settings = ("--set", "seeds=2", "--set", "algorithms=[unconstrained]")
    assert SAME_TEST_SET in cli("run", "exp.yaml", "-j", 1, *settings).out


@pytest.mark.parametrize(
    ("options", "entries"),
    [
        (
            ["--label", "y", "--group", "x", "--model", "RandomForestClassifier"],
            [f"{{{name}: {{model: RandomForestClassifier}}}}" for name in CLASSIFIERS],
        ),
        (
            ["--label", "y", "--group", "x", "--model", "plugin"],
            ["{unconstrained: {loss: logistic}}", "{mixture: {model: plugin}}", "post_shift"],
        ),
        (
            ["--label", "y", "--goal", "recall", "--model", "GaussianNB"],
            ["{unconstrained: {model: GaussianNB}}", "{post_shift: {model: GaussianNB}}"],
        ),
        (
            ["--target", "num", "--goal", "mse 20", "--model", "Ridge"],
            ["{unconstrained: {model: Ridge}}", "{least_squares: {model: Ridge}}"],
        ),
    ],
)
def test_the_model_to_train(folder, cli, options, entries):
    (folder / "o.csv").write_text(OTHER)
    answer = cli("init", "exp.yaml", "--data", "o.csv", *options)
    assert answer.code == 0, answer.err
    text = (folder / "exp.yaml").read_text()
    found = re.findall(
        r"^  (?:# )?- (.+?)(?:  #.*)?$", text.partition("algorithms:")[2], re.MULTILINE
    )
    assert found[: len(entries)] == entries


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--label", "y", "--model", "lightgmb"], "E104]: there is no classifier 'lightgmb' that"),
        (["--target", "num", "--model", "Rigde"], "E104]: there is no regressor 'Rigde'"),
        (
            ["--label", "y", "--order", "part"],
            "E410]: column 'part' has 'p0' in row 1, not a number",
        ),
        (["--label", "y", "--order", "y"], "E411]: 'y' is the label"),
    ],
)
def test_one_error_of_a_model_or_an_order(folder, cli, listing, options, said):
    text = OTHER.replace("x,when", "x,part,when").replace(",2020", ",p0,2020")
    (folder / "o.csv").write_text(text)
    before = listing()
    answer = cli("init", "exp.yaml", "--data", "o.csv", "--group", "x", *options)
    assert answer.code in {2, 4}
    assert said in answer.err
    assert answer.err.count("error[") == 1
    assert listing() == before


def test_a_column_that_may_hold_weights_is_pointed_out(table, cli):
    table(head=[name.replace("score", "sample weight") for name in HEAD])
    answer = cli(*own("--positive", "yes"))
    assert (
        'check    "sample weight": if it weighs rows, add `weight: "sample weight"` to the data set\n'
        in answer.out
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--label", "y", "--goal", "recall 0.8"], 'left out "when": dates'),
        (["--label", "y", "--goal", "recall 0.8"], 'left out "code": 400 different texts'),
        (["--label", "y", "--group", "year"], 'groups   "year": cut at 1977, 1984, 1992'),
        (["--label", "y", "--group", "delay"], 'groups   "delay": cut at -1, -0.05, 0.93'),
        (["--target", "num", "--goal", "mse 1234567"], "groups, may be at most 1234567."),
        (["--target", "num", "--group", "y"], "features include the groups: add them to drop"),
        (
            ["--target", "num", "--goal", "mse 0.1"],
            "check    mse 0.1: the mse of the mean is 23.96, so this may be out of reach",
        ),
        (
            ["--target", "num", "--goal", "mse 24"],
            "check    mse 24: the mse of the mean is 23.96, so this may restrict no model",
        ),
        (
            ["--label", "y", "--group", "year", "--goal", "equal-opportunity 5%"],
            "positive rows, and the sampling error alone is about 0.1",
        ),
    ],
)
def test_columns_of_other_kinds(folder, cli, options, said):
    (folder / "o.csv").write_text(OTHER)
    answer = cli("init", "exp.yaml", "--data", "o.csv", *options)
    assert answer.code == 0, answer.err
    assert said in answer.out
    assert "delay_below_minus_1" in (folder / "exp.yaml").read_text() or "delay" not in options


def test_the_area_of_a_feature_alone_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    label = (rng.random(500) < 0.3).astype(float)
    scores = np.round(4 * label + rng.normal(size=500))  # with ties
    ((_, area),) = find_leaks(pd.DataFrame({"s": scores}), label)
    assert area == pytest.approx(roc_auc_score(label, scores))


def test_a_column_of_group_codes_is_a_category_where_it_is_a_feature(folder, cli):
    rows = (f"{k % 3 + 1},{k % 13},{k % 13 + 5 * (k % 3 == 1)}\n" for k in range(300))
    (folder / "o.csv").write_text("region,x,y\n" + "".join(rows))
    answer = cli("init", "exp.yaml", "--data", "o.csv", "--target", "y", "--group", "region")
    assert 'codes    "region": categories, not numbers' in answer.out
    assert load_experiment(folder / "exp.yaml")[0].datasets["table"].categorical == ("region",)
    assert cli("validate", "exp.yaml").code == 0
    assert cli("init", "two.yaml", "--data", "o.csv", "--target", "y", "--group", "x").code == 0
    assert load_experiment(folder / "two.yaml")[0].datasets["table"].categorical is None


@pytest.mark.parametrize(("regions", "shown"), [(4, 8), (5, 0)])
def test_the_table_of_results_has_the_rates_of_all_groups_or_of_none(folder, cli, regions, shown):
    rows = (f"{k // 20 % 2},r{k % regions},{k % 13},{k % 3 > 0:d}\n" for k in range(800))
    (folder / "o.csv").write_text("sex,region,x,y\n" + "".join(rows))
    options = ("--data", "o.csv", "--label", "y", "--group", "sex", "--group", "region")
    assert cli("init", "exp.yaml", *options).code == 0
    experiment, _ = load_experiment(folder / "exp.yaml")
    (table,) = experiment.report.tables
    assert len(experiment.groups) == 2 * regions
    assert sum(name.startswith("selection_rate_") for name in table.columns) == shown


def test_a_table_whose_columns_are_all_used(folder, cli):
    (folder / "o.csv").write_text("x,y\n" + "".join(f"{k % 13},{k % 2}\n" for k in range(200)))
    assert cli("init", "exp.yaml", "--data", "o.csv", "--label", "y", "--goal", "recall").code == 0
    assert load_experiment(folder / "exp.yaml")[0].datasets["table"].drop is None


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([f"{k},5" for k in range(100)], "numbers with other signs than in other columns"),
        ([f"c{k}" for k in range(100)], "100 different texts: probably a row ID"),
        (
            [*map(str, range(99)), "unknown"],
            'numbers, except for "unknown": leave such cells empty',
        ),
        ([f"{k}_000" for k in range(100)], "100 different texts: probably a row ID"),
        ([f"c{k % 90}" for k in range(100)], "90 different texts, too many for categories"),
    ],
)
def test_why_a_text_is_left_out(folder, cli, values, reason):
    rows = [f"{k % 13}.5;{value};{k % 2};{'ab'[k % 3 > 0]}" for k, value in enumerate(values)]
    (folder / "t.csv").write_text("\n".join(["x;word;y;g", *rows]) + "\n", encoding="utf-8")
    answer = cli("init", "--data", "t.csv", "--separator", ";", "--label", "y", "--group", "g")
    assert f'left out "word": {reason}' in answer.out
