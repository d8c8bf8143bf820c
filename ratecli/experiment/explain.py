"""Explain, as lines of text, how ratecli understands an experiment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace

from ratecli.certify.trees import plan_goal_test
from ratecli.config.experiment import DeployedSpec
from ratecli.errors import FaultError
from ratecli.experiment.cases import OF_PLACEHOLDER, Case, case_metrics, references, resolve_goals
from ratecli.experiment.checks.goals import SHAPE_NAMES, refusal_reason, shorten_text
from ratecli.experiment.checks.rows import tested_constraints
from ratecli.experiment.filter_stage import filter_stage_cases
from ratecli.experiment.options import (
    all_options,
    in_order_of_choice,
    solver_class,
    use_and_limits_of,
    use_of,
)
from ratecli.experiment.prepare import PreparedExperiment
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine, affine, bound_text, positive_combination
from ratecli.rates.analysis import Goal, Shape
from ratecli.rates.expression import Expression
from ratecli.rates.table import DEPLOYED, MEASURES, canonical_name
from ratecli.render import plain_value
from ratecli.sampling.rows import load_trial_data
from ratecli.solvers.base import Solver
from ratecli.solvers.margin import MarginSpec
from ratecli.solvers.registry import all_algorithms

MAX_SHOWN_ITEMS = 4
"""Maximum number of tests, bounds, filters, sweep points or pieces that are listed in full."""
TEXT_LENGTH = 300
LOCAL_OPTIMUM = (
    "local, the best of several searches: no certificate says how far it is from the best "
    "possible; `thresholded` tries every threshold"
)
TAKE_PHRASES = {
    "weights": "each training row is weighted by the probability that it is kept",
    "sample": "each training row is kept or not, at random by the seed",
}


def explain(prepared: PreparedExperiment) -> list[str]:
    """Return the full explanation: sweeps, and every goal with the algorithms that support it."""
    experiment, cases = prepared.experiment, prepared.cases
    lines = [experiment.name, "", "algorithms", *_indent(_explain_algorithms(cases))]
    if experiment.filter is not None:
        lines += ["", "filter", *_indent(_explain_filters(prepared))]
    goals = list[Goal]()
    for name in ("objective", *experiment.constraints):
        title = name if name == "objective" else f"constraint {name}"
        by_point = _goal_by_point(cases, name)
        goals.append(by_point[0][1])
        tests = [] if name == "objective" else _explain_safety(prepared, name)
        lines += ["", title, *_indent([*explain_goal(by_point), *tests])]
    lines += ["", "which algorithm", *_indent(_explain_choice(goals))]
    if experiment.deployed is not None:
        lines += ["", "deployed model", f"  {_explain_deployed(experiment.deployed)}"]
    metrics = case_metrics(cases)
    shown = [
        f"{name} = {shorten_text(ex.to_text(metrics[name]), TEXT_LENGTH)}"
        for name in experiment.metrics
    ]
    return [*lines, "", "metrics", *_indent(shown)]


def _explain_algorithms(cases: Sequence[Case]) -> Iterator[str]:
    for label in dict.fromkeys(case.label for case in cases):
        own = [case for case in cases if case.label == label]
        kind = "" if label == own[0].algorithm else f" ({own[0].algorithm})"
        points = f"{len(own)} sweep point{'s' * (len(own) > 1)}"
        yield f"{label}{kind}: {_pairs(own[0].options())}; {points}"
        if own[0].settings:
            yield f"  {own[0].tuning_cost()}"
        if any(case.constraints for case in own):
            yield from _indent(_explain_guard(own[0].guard))


def _explain_guard(guard: MarginSpec) -> Iterator[str]:
    """Say where constraints have to hold, if not on the training rows."""
    if guard.holds == "train":
        return
    where = "on validation rows"
    if guard.level is not None:
        rows = "training" if guard.holds == "new_rows" else "validation"
        where = f"in the population of the {rows} rows with probability {guard.level:g}"
    yield f"constraints are tightened to hold {where}"


def _explain_deployed(deployed: DeployedSpec) -> str:
    """Describe where the deployed model's decisions come from."""
    given = deployed.model_dump(exclude_none=True)
    word = given.pop("positive", None)
    ((kind, source),) = given.items()
    same = ", same seed and sweep point" if kind == "algorithm" else ""
    which = "decisions" if kind == "column" else "more likely decisions"
    words = "" if word is None else f", of which '{word}' is positive"
    return f"{which} of the {kind} '{source}'{same}{words}"


