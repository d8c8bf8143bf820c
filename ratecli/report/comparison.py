"""Methods compared over experiments that apply their constraints one by one.

A task is a point of an experiment's own sweep, a setting a point that several experiments may have:
a rule, a model, what is known. A method is an algorithm by its label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import studentized_range

from ratecli.config.sweep import CONSTRAINT_AXIS
from ratecli.ledger.records import FAILED_STATUSES, OBJECTIVE, UNSOLVED_STATUSES
from ratecli.ledger.view import Ledger
from ratecli.report import groups as gr
from ratecli.report import sheet as st
from ratecli.report.templates import note

HELD_SHARE = 0.8
"""A method holds the rule of a task if this share of its models satisfies it on test rows.

A training that holds it with probability 0.9 does so in 8 or more of 10 splits in 93 % of cases.
"""
SIGNIFICANCE = 0.05
"""Significance level of the critical difference of mean ranks."""
PLACES = ("first", "second", "third")
SAME_TASKS = ("datasets", "groups", "objective", "constraints", "seeds")
"""Keys of an experiment that define its tasks."""
KEYS = ["experiment", "setting", "method"]
TASK = KEYS[:2]


@dataclass(frozen=True)
class MethodSummary:
    """The `rows` of a method in a setting, one for each task with trials of it."""

    method: str
    rows: pd.DataFrame

    @property
    def tasks(self) -> int:
        return len(self.rows)

    @property
    def holds(self) -> int:
        """In how many tasks it holds the rule."""
        return int(self.rows["holds"].sum())

    @cached_property
    def held(self) -> gr.IntervalEstimate:
        """The mean over tasks of the share of models that hold the rule."""
        return gr.estimate_mean(self.rows["held"].dropna())

    @cached_property
    def excess(self) -> gr.IntervalEstimate:
        """The mean over tasks of the objective above the best."""
        return gr.estimate_mean(self.rows["excess"].dropna())

    @property
    def above(self) -> st.SheetCell:
        """The cell of `excess`, with its sign."""
        cell = st.estimate_cell(self.excess)
        return replace(cell, text=f"+{cell.text}") if (cell.key or 0.0) > 0 else cell

    @property
    def short(self) -> str:
        """The method with the number of tasks in which it holds the rule, and its `above`."""
        above = self.above.text.partition(" ")[0]  # "" if it is undefined
        return f"{self.method} ({', '.join(filter(None, [f'{self.holds}/{self.tasks}', above]))})"

    @cached_property
    def times(self) -> float:
        """The median over tasks of a trial's time, in fits of `unconstrained`."""
        return float(self.rows["times"].median())

    @cached_property
    def order(self) -> tuple[bool, float, float]:
        """A sort key: methods that hold in `HELD_SHARE` of the tasks by `excess`, then others.

        These are sorted by the share of tasks, then by that of trials with a model that holds.
        """
        share = self.holds / self.tasks
        if share < HELD_SHARE:
            return True, -share, -self.rows["satisfied"].sum() / self.rows["trials"].sum()
        return False, 0.0, self.excess.mean or 0.0

    def row(self, *, best: bool) -> dict[str, Any]:
        """Return the cells of the method's row in the table of a setting."""
        rank = self.rows["rank"].mean()  # of the methods with trials in all tasks
        none, failed = self.rows[["no_model", "failed"]].sum() / self.rows["trials"].sum()
        return {
            "method": self.method,
            "holds": st.share_cell(self.holds, self.tasks, st.share_tone(self.holds, self.tasks)),
            "models that hold": st.estimate_cell(self.held),
            "error above best": replace(self.above, best=best),
            "time": st.SheetCell(f"{self.times:.1f}", self.times),
            "rank": "" if math.isnan(rank) else st.SheetCell(f"{rank:.1f}", rank),
            "no model": st.SheetCell(f"{none:.0%}", none),
            "failed": st.SheetCell(f"{failed:.0%}", failed),
        }


