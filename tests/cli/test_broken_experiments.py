"""Broken files through the command line: code, line, column, exit code, and nothing written."""

import re

import pytest
from broken_files import BROKEN, HALVES, HEAD, LOANS, MODELS, PLAIN, TABLES, Broken
from entries import generate_loans
from marked import marked

from ratecli.models.storage import dumps

SHOWN = re.compile(r"^error\[(E\d{3})\]: .+\n +--> (.+):(\d+):(\d+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def stored_models():
    return {name: dumps(model) for name, model in MODELS.items()}


@pytest.fixture(autouse=True)
def tables(folder, stored_models):
    for name, text in TABLES.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, model in stored_models.items():
        (folder / name).write_bytes(model)


def shown(err):
    return [
        (code, file, (int(line), int(column))) for code, file, line, column in SHOWN.findall(err)
    ]


FIRST_OF_EACH_CODE = {broken.code: broken for broken in reversed(BROKEN)}.values()


@pytest.mark.parametrize(
    ("command", "broken"),
    [("validate", each) for each in BROKEN] + [("run", each) for each in FIRST_OF_EACH_CODE],
    ids=lambda part: part if isinstance(part, str) else part.what,
)
def test_a_broken_file(folder, cli, listing, command, broken: Broken):
    text, places = marked(broken.text)
    (folder / "exp.yaml").write_text(text, encoding="utf-8")
    before = listing()
    answer = cli(command, "exp.yaml")
    assert shown(answer.err) == [(broken.code, "exp.yaml", place) for place in places]
    assert answer.err.count("error[") == len(places) == 1
    assert answer.code == (4 if broken.code.startswith("E4") else 2)
    assert "Traceback" not in answer.err + answer.out
    assert listing() == before


def test_all_errors_of_all_files_are_reported(folder, cli):
    one, first = marked(HEAD + "seeds: ⟦many⟧\n⟦sedes⟧: 1\n")
    (folder / "one.yaml").write_text(one)
    two, second = marked(PLAIN + "objective: ⟦eror⟧\nmetrics: {a: 2 * ⟦wims⟧, b: ⟦recal⟧}\n")
    (folder / "two.yaml").write_text(two)
    answer = cli("run", "two.yaml", "one.yaml")
    codes = ["E103", "E101", "E203", "E203", "E203"]
    files = ["one.yaml"] * 2 + ["two.yaml"] * 3
    assert shown(answer.err) == list(zip(codes, files, first + second, strict=True))
    assert answer.code == 2


@pytest.mark.parametrize("entries", ["[⟦nowhere⟧]", "[unconstrained]"])
def test_texts_that_no_trial_uses_are_checked(folder, cli, entries):
    text = HALVES.replace("[a, b]", "[a]").replace("[unconstrained]", entries)
    text = text.replace("{error: error}", "{half: 2 ⟦*⟧}") if "⟦" in entries else text
    text += "groups: {old: {a: sex = Male, b: sex ⟦=⟧}}\n"
    text, places = marked(text)
    (folder / "exp.yaml").write_text(text)
    assert [place for *_, place in shown(cli("validate", "exp.yaml").err)] == places


def test_a_metric_may_name_a_split_that_some_data_sets_have(folder, cli):
    (folder / "exp.yaml").write_text(HALVES.replace("error: error", "a: error@validation"))
    answer = cli("validate", "exp.yaml")
    assert answer.code == 0, answer.err
    answer = cli("validate", "exp.yaml", "--set", "sweep.dataset=[b]")
    assert [code for code, *_ in shown(answer.err)] == ["E208"]


@pytest.mark.parametrize(("name", "content"), [("missing.yaml", None), ("exp.yaml", b"\xff\xfe")])
def test_a_file_that_cannot_be_read(folder, cli, listing, name, content):
    if content is not None:
        (folder / name).write_bytes(content)
    before = listing()
    answer = cli("run", name)
    assert (answer.code, answer.err[:13]) == (2, "error[E005]: ")
    assert listing() == before


@pytest.mark.parametrize(("source", "code"), [("adult", "E401"), ("compas", "E403")])
def test_missing_and_changed_data(folder, cli, listing, source, code):
    (folder / "data" / "compas").mkdir(parents=True)
    (folder / "data" / "compas" / "compas-scores-two-years.csv").write_text("id,sex\n1,Male\n")
    text, places = marked(PLAIN.replace("loans, rows: 200", f"⟦{source}⟧"))
    (folder / "exp.yaml").write_text(text)
    before = listing()
    for command in ("run --offline", "validate", "plan")[: 3 if code == "E403" else 1]:
        answer = cli(*command.split(), "exp.yaml")
        assert shown(answer.err) == [(code, "exp.yaml", places[0])]
        assert answer.code == 4
    assert listing() == before


def warned(err):
    found = re.findall(r"warning\[(W\d+)\]: (.*)\n.*exp.yaml:(\d+):(\d+)", err)
    return [(code, message, (int(line), int(column))) for code, message, line, column in found]


def test_warnings_of_small_groups_and_of_rules_that_always_hold(folder, cli):
    rows = [
        f"{part},{who},{k % 2}\n"
        for part, who, count in (("train", "a", 40), ("train", "b", 60), ("test", "b", 60))
        for k in range(count)
    ]
    (folder / "own.csv").write_text("part,who,y\n" + "".join(rows) + "test,c,1\n")
    text, places = marked(
        "name: x\n"
        "datasets: {d: {path: own.csv, label: y, split: {by: part}}}\n"
        "groups: {rare: ⟦who = a⟧, one: ⟦who = c⟧, common: who = b}\n"
        "sweep: {k: [0.5, 1.5]}\n"
        "constraints: {a: ⟦positive_rate <= k⟧, b: ⟦positive_rate >= 0.7⟧}\n"
        "algorithms: [unconstrained]\n"
    )
    (folder / "exp.yaml").write_text(text)
    answer = cli("validate", "exp.yaml")
    found = warned(answer.err)
    assert [(code, place) for code, _, place in found] == list(
        zip(["W401", "W401", "W305", "W305"], places, strict=True)
    )
    assert "'rare' has few rows (0 test)" in found[0][1]
    assert "'one' has few rows (0 train, 1 test)" in found[1][1]
    assert answer.code == 0


def test_empty_fields_of_a_column_in_conditions_are_counted_once(folder, cli):
    rows = [f"{who},{k % 2}\n" for who in ("a", "b", "") for k in range(100)]
    (folder / "own.csv").write_text("who,y\n" + "".join(rows))
    text, places = marked(
        "name: x\n"
        "datasets: {d: {path: own.csv, label: y}}\n"
        "constraints: {a: '⟦positive_rate[who != a]⟧ <= 0.7'}\n"
        "metrics: {b: 'positive_rate[not who = b]', c: 'max_gap(tpr, by=who)'}\n"
        "algorithms: [unconstrained]\n"
    )
    (folder / "exp.yaml").write_text(text)
    ((code, message, place),) = warned(cli("validate", "exp.yaml").err)
    assert (code, place) == ("W401", places[0])
    assert message.startswith(
        "'who' is empty in 100 of 300 rows: they are in no group of it, and no comparison"
    )


@pytest.mark.parametrize(
    ("algorithm", "holds", "warns"),
    [
        ("thresholded", "new_rows", True),
        ("thresholded", "validation", True),
        ("thresholded", "train", False),
        ("{thresholded: {holds: train}}", "new_rows", False),
        ("post_shift", "new_rows", False),
    ],
)
def test_an_algorithm_that_ignores_holds_is_warned_of(folder, cli, algorithm, holds, warns):
    text = f"{LOANS.replace('200', '200, split: {validation: 0.2}')}constraints: {{a: tpr >= 0.5}}\nholds: {holds}\nalgorithms: [{algorithm}]\n"
    (folder / "exp.yaml").write_text(text)
    assert [code for code, *_ in warned(cli("validate", "exp.yaml").err)] == ["W402"] * warns


PLOT = "report: {plots: [{kind: tradeoff, x: objective, y: error, variants: [⟦stochastc⟧]}]}\n"
EXPECT = "expect: [{algorithm: unconstrained, variant: ⟦stochastic⟧, metric: error, at_most: 1}]\n"


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        (PLOT, "no trial returned a variant 'stochastc'", "deterministic, voted"),
        (EXPECT, "no trial of 'unconstrained' returned a variant 'stochastic'", "deterministic"),
    ],
)
def test_a_missing_variant_is_a_warning_after_each_run(folder, cli, more, message, hint):
    text, places = marked(
        LOANS + f"algorithms: [unconstrained, mixture: {{calls: 2, variants: [voted]}}]\n{more}"
    )
    (folder / "exp.yaml").write_text(text)
    for _ in range(2):
        answer = cli("run", "exp.yaml", "-q", "-j", 1)
        assert ("W208", message, places[0]) in warned(answer.err)
        assert f"variants: {hint}\n" in answer.err
        assert answer.code == 0
    page = (folder / "results" / "x" / "report.html").read_text()
    assert message.replace("'", "&#39;") in page


