"""Metadata that the report needs besides the trials: goals, data, constraint lines, frontiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ratecli.config.report import Plot, TradeoffPlot
from ratecli.datasets import registry
from ratecli.datasets.table import Table
from ratecli.experiment.cases import Case, references
from ratecli.experiment.checks.report import find_frontier, plots_of
from ratecli.experiment.prepare import PreparedExperiment
from ratecli.experiment.reading import rule_trees
from ratecli.ledger.provenance import code_versions
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.plugins import find_plugin
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Expression
from ratecli.rates.metrics import plugin_metric_names, plugins_used_in
from ratecli.rates.rate_function import threshold
from ratecli.sampling.logs import logs_note
from ratecli.sampling.rows import get_any_table
from ratecli.solvers.registry import all_algorithms

FRONTIER_POINTS = 101


def report_metadata(prepared: PreparedExperiment) -> dict[str, Any]:
    """Return everything that tables, plots and the report need besides the trials."""
    return {
        "experiment": prepared.experiment.stated(),
        "goals": _goal_metadata(prepared.cases),
        "datasets": dataset_metadata(prepared),
        "versions": code_versions(),
        "warnings": [f"{fault.code}: {fault.message}" for fault in prepared.warnings],
        "plots": [
            _constraint_lines(plot, prepared.cases)
            for plot in prepared.experiment.report.plots or ()
        ],
        "frontier": _frontiers(prepared),
        "left_out": prepared.plan.left_out,
    }


def _goal_metadata(cases: Sequence[Case]) -> list[dict[str, str]]:
    goals: dict[str, dict[str, str]] = {}
    for case in cases:
        for goal in case.goals():
            goals.setdefault(
                goal.name, {"name": goal.name, "text": goal.text, "class": str(goal.shape)}
            )
    return list(goals.values())


def dataset_metadata(prepared: PreparedExperiment) -> dict[str, Any]:
    """Return digest, rows and files of each data set.

    Also what a stand-in replaces, and why values of logged decisions are not exact.
    """
    return {
        name: {
            "digest": table.digest,
            "rows": len(table),
            "files": [{"name": file, "sha256": sha256} for file, sha256 in table.files],
        }
        | ({"stand_in": replaced} if replaced else {})
        | ({"logged": note} if note else {})
        for name, entry in prepared.data.entries.items()
        for table in [get_any_table(prepared.data, name)]
        for replaced in [entry.source and registry.find_source(entry.source).stand_in]
        for note in [logs_note(table) if isinstance(table, Table) else ""]
    }


def used_plugins(prepared: PreparedExperiment) -> list[dict[str, str]]:
    """Return the plugins that a file names, or whose metrics it uses, for the manifest."""
    experiment, swept = prepared.experiment, prepared.experiment.swept_names()
    algorithms = [entry.name for entry in experiment.algorithms]
    if experiment.filter is not None:
        algorithms.append(experiment.filter.name)
    plugins = [all_algorithms()[name].plugin for name in dict.fromkeys(algorithms)]
    sources = dict.fromkeys(entry.source for entry in experiment.datasets.values())
    plugins += [registry.providing_plugin(registry.find_source(each)) for each in sources if each]
    if plugin_metric_names():
        used = (plugins_used_in(tree, swept) for tree in rule_trees(experiment))
        names = set[str]().union(*used)
        plugins += [find_plugin("metric", name) for name in sorted(names)]
    return [
        {"kind": each.kind, "name": each.name, "package": each.package, "version": each.version}
        for each in plugins
        if each is not None
    ]


def _constraint_lines(plot: Plot, cases: Sequence[Case]) -> dict[str, Any]:
    """Return the constraint lines of a tradeoff plot; empty for other kinds of plot.

    A constraint on y is one horizontal line only if its bound does not vary along x.
    """
    if not isinstance(plot, TradeoffPlot):
        return {}
    is_fixed = plot.y.startswith(VIOLATION_PREFIX) or any(plot.x in case.metrics for case in cases)
    heights = _constraint_levels(cases, plot.y, plot.by) if is_fixed else []
    return {"levels": _constraint_levels(cases, plot.x, plot.by), "heights": heights}


def _constraint_levels(cases: Sequence[Case], metric: str, by: str | None) -> list[dict[str, Any]]:
    """Return the values of a metric at which a constraint holds with equality, with labels.

    `panel` is the value of the name `by` for which the line holds, if it is swept.
    """
    if metric.startswith(VIOLATION_PREFIX):
        return [{"value": 0.0, "label": "limit"}]
    lines: dict[str, dict[str, Any]] = {}
    for case in cases:
        if metric not in case.metrics or any(references(tree) for _, tree in case.expressions()):
            continue
        panel = {"panel": case.point[by]} if by in case.point else {}
        for goal in case.constraints:
            for value in _thresholds(case.metrics[metric], goal):
                line = {"value": value, "label": f"{goal.name}: {value:g}"}
                lines.setdefault(repr((panel, value)), line | panel)
    return sorted(lines.values(), key=lambda line: float(line["value"]))


def _thresholds(metric: Expression, goal: Goal) -> set[float]:
    """Return the values of a metric at which a constraint, or a part of it, is 0."""
    whole = goal.expression
    parts = whole.arguments if isinstance(whole, ex.Apply) and whole.function == "max" else ()
    found = [threshold(metric, each) for each in (*goal.pieces, whole, *parts)]
    return {round(value, 12) for value in found if value is not None}


def _frontiers(prepared: PreparedExperiment) -> dict[str, list[list[float]]]:
    """Return the known frontier of each plot with `optimum`, by the plot's index."""
    frontiers = {}
    for loc, plot in plots_of(prepared.experiment, TradeoffPlot):
        frontier = find_frontier(plot, prepared.cases, prepared.data) if plot.optimum else None
        if frontier is not None:
            xs = np.linspace(0.0, 1.0, FRONTIER_POINTS)
            ys = registry.import_function(frontier.function)(xs)
            frontiers[str(loc[-1])] = np.column_stack([xs, ys]).tolist()
    return frontiers
