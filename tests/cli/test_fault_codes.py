"""Every code that ratecli can say is provoked by some test."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
CODE = re.compile(r"\b[EW]\d{3}\b")
ONLY_SHOWN = ("test_render.py", "test_progress.py", "synthetic_ledger.py")
"""These take codes as examples of text."""


def codes_in(folder, without=()):
    files = (path for path in folder.rglob("*.py") if path.name not in without)
    return {code for path in files for code in CODE.findall(path.read_text("utf-8"))}


def test_every_code_has_a_test():
    known = codes_in(TESTS.parent / "ratecli")
    assert len(known) > 40
    assert known - codes_in(TESTS, ONLY_SHOWN) == set()