@pytest.mark.parametrize(
    ("more", "x", "codes"),
    [
        ("", "ratio", []),
        ("", "objective", ["W306"]),
        (", e: {source: loans, rows: 200, preparation: unlabelled, seed: 1}", "ratio", []),
        (", e: {source: loans, rows: 500, preparation: egregious}", "ratio", ["W306"]),
        (", e: {path: loans.csv, label: repaid, positive: 'yes'}", "ratio", ["W306"]),
    ],
)
def test_an_unknown_optimum_is_a_warning(folder, cli, more, x, codes):
    generate_loans(200, 9).frame.to_csv("loans.csv", index=False)
    text, places = marked(
        f"name: x\ndatasets: {{d: {{source: loans, rows: 400}}{more}}}\n"
        "algorithms: [unconstrained]\ngroups: {women: sex = Female, men: sex = Male}\n"
        "metrics: {ratio: 'positive_rate[women] / positive_rate[men]', error: error}\n"
        f"report: {{plots: [{{kind: tradeoff, x: {x}, y: error, optimum: ⟦true⟧}}]}}\n"
    )
    (folder / "exp.yaml").write_text(text)
    answer = cli("validate", "exp.yaml")
    message = f"no data set here has a known optimum of 'error' for each '{x}'"
    assert warned(answer.err) == [(code, message, places[0]) for code in codes]
    assert answer.code == 0
