"""Every code that ratecli can say is provoked by some test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ratecli.errors import CODES, FAMILIES

TESTS = Path(__file__).parents[1]
CODE = re.compile(r"\b[EW]\d{3}\b")
ONLY_SHOWN = ("test_render.py", "test_progress.py", "synthetic_ledger.py")
"""These take codes as examples of text."""


def codes_in(folder, without=()):
    files = (path for path in folder.rglob("*.py") if path.name not in without)
    return {code for path in files for code in CODE.findall(path.read_text("utf-8"))}


def test_every_code_has_a_test():
    known = codes_in(TESTS.parent / "ratecli", ["errors.py"])
    assert len(known) > 40
    assert known - codes_in(TESTS, ONLY_SHOWN) == set()


def test_the_list_of_codes_is_that_of_the_sources():
    assert set(CODES) == codes_in(TESTS.parent / "ratecli", ["errors.py"])


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_a_code_is_told_in_whole_sentences(code):
    assert code.means.endswith(".")
    assert code.help.endswith(".")
    assert code.code[:2] in FAMILIES
    assert (code.exit_code == 0) == code.code.startswith("W")


def test_show_tells_of_a_code(cli):
    answer = cli("show", "e405")
    assert answer.code == 0
    assert "exit code:     4" in answer.out
    assert CODES["E405"].help in answer.out
