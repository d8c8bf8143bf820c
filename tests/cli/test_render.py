import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratecli.errors import Diagnostic, SourceLocation
from ratecli.render import diagnostics_to_github, diagnostics_to_json, render_diagnostics

RULE = "  b: tpr[sex=female] >= 0.8 * tpr"
GAP = "  d: max_gap(precision, by=sex) <= 0.05"
E206 = Diagnostic(
    "E206",
    "'female' is not a value of 'sex'",
    "did you mean 'Female'? values: Male, Female",
    place=SourceLocation("exp.yaml", 6, 14, 6, RULE),
)
E308 = Diagnostic(
    "E308", "it compares two ratios", place=SourceLocation("exp.yaml", 123, 6, 34, GAP)
)
GOLDEN = """\
error[E206]: 'female' is not a value of 'sex'
  --> exp.yaml:6:14
   |
 6 |   b: tpr[sex=female] >= 0.8 * tpr
   |              ^^^^^^
   = help: did you mean 'Female'? values: Male, Female

error[E308]: it compares two ratios
    --> exp.yaml:123:6
     |
 123 |   d: max_gap(precision, by=sex) <= 0.05
     |      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"""


def fault_at(excerpt, column, width):
    return Diagnostic("E101", "wrong", place=SourceLocation("f.yaml", 3, column, width, excerpt))


def columns(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def marked_columns(text):
    """First and last terminal column of the carets, and the line above them."""
    *_, shown, carets = text.splitlines()
    return shown, carets.index("^"), carets.rindex("^") + 1


@pytest.mark.parametrize(
    ("faults", "text"),
    [
        ([E206, E308], GOLDEN),
        ([Diagnostic("W401", "group 'men' has 12 rows")], "warning[W401]: group 'men' has 12 rows"),
        ([Diagnostic("E402", "none", "try again")], "error[E402]: none\n   = help: try again"),
    ],
)
def test_text(faults, text):
    assert render_diagnostics(faults, color=False, width=100) == text


def test_colours_do_not_change_the_text():
    painted = render_diagnostics([E206, E308], color=True, width=100)
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == GOLDEN
    assert "\x1b[1;31merror[E206]\x1b[0m" in painted


@pytest.mark.parametrize(
    ("excerpt", "word"),
    [
        ("\ta:\tword # x", "word"),
        ("名前: 男女 word", "word"),
        ("a: [名前, x]", "名前"),
        ("e\u0301te\u0301: word", "word"),
        ("\u200bword", "word"),
        ("x" * 500 + "word" + "y" * 500, "word"),  # is cut around the word
    ],
    ids=["tabs", "wide before", "wide word", "accents", "no width", "long line"],
)
def test_carets_are_under_their_word(excerpt, word):
    fault = fault_at(excerpt, excerpt.index(word) + 1, len(word))
    shown, start, end = marked_columns(render_diagnostics([fault], color=False, width=80))
    plain = shown.replace("\u0301", "")
    before = plain.index(word)
    assert start == columns(plain[:before])
    assert end - start == columns(word)
    if len(excerpt) > 80:
        assert (len(shown), shown[:8], shown[-4:]) == (80, " 3 | ...", "y...")


def test_a_caret_after_the_line():
    text = render_diagnostics([fault_at("a: tpr[", 8, 1)], color=False, width=80)
    shown, start, _ = marked_columns(text)
    assert start == len(shown)


LINES = st.text("ab\tあ\u0301 ", max_size=200)


@given(LINES, st.integers(0, 220), st.integers(1, 250), st.integers(1, 90))
def test_any_span_of_any_line_fits(excerpt, start, length, width):
    fault = fault_at(excerpt, min(start, len(excerpt)) + 1, length)
    shown, first, last = marked_columns(render_diagnostics([fault], color=False, width=width))
    room = max(width, 25)
    assert columns(shown.replace("\u0301", "")) <= room
    assert 5 <= first < last <= room + 1


def test_control_characters_do_not_reach_the_terminal():
    place = SourceLocation("a\x1b.yaml", 1, 1, 1, "\x1b[2J\r")
    fault = Diagnostic("E104", "bad \x1b[31m\nvalue", "do \x07not", place=place)
    text = render_diagnostics([fault], color=False, width=80)
    assert not set(text) & {"\x1b", "\x07", "\r"}
    assert text.startswith("error[E104]: bad \ufffd[31m value\n")


def test_json():
    assert json.loads(diagnostics_to_json([E206, Diagnostic("W401", "few")])) == [
        {"code": "E206", "severity": "error", "message": E206.message, "help": E206.help,
         "file": "exp.yaml", "line": 6, "column": 14, "end_column": 20},
        {"code": "W401", "severity": "warning", "message": "few", "help": None}
        | dict.fromkeys(("file", "line", "column", "end_column")),
    ]  # fmt: skip


def test_github_annotations_are_escaped():
    place = SourceLocation("a,b:c%.yaml", 2, 3, 1, "")
    fault = Diagnostic("E104", "80% is\r\nwrong: a,b", "say 0.8", place=place)
    first, second = diagnostics_to_github([fault, Diagnostic("W401", "few")]).splitlines()
    command, message = first.split("::")[1:]
    assert command == "error file=a%2Cb%3Ac%25.yaml,line=2,endLine=2,col=3,endColumn=4,title=E104"
    assert message == "80%25 is wrong: a,b%0Ahelp: say 0.8"
    assert second == "::warning title=W401::few"