def _explain_filters(prepared: PreparedExperiment) -> Iterator[str]:
    """Describe the filters of the training rows, and which algorithms use them."""
    takes = {case.filtering.take for case in prepared.cases if case.filtering is not None}
    yield from (TAKE_PHRASES[take] for take in sorted(takes))
    entries = prepared.experiment.algorithms
    users = [entry.label for entry in entries if entry.filter]
    others = [entry.label for entry in entries if not entry.filter]
    yield f"used by {', '.join(users) or 'no algorithm'}"
    if others:
        yield f"not used by {', '.join(others)}, which train on all rows"
    found = list(filter_stage_cases(prepared.cases).values())
    for case in found[:MAX_SHOWN_ITEMS]:
        yield f"{case.label}{' at ' if case.point else ''}{_pairs(case.point)}"
        yield f"  {case.algorithm}: {_pairs(all_options(case.solver))}"
        yield f"  minimize    {case.objective.text}"
        yield from (f"  subject to  {rule.text}" for rule in case.constraints)
        yield f"  hidden      {', '.join(case.unseen)}"
    yield from _count_more(found, "filters")


# safety tests


def _explain_safety(prepared: PreparedExperiment, name: str) -> list[str]:
    """Describe the safety test of a constraint; return nothing if no algorithm is tested.

    The bounds can be listed only once the data is present: rows determine which rates are bounded
    together.
    """
    found: dict[str, list[Case]] = {}
    for case in prepared.cases:
        if case.safety is not None:
            rules = [ex.to_text(goal.expression) for goal in case.constraints if goal.name == name]
            test = replace(case.safety, delta={name: case.safety.delta[name]})
            how = test, case.holdout, case.guard.aim
            found.setdefault(repr((rules, how, case.datasets)), []).append(case)
    lines = []
    for alike in list(found.values())[:MAX_SHOWN_ITEMS]:
        if len(found) > 1:
            point = f", {_pairs(alike[0].point)}" if alike[0].point else ""
            more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
            lines.append(f"of {alike[0].label}{point}{more}")
        lines += _explain_test(prepared, alike[0], name)
    lines += _count_more(found, "tests")
    title = "safety test: a model is returned only if it passes for every constraint"
    return [title, *_indent(lines)] if found else []


def _explain_test(prepared: PreparedExperiment, case: Case, name: str) -> Iterator[str]:
    test, holdout = case.safety, case.holdout
    assert test is not None
    assert holdout is not None
    by = [*(["data set"] if case.pooled else []), *holdout.stratify]
    chosen = ["the last rows"] if holdout.positional else []
    chosen += [f"stratified by {', '.join(by)}"] if by else []
    rows = f", {', '.join(chosen)}: the guarantee is approximate" if chosen else ""
    yield (
        f"delta {test.delta[name]:g}, bound {test.bound}, method {test.method}, on "
        f"{float(holdout.fraction):g} of the training rows{rows}"
    )
    if case.guard.aim is not None:
        yield f"constraints are tightened to pass it with probability {case.guard.aim:g}"
        yield "models with other margins are tested as well, safest first, until one fails"
    if test.joint:
        yield f"delta is divided among {test.joint} algorithms, and then among variants"
    if not prepared.plan.tasks:
        yield "the bounds are listed once the data is present"
        return
    deployed, data = prepared.experiment.deployed, prepared.data.only(case.datasets)
    column = deployed.column if deployed else None
    found = load_trial_data(data, prepared.experiment.seeds[0], column, case.sampling)
    tested = tested_constraints(case, found.sample)
    goal, rates = next(pair for pair in tested if pair[0].name == name)
    spec = case.safety_spec(found.splits()["safety"])
    assert spec is not None
    plan = plan_goal_test(goal, spec, rates)
    several = len(plan.trees) > 1
    if several:
        yield f"{len(plan.trees)} parts; each must be at most 0 and has the whole delta"
    for p, tree in enumerate(plan.trees[:MAX_SHOWN_ITEMS]):
        if several:
            yield f"part {p + 1}: {ex.to_text(tree)}"
        for bound in (bound for bound in plan.bounds if bound.tree == p):
            side = "upper" if bound.sign > 0 else "lower"
            terms = plan.quantities[bound.quantity].coefficients
            rounded = Affine({leaf: float(f"{c:.6g}") for leaf, c in terms.items()})
            quantity = ex.to_text(rounded.expression())
            yield f"{'  ' * several}{side} bound of {quantity}, delta {bound.delta:.4g}"
    yield from _count_more(plan.trees, "parts")


