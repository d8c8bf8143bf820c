from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from synthetic_ledger import HOSTILE, planned

from ratecli.report.html import goals, notices, page, sort_key
from ratecli.report.ledger import Ledger
from ratecli.report.sheet import Cell

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Reader(HTMLParser):
    """Checks nesting and gathers what a browser would act on."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
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
def text(example, drawn) -> str:
    return page(example, drawn)


@pytest.fixture(scope="module")
def read(text) -> Reader:
    return Reader(text)


def test_every_element_is_closed(read):
    assert read.open == []
    assert read.tags["svg"] == 2


def test_ids_are_unique_and_references_meet_one(text, read):
    ids = read.values("id")
    assert len(ids) == len(set(ids)) > 100
    references = {value[1:] for value in read.values("href", "xlink:href") if value.startswith("#")}
    references |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert references <= set(ids)


def test_nothing_is_asked_of_the_network(text, read):
    addresses = set(re.findall(r"https?://[^\"\s<]+", text))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert all(
        value.startswith(("#", "data:")) for value in read.values("href", "src", "xlink:href")
    )
    assert "@import" not in text


def test_what_users_write_is_text(text, read):
    assert HOSTILE not in text
    assert "&lt;script&gt;alert" in text
    assert "<b>division" not in text
    assert read.tags["script"] == 1


@pytest.mark.parametrize("where", ["name", "label", "constraint", "dataset", "reason", "manifest"])
def test_no_field_can_inject(example, where):
    evil = '"><img src=x onerror=alert(1)><!--'
    experiment, meta, plan, results = (
        dict(example.experiment),
        dict(example.meta),
        example.plan,
        example.results,
    )
    experiment["report"] = {}
    if where == "name":
        experiment["name"] = evil
    elif where == "constraint":
        experiment["constraints"] = {evil: evil}
    elif where == "dataset":
        meta["datasets"] = {evil: {"rows": evil}}
    elif where == "manifest":
        meta["manifest"] = {evil: [{evil: evil}]}
    elif where == "label":
        plan = [replace(trial, label=evil) for trial in plan]
    else:
        results = {key: replace(result, reason=evil) for key, result in results.items()}
    found = page(Ledger(plan, results, {**meta, "experiment": experiment}), [])
    assert "<img" not in found
    assert "&lt;img" in found
    assert Reader(found).open == []


def test_the_summary_comes_first(text):
    heads = re.findall(r"<h2>(.*?)</h2>", text)
    assert heads == [
        "What was asked", "What came out", "Plots", "Tables", "Why no solution was found",
        "Trials that did not finish", "Warnings", "Provenance",
    ]  # fmt: skip
    assert "✗ 28 of 29" in text
    assert "0a0a0a" in text


def test_an_empty_run_still_has_a_page():
    found = page(Ledger([planned("a", 0)], {}, {"experiment": {"name": "none"}}), [])
    assert Reader(found).open == []
    assert "not_run 1" in found


def test_goals_carry_their_class(example):
    assert [(name, kind) for name, _, kind in goals(example)] == [
        ("objective", "affine"),
        ("parity", "affine"),
    ]


def test_a_warning_of_many_trials_is_said_once(example):
    assert notices(example) == [
        ("W401: group 'women' of 'loans' has 12 rows", 0),
        ("W402: parity holds on train, not on test", 55 - 1),
    ]


def test_sort_keys_are_what_the_script_reads():
    assert sort_key(Cell("0.10 ± 0.2", 0.1)) == "0.1"
    assert sort_key(Cell("-inf", float("-inf"))) == "-Infinity"
    assert sort_key(Cell("ok 5")) == "ok 5"
