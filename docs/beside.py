"""Renew the tables and pictures of papers.md that have a paper's figures beside ours, from what runs left.

    python docs/beside.py RESULTS

RESULTS has the folders of the experiments of Tables 3 and 4, run whole. The paper's figures are those of their
`expect`. A paper's figure is of one split, ours a mean of n. Ours does not contradict it where it lies among 95 % of
our single splits, within sqrt(n + 1) times the half width of our interval around our mean. With few splits that is a
wide range, so that the verdict is no evidence that the two are equal.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import yaml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "papers.md"
METHODS = {
    ("unconstrained", "deterministic"): "plain",
    ("plug_in", "deterministic"): "plain, for F1",
    ("post_shift", "stochastic"): "post_shift",
    ("coco", "stochastic"): "coco",
    ("three_player", "stochastic"): "three_player, stochastic",
    ("three_player", "deterministic"): "three_player, deterministic",
    ("mixture", "stochastic"): "mixture (ours)",
    ("held_out", "stochastic"): "mixture, validation rows (ours)",
}
COLOURS = dict(zip(METHODS, plt.get_cmap("tab10").colors, strict=False))


@dataclass(frozen=True)
class Number:
    """Ours, with half its interval and the number of splits; the paper's, if it has one."""

    mean: float
    half: float
    n: int
    paper: float | None

    @property
    def verdict(self) -> str:
        if self.paper is None:
            return ""
        apart = self.mean - self.paper
        if abs(apart) <= self.half * math.sqrt(self.n + 1) + 0.0005:
            return "not contradicted"
        return "lower" if apart < 0 else "higher"


@dataclass(frozen=True)
class Table:
    """An experiment whose two metrics are the paper's two."""

    name: str
    file: str
    y: str
    x: str
    labels: tuple[str, str]

    def numbers(self, results: Path) -> dict[tuple[str, str, str], tuple[Number, Number]]:
        """By data set, algorithm and variant: `y` and `x` on test rows."""
        given = yaml.safe_load((ROOT / "experiments" / self.file).read_text("utf-8"))
        paper = {
            (each["dataset"], each["algorithm"], each["variant"], each["metric"]): each["paper"]
            for each in given["expect"]
            if "paper" in each
        }
        with (results / given["name"] / "summary.csv").open(encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["split"] == "test"]
        found = {
            (row["dataset"], row["algorithm"], row["variant"], row["metric"]): Number(
                float(row["mean"]),
                (float(row["high"]) - float(row["low"])) / 2,
                int(row["n"]),
                paper.get((row["dataset"], row["algorithm"], row["variant"], row["metric"])),
            )
            for row in rows
            if row["mean"]
        }
        named = dict.fromkeys(key[0] for key in found)
        wanted = ((name, *method) for name in named for method in METHODS)
        return {
            key: (found[*key, self.y], found[*key, self.x])
            for key in wanted
            if (*key, self.y) in found
        }


TABLES = (
    Table(
        "table3",
        "narasimhan2019/table3.yaml",
        "objective",
        "ratio",
        ("sum of divergences", "error ratio"),
    ),
    Table("table4", "narasimhan2019/table4.yaml", "f1", "violation.parity", ("F1", "violation")),
)


def rows(table: Table, results: Path) -> Iterator[str]:
    y, x = table.labels
    yield f"| data set | method | {y}, paper | ours | | {x}, paper | ours | |"
    yield "|---|---|--:|--:|---|--:|--:|---|"
    for (dataset, *method), numbers in table.numbers(results).items():
        cells = []
        for number in numbers:
            shown = "" if number.paper is None else f"{number.paper:.3f}"
            cells += [shown, f"{number.mean:.3f} ± {number.half:.3f}", number.verdict]
        yield f"| {dataset} | {METHODS[method[0], method[1]]} | {' | '.join(cells)} |"


def picture(table: Table, results: Path, path: Path) -> None:
    """A panel a data set: ours filled with its intervals, the paper's hollow, joined by a thin line."""
    numbers = table.numbers(results)
    names = list(dict.fromkeys(key[0] for key in numbers))
    figure, panels = plt.subplots(
        1, len(names), figsize=(3.6 * len(names), 4.2), layout="constrained"
    )
    for panel, name in zip(panels, names, strict=True):
        for (dataset, *found), (y, x) in numbers.items():
            if dataset != name:
                continue
            method = (found[0], found[1])
            style = {"color": COLOURS[method], "linewidth": 0.9}
            panel.errorbar(
                x.mean,
                y.mean,
                y.half,
                x.half,
                fmt="o",
                label=METHODS[method],
                markersize=5,
                **style,
            )
            if y.paper is not None and x.paper is not None:
                panel.plot([x.mean, x.paper], [y.mean, y.paper], linestyle=":", **style)
                panel.plot(
                    x.paper,
                    y.paper,
                    "o",
                    markerfacecolor="white",
                    markersize=7,
                    color=COLOURS[method],
                )
        panel.set_title(name, loc="left", fontsize=10)
        panel.set_xlabel(table.labels[1])
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(table.labels[0])
    handles, labels = panels[0].get_legend_handles_labels()
    hollow = plt.Line2D([], [], marker="o", markerfacecolor="white", color="grey", linestyle="none")
    figure.legend(
        [*handles, hollow],
        [*labels, "the paper's"],
        loc="outside lower center",
        ncols=4,
        frameon=False,
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Write both tables into the page, between their comments, and both pictures beside it."""
    results = Path(sys.argv[1])
    text = PAGE.read_text("utf-8")
    for table in TABLES:
        begin, end = f"<!-- beside {table.name} -->\n", f"<!-- end of {table.name} -->"
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        text = before + begin + "\n" + "\n".join(rows(table, results)) + "\n\n" + end + after
        picture(table, results, PAGE.parent / f"papers-{table.name}.png")
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
