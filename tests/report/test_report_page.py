"""The page of a report, and the page over several experiments."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import pytest
import synthetic_ledger
from synthetic_ledger import planned, texts

from ratecli.ledger.view import Ledger
from ratecli.report import html
from ratecli.report.answer_text import best_sheet
from ratecli.report.comparison import Comparison
from ratecli.report.plots import draw_plots
from ratecli.report.sheet import Sheet, SheetCell
from ratecli.report.templates import render_template
from ratecli.report.write import with_manifest

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Reader(HTMLParser):
    """Checks nesting, and collects tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def values(self, *names: str) -> list[str]:
        return [value for _, name, value in self.attributes if name in names]


@pytest.fixture(scope="module")
def text(example, images) -> str:
    return html.render_report(example, images)


@pytest.fixture(scope="module")
def read(text) -> Reader:
    return Reader(text)


def test_ids_are_unique_and_references_exist(text, read):
    assert read.tags["svg"] == 2
    ids = read.values("id")
    assert len(ids) == len(set(ids)) > 50
    references = {value[1:] for value in read.values("href", "xlink:href") if value.startswith("#")}
    references |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert references <= set(ids)


def test_the_page_makes_no_network_requests(text, read):
    assert "//" not in re.sub(r"^ *// .*$", "", text, flags=re.MULTILINE).replace("/*", "")
    links = {value for tag, name, value in read.attributes if name == "href" and tag == "a"}
    assert {link for link in links if not link.startswith("#")} == {
        "metrics.csv", "summary.csv",
        "figures/tradeoff-ratio-error.svg", "figures/tradeoff-ratio-error-2.svg",
    }  # fmt: skip
    others = [v for tag, name, v in read.attributes if name in {"href", "src"} and tag != "a"]
    assert all(value.startswith(("#", "data:")) for value in others)
    assert "@import" not in text
    (policy,) = [v for _, name, v in read.attributes if name == "content" and "default-src" in v]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src ")
    assert "http" not in policy


def contrast(one: str, other: str) -> float:
    """Return the ratio of the luminances of two colours like #15181b, as WCAG 2 defines it."""
    parts = [[int(each[k : k + 2], 16) / 255 for k in (1, 3, 5)] for each in (one, other)]
    light = [
        [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in p] for p in parts
    ]
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in light)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", ["page.css", "dark.css"])
def test_text_has_enough_contrast(name):
    text = resources.files("ratecli.report.page").joinpath(name).read_text("utf-8")
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})\b", text))
    for ground in ("paper", "card"):
        for word in ("ink", "soft", "good", "part", "bad", "accent"):
            assert contrast(colours[word], colours[ground]) >= 4.5, (word, ground)


def test_no_field_can_inject(example):
    evil = '"><img src=x onerror=alert(1)><!--'
    point = {evil: evil}
    plan = [replace(each, label=evil, point=each.point | point) for each in example.plan]
    results = {
        key: replace(each, reason=evil, values=[replace(v, variant=evil) for v in each.values])
        for key, each in example.results.items()
    }
    plot = {"kind": "tradeoff", "x": "ratio", "y": "error", "title": evil}
    experiment = {
        "name": evil,
        "description": evil,
        "constraints": {evil: f"tpr[sex = '{evil}'] >= 0.1"},
    }
    experiment |= {"report": {"plots": [plot]}}
    meta = {
        "experiment": example.experiment | experiment,
        "datasets": {evil: {"rows": evil}},
        "manifest": {evil: [{evil: evil}]},
    }
    ledger = Ledger(plan, results, example.meta | meta)
    found = html.render_report(ledger, draw_plots(ledger))
    assert "<img" not in found
    assert "innerHTML" not in found, "the script writes names as text"
    assert found.count("&lt;img") > 9
    Reader(found)


