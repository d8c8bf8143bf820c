"""The exit code that faults have, alone and together."""

from __future__ import annotations

import pytest

from ratecli.errors import Diagnostic, FaultError


@pytest.mark.parametrize(
    ("codes", "exit_code"),
    [
        ("E501", 1),
        ("E501 W402", 1),
        ("E502", 2),
        ("E503", 2),
        ("E504", 2),
        ("E505", 2),
        ("E501 E505", 2),
        ("E506", 3),
        ("E507", 2),
        ("E508 E509", 3),
        ("E511", 2),
        ("E512", 2),
        ("E513", 1),
        ("E513 E501", 1),
        ("E506 E101", 2),
        ("E405", 4),
        ("E405 E501", 4),
        ("E405 E101", 2),
        ("E405 E503", 2),
        ("E005", 2),
    ],
)
def test_exit_codes(codes, exit_code):
    assert FaultError(Diagnostic(code, "...") for code in codes.split()).exit_code == exit_code
