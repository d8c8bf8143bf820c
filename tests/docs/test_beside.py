"""The papers' figures beside those of ratecli, in papers.md."""

import re

import pytest
from beside import PAGE, Number

ROW = re.compile(
    r"(?P<paper>[-.\d]+) \| (?P<mean>[-.\d]+) ± (?P<half>[.\d]+) \| (?P<verdict>[a-z ]+) "
)
SPLITS = 10


@pytest.mark.parametrize(
    ("number", "verdict"),
    [
        (Number(0.945, 0.032, SPLITS, 0.842), "not contradicted"),
        (Number(0.102, 0.010, SPLITS, 0.199), "lower"),
        (Number(0.060, 0.033, SPLITS, -0.050), "higher"),
        (Number(0.060, 0.033, SPLITS, None), ""),
    ],
)
def test_verdicts(number, verdict):
    assert number.verdict == verdict


def test_verdicts_of_the_page_follow_from_its_numbers():
    found = list(ROW.finditer(PAGE.read_text("utf-8")))
    assert len(found) > 60
    for row in found:
        mean, half, paper = (float(row[name]) for name in ("mean", "half", "paper"))
        near = abs(abs(mean - paper) - half * (SPLITS + 1) ** 0.5) < 0.003  # of rounding
        assert near or Number(mean, half, SPLITS, paper).verdict == row["verdict"]
