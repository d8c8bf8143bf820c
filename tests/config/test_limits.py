"""Amounts of time and memory that a trial may take."""

import pytest
from pydantic import ValidationError

from ratecli.config.experiment import LimitsSpec


@pytest.mark.parametrize(
    ("key", "amount", "number"),
    [
        ("time", 90, 90),
        ("time", "90 s", 90),
        ("time", "1.5 min", 90),
        ("time", "2h", 7200),
        ("time", "1e2 s", 100),
        ("memory", "64 MiB", 2**26),
        ("memory", "2 GB", 2 * 10**9),
        ("memory", 2**30, 2**30),
        ("memory", "1.5GiB", 3 * 2**29),
    ],
)
def test_units(key, amount, number):
    assert getattr(LimitsSpec.model_validate({key: amount}), key) == number


@pytest.mark.parametrize(
    ("key", "amount", "words"),
    [
        ("time", 0, "more than 0"),
        ("time", "10 hours", "units s, min, h"),
        ("time", True, "must be a number or a text"),
        ("time", "1e4 h", "at most 30 days"),
        ("time", float("nan"), "more than 0"),
        ("memory", "2", "units B, kB"),
        ("memory", 5, "from 64 MiB"),
    ],
)
def test_invalid_amounts(key, amount, words):
    with pytest.raises(ValidationError, match=words):
        LimitsSpec.model_validate({key: amount})