@dataclass(frozen=True)
class Comparison:
    """Methods on the tasks of some experiments.

    Attributes
    ----------
    rows
        A row for each method and task, with the columns `KEYS` and those of `_counted` and
        `_placed`.
    points
        The swept values of each setting, by its text.
    links
        The address of each experiment's report.
    """

    rows: pd.DataFrame
    points: Mapping[str, Mapping[str, Any]]
    links: Mapping[str, str]

    @classmethod
    def of(cls, ledgers: Mapping[str, Ledger], links: Mapping[str, str]) -> Comparison:
        """Return the comparison of experiments that sweep their constraints, by name.

        Experiments with the same `SAME_TASKS` count as one, by the name of the first. A method that
        several of them have counts once.
        """
        points: dict[str, dict[str, Any]] = {}
        names: dict[str, str] = {}
        files: dict[tuple[str, str, str], str] = {}
        rows = []
        for name, ledger in ledgers.items():
            swept = ledger.experiment.get("sweep") or {}
            first = names.setdefault(repr([ledger.experiment.get(x) for x in SAME_TASKS]), name)
            for group in gr.main_groups(ledger.algorithms) if CONSTRAINT_AXIS in swept else ():
                point = {x: group.point[x] for x in ledger.sweep if x in swept and x in group.point}
                known = (text for text, each in points.items() if each == point)
                setting = next(known, st.format_point(point))  # files may have another order
                point = points.setdefault(setting, point)
                keys = first, setting, group.label
                if files.setdefault(keys, name) == name:
                    place = repr([x for x in point.items() if x[0] != CONSTRAINT_AXIS])
                    rows.append(dict(zip(KEYS, keys, strict=True)) | _counted(group))
                    rows[-1] |= {"file": name, "place": place}
        return cls(_placed(pd.DataFrame(rows)) if rows else pd.DataFrame(), points, links)

    @cached_property
    def methods(self) -> list[str]:
        """The methods, in the order of the files."""
        return list(dict.fromkeys(self.rows["method"]))

    @cached_property
    def settings(self) -> dict[str, list[MethodSummary]]:
        """The methods of each setting, the best first."""
        found: dict[str, list[MethodSummary]] = {setting: [] for setting in self.points}
        for (setting, method), rows in self.rows.groupby(KEYS[1:], sort=False):
            found[str(setting)].append(MethodSummary(str(method), rows))
        return {setting: sorted(own, key=lambda each: each.order) for setting, own in found.items()}

    def sheet(self, setting: str) -> st.Sheet:
        """Return the table of a setting, with a row for each method."""
        methods = self.settings[setting]
        tasks = max(each.tasks for each in methods)
        ranked = sum(bool(each.rows["rank"].notna().all()) for each in methods)
        difference = critical_difference(ranked, tasks) if ranked > 1 else math.inf
        shown = f"{difference:.1f}" if difference < ranked else ""
        fails, *_ = first = methods[0].order
        rows = [each.row(best=not fails and each.order == first) for each in methods]
        text = note("setting", tasks=tasks, ranked=ranked, difference=shown)
        return st.make_sheet(setting, rows, text)

    def best_sheet(self) -> st.Sheet:
        """Return the three best methods of each setting, of those that hold the rule somewhere."""
        rows = []
        for setting, point in self.points.items():
            texts = [each.short for each in self.settings[setting] if each.holds]
            rows.append({**point, **dict(zip_longest(PLACES, texts[: len(PLACES)], fillvalue=""))})
        return st.make_sheet("Best methods", rows, note("best_methods"))

    def task_sheet(self, setting: str) -> st.Sheet:
        """Return the mean objective of each method in each task of a setting, and how often its
        models hold, with a link to the experiment's report.
        """
        own = self.rows[self.rows["setting"] == setting]
        cells: dict[tuple[str, str], Any] = {
            (row["experiment"], row["method"]): self._task_cell(row) for _, row in own.iterrows()
        }
        names = dict.fromkeys(name for name, _ in cells)
        rows = [
            {"method": each.method} | {name: cells.get((name, each.method), "") for name in names}
            for each in self.settings[setting]
        ]
        return st.make_sheet(f"{setting}: each task", rows)

    def _task_cell(self, row: pd.Series) -> st.SheetCell:
        text = f"{row['satisfied']:.0f}/{row['models']:.0f}" if row["models"] else "no model"
        if not math.isnan(row["error"]):
            text = f"{st.format_number(row['error'])} ({text})"
        best = bool(row["holds"] and row["excess"] <= 0)
        tone = "good" if best else "" if row["holds"] else "part"
        return st.SheetCell(text, None, tone, best=best, link=self.links.get(row["file"], ""))


def methods_note() -> str:
    """Return the explanation of the columns of `Comparison.sheet`."""
    return note("methods", least=f"{HELD_SHARE:.0%}")


def _counted(group: gr.SeedGroup) -> dict[str, Any]:
    """Return counts of trials, the mean objective on test rows, and mean seconds of a trial."""
    satisfied, measured = gr.count_satisfied([group], "test")
    results, ended = group.results, group.statuses
    return {
        "algorithm": group.trials[0].algorithm,
        "trials": group.ended,
        "models": group.solved,
        "satisfied": satisfied,
        "held": satisfied / measured if measured else math.nan,
        "no_model": sum(ended[each] for each in UNSOLVED_STATUSES),
        "failed": sum(ended[each] for each in FAILED_STATUSES),
        "error": group.estimate("test", OBJECTIVE).mean,
        "seconds": np.mean([each.seconds for each in results]) if results else math.nan,
    }


def _placed(rows: pd.DataFrame) -> pd.DataFrame:
    """Add to each method's row what compares it with the others of the task.

    `holds`: whether it holds the rule in the task, with a model in at least half of the trials.
    `excess`: its objective above the lowest one of these. `times`: its seconds as a multiple of the
    median of those of `unconstrained` over rules, since the first trials also read the rows.
    `rank`: from 1, among the methods with trials in all tasks of the setting; methods that hold by
    objective, then others by the share of trials with a model that satisfies the rule.
    """
    holds = (rows["held"] >= HELD_SHARE) & (2 * rows["models"] >= rows["trials"])
    rows = rows.assign(
        holds=holds,
        best=rows["error"].where(holds),
        key=rows["error"].where(holds, -rows["satisfied"] / rows["trials"]),
        plain=rows["seconds"].where(rows["algorithm"] == "unconstrained"),
    )
    tasks = rows.groupby("setting")["experiment"].transform("nunique")
    complete = rows[rows.groupby(KEYS[1:])["experiment"].transform("nunique") == tasks]
    before = complete.groupby(TASK)["holds"].transform("sum").where(~complete["holds"], 0)
    return rows.assign(
        excess=rows["error"] - rows.groupby(TASK)["best"].transform("min"),
        times=rows["seconds"] / rows.groupby(["experiment", "place"])["plain"].transform("median"),
        rank=before + complete.groupby([*TASK, "holds"])["key"].rank(),
    ).drop(columns=["best", "key", "plain", "place"])


def critical_difference(methods: int, tasks: int) -> float:
    """Return by how much mean ranks over tasks must differ to be significant.

    Nemenyi's test: Demšar (2006), Statistical Comparisons of Classifiers over Multiple Data Sets,
    section 3.2.2.
    """
    quantile = studentized_range.ppf(1 - SIGNIFICANCE, methods, math.inf) / math.sqrt(2)
    return float(quantile * math.sqrt(methods * (methods + 1) / (6 * tasks)))
