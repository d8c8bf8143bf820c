"""Error codes: their catalogue, their exit codes, and that some test covers each."""

import re
from pathlib import Path

import pytest

from ratecli.diagnostic_codes import CODES
from ratecli.errors import Diagnostic, FaultError

TESTS = Path(__file__).parents[1]
CODE = re.compile(r"\b[EW]\d{3}\b")
ONLY_SHOWN = ("test_render.py", "test_progress.py", "synthetic_ledger.py")
"""These files use codes as examples of text."""


def codes_in(folder, without=()):
    files = (path for path in folder.rglob("*.py") if path.name not in without)
    return {code for path in files for code in CODE.findall(path.read_text("utf-8"))}


def test_every_code_has_a_test():
    known = codes_in(TESTS.parent / "ratecli", ["errors.py"])
    assert len(known) > 40
    assert known - codes_in(TESTS, ONLY_SHOWN) == set()


def test_the_catalogue_has_the_codes_of_the_sources():
    assert set(CODES) == codes_in(TESTS.parent / "ratecli", ["errors.py"])


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_texts_of_a_code_are_sentences(code):
    assert code.means.endswith(".")
    assert code.help.endswith(".")
    assert (code.exit_code == 0) == code.code.startswith("W")


def test_show_of_a_code(cli):
    answer = cli("show", "e405")
    assert answer.code == 0
    assert "exit code:     4" in answer.out
    assert CODES["E405"].help in answer.out


@pytest.mark.parametrize(
    ("codes", "exit_code"),
    [
        *(("E501", 1), ("E513", 1), ("E501 W402", 1), ("E513 E501", 1)),
        *((code, 2) for code in ("E005", "E502", "E503", "E504", "E505", "E507", "E511", "E512")),
        *(("E501 E505", 2), ("E506 E101", 2), ("E405 E101", 2), ("E405 E503", 2)),
        *(("E506", 3), ("E508 E509", 3), ("E405", 4), ("E405 E501", 4)),
    ],
)
def test_exit_codes(codes, exit_code):
    assert FaultError(Diagnostic(code, "...") for code in codes.split()).exit_code == exit_code
