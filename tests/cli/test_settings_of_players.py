"""The settings of the paper's Table 2 in the tutorial and in `show` are equal, and each runs."""

import re
from pathlib import Path

import pandas as pd
import pytest
import yaml

from ratecli.solvers.players.options import ThreePlayer

ROW = re.compile(r"^\| (.+) \| (`(?:three_player|coco).*`) \|$", re.MULTILINE)
PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "three-players.md"
NAMES = ("Algorithm 1", "Algorithm 2", "Algorithm 3", "Frank-Wolfe", "SPADE", "NEMSIS")
NAMES = (*NAMES, "swap regret", "COCO")
LINES = {
    next(name for name in NAMES if row.startswith(name)): re.findall("`([^`]+)`", lines)
    for row, lines in ROW.findall(PAGE.read_text("utf-8"))
}
FILE = """\
name: setting
datasets: {loans: {source: loans, rows: 300}}
groups: {women: sex = Female, men: sex = Male}
objective: OBJECTIVE
constraints: {a: error <= 0.45}
algorithms: ENTRIES
report: {plots: []}
"""
CONVEX = "kl(base_rate, positive_rate[women]) + kl(base_rate, positive_rate[men])"
RATIOS = "2 - f1[women] - f1[men]"


def options(line: str) -> dict:
    entry = yaml.safe_load(line)
    return {} if isinstance(entry, str) else next(iter(entry.values()))


def test_the_tutorial_and_show_have_the_same_settings():
    shown = " ".join((ThreePlayer.__doc__ or "").split())
    assert tuple(LINES) == NAMES
    for name, lines in LINES.items():
        (start,) = (found.end() for found in re.finditer(rf"{name} (?=\{{)", shown))
        depth = [shown[start : k + 1].count("{") - shown[start : k + 1].count("}")
                 for k in range(start, len(shown))]  # fmt: skip
        assert yaml.safe_load(shown[start : start + depth.index(0) + 1]) == options(lines[-1])


def label_of(name: str, k: int = 0) -> str:
    return re.sub(r"\W", "_", f"{name}_{k}")


@pytest.mark.parametrize(
    "names", [["Algorithm 3"], [name for name in NAMES if name != "Algorithm 3"]]
)
def test_each_setting_runs(folder, cli, names):
    entries = []
    for name in names:
        for k, line in enumerate(LINES[name]):
            own = {"steps": 100, **options(line)} if line.startswith("three_player") else {}
            label = {"as": label_of(name, k), "randomize": True}
            entries.append({re.match(r"\w+", line)[0]: own | label})
    text = FILE.replace("OBJECTIVE", CONVEX if "COCO" in names else RATIOS)
    listed = yaml.safe_dump(entries, default_flow_style=True)
    (folder / "setting.yaml").write_text(text.replace("ENTRIES", listed))
    answer = cli("run", "setting.yaml", "-q", "-j", 1)
    assert answer.code == 0, answer.err
    rows = pd.read_csv(folder / "results" / "setting" / "metrics.csv")
    rows = rows[(rows.variant == "stochastic") & (rows.split == "train")]
    known = rows.set_index(["algorithm", "metric"])["value"]
    for name in names:
        assert known[label_of(name), "violation.a"] <= 1e-6
        assert known[label_of(name), "objective"] <= (0.4 if name == "Algorithm 3" else 0.2)
    if "COCO" in names:
        assert known["COCO_0", "objective"] == known["COCO_1", "objective"]