def test_the_answer_comes_first_and_details_are_folded(text):
    heads = re.findall(r"<h[23]>(.*?)</h[23]>", text)
    assert heads == [
        "Answer", "Rates by group (test)", "Plots", "Warnings",  # the rest is folded
        "Setup", "Tables", "Table 1 (test)", "errors (train)",
        "Violations", "Satisfied constraints", "Constraints at each sweep point",
        "Trials", "How trials ended", "Unsolved and unfinished trials",
        "Provenance", "Data", "Versions", "Run", "Experiment with all defaults",
    ]  # fmt: skip
    assert text.count("<details id=") == 5
    assert text.index("confirmed to hold on new rows at 6 of 6") < text.index("<table>")
    assert "✗ 28 of 29" in text
    assert text.count('<span class="kind">affine</span>') == 2
    assert "0a0a0a" in text


VIOLATED = (
    "W402: 'three_player' violates 'parity' on the test set in 1 of 24 trials that "
    "satisfy it on the training set, by 0.000433 on average"
)


def test_a_warning_of_many_trials_is_listed_once(example):
    assert html.collect_warnings(example) == [
        ("W401: group 'women' of 'loans' has 12 rows", 0, []),
        (VIOLATED, 0, []),
        ("W402: parity holds on train, not on test", 55 - 1, []),
    ]


def test_warnings_that_differ_in_numbers_and_names_are_merged(example):
    alike = [f"W401: group '{name}' of 'loans' has {n} rows" for n, name in enumerate("abc")]
    ledger = replace(example, meta={**example.meta, "warnings": ["W9: other", *alike]})
    found = html.collect_warnings(ledger)
    assert found[:2] == [("W9: other", 0, []), (alike[0], 0, alike[1:])]
    assert "<summary>2 more like this</summary>" in html.render_report(ledger, [])


def test_a_part_of_a_run_says_so_first(example):
    results = dict(list(example.results.items())[:3])
    page = html.render_report(Ledger(example.plan, results, example.meta), [])
    notice = '<p class="notice part">Results of an unfinished run: 3 of 90 planned trials have run.'
    assert page.index(notice) < page.index("<h1>")


@pytest.mark.parametrize(
    ("cell", "attributes"),
    [
        (SheetCell("0.10 ± 0.2", 0.1), ' class="number" data-sort="0.1"'),
        (SheetCell("-inf", -math.inf, "bad"), ' class="number bad" data-sort="-Infinity"'),
        (SheetCell("-"), ' class="number"'),
        (SheetCell("a" * 49), ' class="number long"'),
    ],
)
def test_cells_have_sort_keys_and_classes(cell, attributes):
    sheet = Sheet("x", ("x",), ((cell,), (SheetCell("1", 1.0),)))
    none = {"plots": [], "drawn": [], "outcome": [], "verdicts": []}
    page = render_template(
        "joined.html.j2", experiments=sheet, methods=Comparison.of({}, {}), **none
    )
    assert f"<tr><td{attributes}>{cell.text}</td>" in page


def test_the_traceback_of_a_failed_trial_is_below_its_reason(example):
    stack = "Traceback (most recent call last):\n  <i>"
    results = {
        key: replace(each, info={"traceback": stack}) if each.status == "error" else each
        for key, each in example.results.items()
    }
    found = html.render_report(Ledger(example.plan, results, example.meta), [])
    assert found.count("<details><summary>more</summary><pre>Traceback (most") == 1
    assert "  &lt;i&gt;</pre></details>" in found


def test_a_long_table_is_truncated():
    plan = [planned("a", 0, kappa=k) for k in range(500)]
    found = html.render_report(Ledger(plan, {}, {"experiment": {"name": "many"}}), [])
    assert 'The first 400 of 500 rows; all are in <a href="summary.csv">' in found
    assert found.count("<tr>") < 500
    assert "not_run 500" in found
    Reader(found)


def test_the_manifest_is_shown_without_repetitions(example, tmp_path):
    (tmp_path / "manifest.json").write_text(
        '{"command": ["ratecli"], "versions": {"pandas": "3"}, "data": {"x": 1}, "python": "3.13"}'
    )
    ledger = with_manifest(example, tmp_path)
    found = dict(html.provenance(ledger))
    assert found["Run"] == "command:\n- ratecli\npython: '3.13'\n"
    assert found["Versions"] == "ratecli: 0.1.0\nnumpy: 2.4.6\npandas: '3'\n"
    assert f"digest: sha256:{'0a' * 32}\n" in found["Data"]
    for broken in ("{", "[]", '{"versions": true}', '{"command": 5}', '{"started": []}'):
        (tmp_path / "manifest.json").write_text(broken)
        assert with_manifest(example, tmp_path) is example


