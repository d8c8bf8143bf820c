"""Explain, as lines of text, how ratecli understands an experiment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

from ratecli.certify.trees import plan_goal_test
from ratecli.errors import FaultError
from ratecli.experiment.cases import OF_PLACEHOLDER, Case, case_metrics, references, resolve_goals
from ratecli.experiment.checks.goals import SHAPE_NAMES, refusal_reason, shorten_text
from ratecli.experiment.checks.rows import tested_constraints
from ratecli.experiment.entries import (
    solver_class,
)
from ratecli.experiment.filters import filter_stage_cases
from ratecli.experiment.prepare import PreparedExperiment
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine, affine
from ratecli.rates.analysis import Goal, Shape
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.table import DEPLOYED, MEASURES, canonical_name
from ratecli.render import plain_value, render_text
from ratecli.sampling.rows import load_trial_data
from ratecli.solvers.base import Solver
from ratecli.solvers.registry import all_algorithms, ranked_algorithms

MAX_SHOWN_ITEMS = 4
"""Maximum number of tests, bounds, filters, sweep points or pieces that are listed in full."""
TEXT_LENGTH = 300


def explain(prepared: PreparedExperiment) -> list[str]:
    """Return the full explanation: sweeps, and every goal with the algorithms that support it."""
    experiment, cases = prepared.experiment, prepared.cases
    goals = {name: _goal_by_point(cases, name) for name in ("objective", *experiment.constraints)}
    by_label: dict[str, list[Case]] = {}
    for case in cases:
        by_label.setdefault(case.label, []).append(case)
    metrics = case_metrics(cases)
    facts = {
        "most": MAX_SHOWN_ITEMS,
        "experiment": experiment,
        "by_label": by_label,
        "takes": sorted({each.filtering.take for each in cases if each.filtering is not None}),
        "filters": list(filter_stage_cases(cases).values()),
        "goals": {name: _goal_facts(by_point) for name, by_point in goals.items()},
        "tests": {name: _safety_tests(prepared, name) for name in experiment.constraints},
        "choices": list(_explain_choice([by_point[0][1] for by_point in goals.values()])),
        "metrics": {
            name: shorten_text(ex.to_text(metrics[name]), TEXT_LENGTH)
            for name in experiment.metrics
        },
    }
    template = Path(__file__).with_suffix(".jinja")
    return render_text(template, facts, {"pairs": _pairs, "more": _more}).splitlines()


# safety tests


def _safety_tests(prepared: PreparedExperiment, name: str) -> list[dict[str, Any]]:
    """Return the different safety tests of a constraint, each with the cases that have it.

    `parts` are expressions that must all be at most 0, with the bounds of each. It is None if the
    data is not present: rows determine which rates are bounded together.
    """
    found: dict[str, list[Case]] = {}
    for case in prepared.cases:
        if case.safety is not None:
            rules = [ex.to_text(goal.expression) for goal in case.constraints if goal.name == name]
            test = replace(case.safety, delta={name: case.safety.delta[name]})
            how = test, case.holdout, case.guard.aim
            found.setdefault(repr((rules, how, case.datasets)), []).append(case)
    shown = list(found.values())[:MAX_SHOWN_ITEMS]
    parts = [_tested_parts(prepared, own[0], name) for own in shown]
    kinds = [{"cases": own, "parts": part} for own, part in zip(shown, parts, strict=True)]
    return kinds + [{"more": len(found) - len(shown)}] * (len(found) > len(shown))


def _tested_parts(
    prepared: PreparedExperiment, case: Case, name: str
) -> list[tuple[str, list[tuple[str, str, float]]]] | None:
    """Return the parts of a tested constraint, each with its bounds: side, rate and delta."""
    if not prepared.plan.tasks:
        return None
    deployed, data = prepared.experiment.deployed, prepared.data.only(case.datasets)
    column = deployed.column if deployed else None
    found = load_trial_data(data, prepared.experiment.seeds[0], column, case.sampling)
    tested = tested_constraints(case, found.sample)
    goal, rates = next(pair for pair in tested if pair[0].name == name)
    spec = case.safety_spec(found.splits()["safety"])
    assert spec is not None
    plan = plan_goal_test(goal, spec, rates)
    parts: list[tuple[str, list[tuple[str, str, float]]]] = []
    for p, tree in enumerate(plan.trees):
        bounds = []
        for bound in (bound for bound in plan.bounds if bound.tree == p):
            terms = plan.quantities[bound.quantity].coefficients
            rounded = Affine({leaf: float(f"{c:.6g}") for leaf, c in terms.items()})
            side = "upper" if bound.sign > 0 else "lower"
            bounds.append((side, ex.to_text(rounded.expression()), bound.delta))
        parts.append((ex.to_text(tree), bounds))
    return parts


# goals


def _goal_facts(goals: Sequence[tuple[str, Goal]]) -> dict[str, Any]:
    """Return what the template says about a goal, given at its sweep points."""
    goal = goals[0][1]
    words = dict.fromkeys(map(canonical_name, re.findall(r"\w+", goal.text)))
    forms: dict[tuple[str, ...], str] = {}
    for label, each in goals:
        lines = [_format_piece(piece, each) for piece in each.pieces[:MAX_SHOWN_ITEMS]]
        forms.setdefault((*lines, *_count_more(each.pieces, "parts")), label)
    several = len(forms) > 1
    found = sorted(set(references(goal.expression)), key=ex.to_text)
    return {
        "text": goal.text,
        "measures": {name: MEASURES[name].text for name in words if name in MEASURES},
        "understood": shorten_text(ex.to_text(goal.expression), TEXT_LENGTH),
        "shape": SHAPE_NAMES[goal.shape],
        "optimum": goal.name == "objective" and goal.shape is Shape.SMOOTH,
        "references": [(ex.to_text(part), part.algorithm == DEPLOYED) for part in found],
        "placeholder": f"{OF_PLACEHOLDER:g}",
        "forms": [(label if several else "", lines) for lines, label in forms.items()],
    }


def _format_piece(piece: Expression, goal: Goal) -> str:
    form, objective = affine(piece), goal.name == "objective"
    if form is None:
        return shorten_text(ex.to_text(piece) + ("" if objective else " <= 0"), TEXT_LENGTH)
    return ex.to_text(form.expression()) if objective else _bound_text(form)


def _bound_text(form: Affine) -> str:
    """Return `sum of rates <= bound`, with rates that do not depend on decisions in the bound."""
    sides = dict[Leaf, float](), dict[Leaf, float]()
    for leaf, coefficient in form.coefficients.items():
        sides[leaf.rate.yes == leaf.rate.no][leaf] = float(f"{coefficient:.6g}")
    variable, fixed = sides
    right = Affine(fixed, float(f"{form.constant:.6g}")) * -1.0
    return f"{ex.to_text(Affine(variable).expression())} <= {ex.to_text(right.expression())}"


def _explain_choice(goals: Sequence[Goal]) -> Iterator[str]:
    """Say of every algorithm what it is chosen for, or which goal it does not support.

    Filters are left out unless the objective is theirs.
    """
    width = max(map(len, all_algorithms()))
    for name in (each.name for each in ranked_algorithms()):
        try:
            found = solver_class(name)
        except FaultError as error:
            yield f"{name:{width}}  {error.faults[0].message}"
            continue
        if goals[0].shape in found.objectives or not found.hides_groups:
            yield f"{name:{width}}  {_choice_text(name, found, goals)}"


def _choice_text(name: str, found: type[Solver], goals: Sequence[Goal]) -> str:
    if found.role == "ignores":
        return f"ignores the goals: {all_algorithms()[name].choice}"
    for goal in goals:
        why, _ = refusal_reason(found, goal, objective=goal.name == "objective")
        if why:
            return f"does not support '{goal.name}': {why}"
    return f"{'best effort: ' * (found.role == 'reads')}{all_algorithms()[name].choice_with_limits}"


def _goal_by_point(cases: Sequence[Case], name: str) -> list[tuple[str, Goal]]:
    """Return (sweep point, goal) pairs; pieces have `OF_PLACEHOLDER` in place of `of(...)`."""
    found: dict[str, Goal] = {}
    for case in cases:
        objective, rules = resolve_goals(case)
        for written, goal in zip(case.goals(), (objective, *rules), strict=True):
            if goal.name == name:
                as_written = replace(goal, expression=written.expression)
                found.setdefault(_pairs(case.point), as_written)
    return list(found.items())


# text


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key}={plain_value(value)}" for key, value in values.items())


def _count_more(items: Sized, noun: str) -> list[str]:
    """Return a line on the number of items beyond those listed; none if all are listed."""
    more = len(items) - MAX_SHOWN_ITEMS
    return [_more(more, noun)] if more > 0 else []


def _more(count: int, noun: str) -> str:
    return f"... {count} more {noun.removesuffix('s') if count == 1 else noun} ..."
