"""Check one file in every way that runs nothing, and what must be true of the answer."""

import json
import re
from pathlib import Path

import numba  # noqa: F401  solvers load it: not while a file is watched
from guard import watched

from ratecli import render
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.explain import explain
from ratecli.experiment.prepare import check_available

CODE = re.compile(r"[EW]\d{3}")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
SECONDS = 30.0
CHECKED = 100
"""Maximum number of diagnostics of one file to check."""


def look(path: Path, seconds: float = SECONDS) -> str:
    """Return the codes of the diagnostics, or `ok`.

    Raise AssertionError if something was written or a diagnostic is malformed, or TooLongError.
    """
    for _ in range(2):  # modules and caches are loaded at the first time
        with watched(seconds) as done:
            try:
                prepared = check_available(path, refuse=False)
                lines = explain(prepared)
                faults = prepared.warnings
            except FaultError as error:
                lines, faults = [], error.faults
                assert faults, "an error without a diagnostic"
            shown = [
                render.render_diagnostics(faults, color=False),
                render.terminal_safe("\n".join(lines)),
                render.diagnostics_to_json(faults),
                render.diagnostics_to_github(faults),
            ]
        if not done:
            break
    assert not done, f"checking a file did {done[:5]}"
    text = path.read_bytes().decode("utf-8-sig", "replace")
    for fault in faults[:CHECKED]:
        check(fault, path, text)
    for said in shown:
        wild = CONTROL.search(said)
        assert wild is None, f"{wild.group()!r} reaches the terminal: {said!r}"
    assert len(json.loads(shown[2])) == len(faults)
    assert shown[3].count("\n") == max(0, len(faults) - 1)
    return " ".join(sorted({fault.code for fault in faults})) or "ok"


def check(fault: Diagnostic, path: Path, text: str) -> None:
    """Check that a diagnostic has a code, a message, and a place that is in the file."""
    assert CODE.fullmatch(fault.code), fault
    assert fault.message.strip(), fault
    assert "\0" not in fault.message, fault
    assert "\0" not in (fault.help or ""), fault
    place = fault.place
    if place is None:
        assert fault.code in {"E005", "E401", "E402", "E403", "E405"} or not fault.is_error, fault
        return
    assert place.file == str(path), fault
    assert 1 <= place.line <= len(text.splitlines()) + 1, fault
    assert 0 <= place.column - 1 <= len(place.excerpt) + 1, fault
    assert 0 <= place.width <= len(place.excerpt) + 3 - place.column, fault
    assert place.excerpt.rstrip("\ufffd") in text, fault