WHO = {"algorithm": "majorize", "variant": "stochastic", "metric": "error"}
EXPECT = [
    WHO | {"kappa": 0.5, "paper": 0.5},
    WHO | {"kappa": 0.6, "paper": 0.12, "within": 0.1, "source": "Table 2"},
    WHO | {"kappa": 0.7, "metric": "objective", "paper": 0.4, "within": 0.01},
    WHO | {"kappa": 0.8, "paper": 0.9, "within": "1%"},
    WHO | {"kappa": 0.9, "split": "validation", "paper": 0.1, "within": 0.1},
    WHO | {"kappa": 1.0, "at_least": 0.1},
]


def stored(folder, name, **more) -> Ledger:
    known = synthetic_ledger.example()
    found = replace(known, meta={"experiment": {**known.experiment, "name": name, **more}})
    folder.mkdir(parents=True)
    synthetic_ledger.store(folder, found, found.plan)
    return found


def table_rows(page: str, title: str) -> list[list[str]]:
    """The texts of a table's rows."""
    (body,) = re.findall(rf">{title}</h2>.*?<tbody>(.*?)</tbody>", page, re.DOTALL)
    return [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", row)]
        for row in body.split("<tr")[1:]
    ]


def test_each_row_links_to_the_experiments_report(tmp_path):
    for name in ("a b", "c"):
        stored(tmp_path / "deep" / name, name)
    (tmp_path / "deep" / "a b" / "report.html").write_text("")
    (tmp_path / "deep" / "a b" / "figures").mkdir()
    (tmp_path / "deep" / "a b" / "figures" / "tradeoff-ratio-error.svg").write_text("<svg/>")
    folders = [tmp_path / "deep" / name for name in ("a b", "c", "never", "c")]
    place = html.write_joined(folders, tmp_path / "pages" / "all.html")
    page = place.read_text("utf-8")
    assert re.findall(r'<a href="([^"]*)">', page) == ["../deep/a%20b/report.html"] * 2
    assert re.findall(r"image/svg\+xml;base64,([^\"]*)", page) == ["PHN2Zy8+"]
    rows = table_rows(page, "Experiments")
    assert [row[0] for row in rows] == ["a b", "c", "never"]
    assert rows[-1] == ["never", "", "not_run", *[""] * 5]
    assert "<h1>3 experiments</h1>" in page
    assert rows[0][1] == "parity"
    assert rows[0][2].startswith(
        "a model is expected or confirmed to hold on new rows at 6 of 6 values of kappa; "
    )
    assert rows[0][-1] == "ok 54, not_met 30, no_solution_found 5, error 1"


def test_a_row_has_the_goal_its_best_model_and_what_it_costs(tmp_path):
    ledger = stored(tmp_path / "a", "a", goal={"kappa": 0.8})
    page = html.write_joined([tmp_path / "a"], tmp_path / "report.html").read_text("utf-8")
    (row,) = table_rows(page, "Experiments")
    (best,) = [each for each in texts(best_sheet(ledger)) if each[0] == "0.8"]
    _, model, error, cost, expected, confirmed, _ = best
    assert row[1:7] == ["parity, kappa = 0.8", model, f"error {error}", cost, expected, confirmed]


def test_an_unreadable_ledger_is_named_beside_the_others(tmp_path):
    stored(tmp_path / "a", "a", expect=EXPECT)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "trials.sqlite").write_bytes(b"not a database" * 100)
    place = html.write_joined([tmp_path / n for n in "bac"], tmp_path / "report.html")
    page = place.read_text("utf-8")
    rows = table_rows(page, "Experiments")
    assert [row[0] for row in rows] == ["b", "a", "c"]
    fault = (
        f"cannot be read: E502: &#39;{tmp_path}/b/trials.sqlite&#39; is not a ledger of ratecli."
    )
    assert rows[0][2].startswith(fault)
    assert rows[2][2] == "not_run"
    told = "error 1; expected numbers: differs 1; expected numbers: not measured 1"
    assert rows[1][-1].endswith(told)