# goals


def explain_goal(goals: Sequence[tuple[str, Goal]]) -> list[str]:
    """Explain a goal at its sweep points: text, class and normal form."""
    goal, objective = goals[0][1], goals[0][1].name == "objective"
    text = shorten_text(ex.to_text(goal.expression), TEXT_LENGTH)
    words = dict.fromkeys(map(canonical_name, re.findall(r"\w+", goal.text)))
    return [
        f"as written  {goal.text}",
        *(
            f"where       {name}(by=columns) is {MEASURES[name].text}"
            for name in words
            if name in MEASURES
        ),
        f"understood  {text}{'' if objective else ' <= 0'}",
        f"class       {SHAPE_NAMES[goal.shape]}",
        *([f"optimum     {LOCAL_OPTIMUM}"] if objective and goal.shape is Shape.SMOOTH else []),
        *_explain_references(goal),
        *_format_normal_forms(goals),
    ]


def _explain_references(goal: Goal) -> Iterator[str]:
    """Say when the value of each `of(...)` is known, and what stands for it in the normal form."""
    for part in sorted(set(references(goal.expression)), key=ex.to_text):
        deployed = part.algorithm == DEPLOYED
        when = "the deployed model has decided" if deployed else "that trial has run"
        number = f"{OF_PLACEHOLDER:g} stands for it in the form below"
        yield f"{ex.to_text(part)} is known once {when}; {number}"


def _format_normal_forms(goals: Sequence[tuple[str, Goal]]) -> Iterator[str]:
    """Format the goal as solvers get it, affine parts as combinations with positive weights."""
    yield "minimize" if goals[0][1].name == "objective" else "all of these must hold"
    shown: dict[tuple[str, ...], str] = {}
    for label, goal in goals:
        lines = [_format_piece(each, goal) for each in goal.pieces[:MAX_SHOWN_ITEMS]]
        shown.setdefault((*lines, *_count_more(goal.pieces, "parts")), label)
    for own, label in list(shown.items())[:MAX_SHOWN_ITEMS]:
        head = [f"at {label}"] if label and len(shown) > 1 else []
        yield from _indent([*head, *(_indent(own) if head else own)])
    yield from _indent(_count_more(shown, "sweep points"))


def _format_piece(piece: Expression, goal: Goal) -> str:
    form, objective = affine(piece), goal.name == "objective"
    if form is None:
        return shorten_text(ex.to_text(piece) + ("" if objective else " <= 0"), TEXT_LENGTH)
    positive = positive_combination(form)
    return ex.to_text(positive.expression()) if objective else bound_text(positive)


def _explain_choice(goals: Sequence[Goal]) -> Iterator[str]:
    """Say of every algorithm what it is chosen for, or which goal it does not support.

    Filters are left out unless the objective is theirs.
    """
    width = max(map(len, all_algorithms()))
    for name in in_order_of_choice(all_algorithms()):
        try:
            found = solver_class(name)
        except FaultError as error:
            yield f"{name:{width}}  {error.faults[0].message}"
            continue
        if goals[0].shape in found.objectives or not found.hides_groups:
            yield f"{name:{width}}  {_choice_text(name, found, goals)}"


def _choice_text(name: str, found: type[Solver], goals: Sequence[Goal]) -> str:
    if found.role == "ignores":
        return f"ignores the goals: {use_of(name)}"
    for goal in goals:
        why, _ = refusal_reason(found, goal, objective=goal.name == "objective")
        if why:
            return f"does not support '{goal.name}': {why}"
    return f"{'best effort: ' * (found.role == 'reads')}{use_and_limits_of(name)}"


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
    noun = noun.removesuffix("s") if more == 1 else noun
    return [f"... {more} more {noun} ..."] if more > 0 else []


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]
