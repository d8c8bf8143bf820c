"""Amounts of time and memory that a trial may take."""

import pytest
from pydantic import ValidationError

from ratecli.config.experiment import LimitsSpec


@pytest.mark.parametrize(
    ("given", "seconds"), [(90, 90), ("90 s", 90), ("1.5 min", 90), ("2h", 7200), ("1e2 s", 100)]
)
def test_time_is_seconds_whatever_its_unit(given, seconds):
    assert LimitsSpec.model_validate({"time": given}).time == seconds


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ("64 MiB", 2**26),
        ("2 GiB", 2**31),
        ("2 GB", 2 * 10**9),
        (2**30, 2**30),
        ("1.5GiB", 3 * 2**29),
    ],
)
def test_memory_is_bytes_whatever_its_unit(given, count):
    assert LimitsSpec.model_validate({"memory": given}).memory == count


@pytest.mark.parametrize(
    ("key", "given", "said"),
    [
        ("time", 0, "more than 0"),
        ("time", "10 hours", "units s, min, h"),
        ("time", True, "must be a number or a text"),
        ("time", "1e4 h", "at most 30 days"),
        ("time", float("nan"), "more than 0"),
        ("memory", "2", "units B, kB"),
        ("memory", "2 GiBs", "units B, kB"),
        ("memory", 5, "from 64 MiB"),
        ("memory", [], "must be a number or a text"),
    ],
)
def test_what_is_no_amount_is_refused(key, given, said):
    with pytest.raises(ValidationError, match=said):
        LimitsSpec.model_validate({key: given})
