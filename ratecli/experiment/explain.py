"""Explain, as lines of text, how ratecli understands an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from ratecli.certify.trees import GoalTestPlan, OneSidedBound, plan_goal_test
from ratecli.config.experiment import DeployedSpec, Experiment
from ratecli.errors import FaultError
from ratecli.experiment.cases import OF_PLACEHOLDER, Case, case_metrics, resolve_goals
from ratecli.experiment.checks.goals import SHAPE_NAMES, refusal_reason
from ratecli.experiment.filter_stage import filter_stage_cases
from ratecli.experiment.options import all_options, solver_class
from ratecli.experiment.prepare import PreparedExperiment
from ratecli.experiment.safety import SafetyTestSettings
from ratecli.models.storage import loads
from ratecli.rates import expression as ex
from ratecli.rates.affine import (
    Affine,
    affine,
    balance,
    bound_text,
    positive_combination,
    ratio_sum,
)
from ratecli.rates.analysis import Goal, Shape, monotonicity, vanishing_ratios
from ratecli.rates.expression import Expression
from ratecli.rates.table import DEPLOYED
from ratecli.sampling.rows import TrialData, load_trial_data
from ratecli.sampling.safety_rows import goal_leaves, rates_on_split, without_split_condition
from ratecli.solvers.registry import all_algorithms

MAX_SAFETY_CASES = 4
"""Maximum number of trees, bounds of a tree, or tests of different algorithms that are listed."""
SIDE_NAMES = {1: "upper", -1: "lower"}


def explain_safety(prepared: PreparedExperiment, name: str) -> list[str]:
    """Return lines about the safety test of a constraint; none if no algorithm is tested.

    The bounds can be listed only once the data is present: rows determine which rates are bounded
    together.
    """
    found: dict[tuple[object, ...], list[Case]] = {}
    for case in prepared.cases:
        if case.safety is not None:
            found.setdefault(_comparable_test(case, case.safety, name), []).append(case)
    if not found:
        return []
    tests = list(found.values())
    shown = ["safety test, which a model must pass for every constraint to be given"]
    for alike in tests[:MAX_SAFETY_CASES]:
        head = [_format_cases(alike)] if len(tests) > 1 else []
        shown += [f"  {line}" for line in (*head, *_explain_case_test(prepared, alike[0], name))]
    more = (
        [f"  ... {len(tests) - MAX_SAFETY_CASES} more tests ..."]
        if len(tests) > MAX_SAFETY_CASES
        else []
    )
    return [*shown, *more]


def _comparable_test(case: Case, test: SafetyTestSettings, name: str) -> tuple[object, ...]:
    """Return a key of everything that the lines of a case depend on."""
    rules = [ex.to_text(goal.expression) for goal in case.constraints if goal.name == name]
    how = test.delta[name], test.bound, test.method, test.division, case.guard.aim
    return *rules, *how, test.holdout, case.datasets


def _format_cases(alike: Sequence[Case]) -> str:
    """Return the first of some cases, with their number."""
    point = (f"{key}={value}" for key, value in alike[0].point.items())
    more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
    return f"of {', '.join([alike[0].label, *point])}{more}"


def _explain_case_test(prepared: PreparedExperiment, case: Case, name: str) -> Iterator[str]:
    test = case.safety
    assert test is not None
    yield (
        f"delta {test.delta[name]:g}, bound {test.bound}, method {test.method}, on "
        f"{float(test.holdout.fraction):g} of the training rows{_describe_safety_rows(case, test)}"
    )
    if case.guard.aim is not None:
        yield f"constraints are tightened until it is passed with a chance of {case.guard.aim:g}"
    if not prepared.plan.tasks:
        yield "which bounds are needed shows once the data is there"
        return
    _, rules = resolve_goals(case, lambda _: OF_PLACEHOLDER)
    (goal,) = (without_split_condition(goal) for goal in rules if goal.name == name)
    rows = _load_safety_data(prepared, case)
    rates, _ = rates_on_split(goal_leaves([goal]), rows.sample, "safety")
    promise = case.safety_spec(rows.splits()["safety"])
    assert promise is not None
    known = plan_goal_test(goal, promise, rates)
    yield from _explain_bounds(goal, known)
    if test.division == "optimized" and len(known.bounds) > len(known.trees):
        yield "these deltas are a start: candidate rows tell how the delta is divided"


def _describe_safety_rows(case: Case, test: SafetyTestSettings) -> str:
    """Describe how the held-out rows are chosen if it is not at random."""
    by = [*(["data set"] if case.pooled else []), *test.holdout.stratify]
    found = [
        *(["the last ones"] if test.holdout.positional else []),
        *([f"stratified by {', '.join(by)}"] if by else []),
    ]
    return f", {', '.join(found)}: what is certified is approximate" if found else ""


def _load_safety_data(prepared: PreparedExperiment, case: Case) -> TrialData:
    deployed = prepared.experiment.deployed
    column = deployed.column if deployed else None
    data = prepared.data.only(case.datasets)
    return load_trial_data(data, prepared.experiment.seeds[0], column, case.drawing)


def _explain_bounds(goal: Goal, known: GoalTestPlan) -> Iterator[str]:
    """Yield each bound that is needed, below its tree if there are several trees."""
    several = len(known.trees) > 1
    if several:
        yield f"{len(known.trees)} parts, of which each must be at most 0 at the whole delta"
    indent = "  " if several else ""
    for p, tree in enumerate(known.trees[:MAX_SAFETY_CASES]):
        if several:
            yield f"part {p + 1}: {ex.to_text(tree)}"
        for each in (each for each in known.bounds if each.tree == p):
            yield f"{indent}{_explain_bound(each, known.quantities[each.quantity])}"
    if len(known.trees) > MAX_SAFETY_CASES:
        yield f"... {len(known.trees) - MAX_SAFETY_CASES} more parts ..."
    if not known.bounds:
        yield f"nothing is bounded: '{goal.name}' hangs on no rate"


def _explain_bound(asked: OneSidedBound, quantity: Affine) -> str:
    rounded = Affine({leaf: float(f"{c:.6g}") for leaf, c in quantity.coefficients.items()})
    return (
        f"{SIDE_NAMES[asked.sign]} bound of {ex.to_text(rounded.expression())}, "
        f"delta {asked.delta:.4g}"
    )


MAX_FILTER_CASES = 4
"""Maximum number of filters that are listed."""


def explain_filter(prepared: PreparedExperiment) -> list[str]:
    """Return lines about the filter of the training rows and who uses it; none without a filter."""
    experiment = prepared.experiment
    if experiment.filter is None:
        return []
    found = list(filter_stage_cases(prepared.cases).values())
    lines = list(_explain_filter_users(experiment, prepared.cases))
    for case in found[:MAX_FILTER_CASES]:
        lines += _explain_filter_case(case)
    if len(found) > MAX_FILTER_CASES:
        lines.append(f"... {len(found) - MAX_FILTER_CASES} more filters ...")
    return ["filter", *(f"  {line}" for line in lines)]


def _explain_filter_users(experiment: Experiment, cases: tuple[Case, ...]) -> Iterator[str]:
    words = {
        "weights": "training rows count by the chance that they are kept",
        "sample": "of the training rows a sample is drawn by the seed",
    }
    takes = {case.filtering.take for case in cases if case.filtering is not None}
    yield from (words[take] for take in sorted(takes))
    free = [entry.label for entry in experiment.algorithms if entry.filter is False]
    users = [entry.label for entry in experiment.algorithms if entry.filter is not False]
    yield f"for {', '.join(users) if users else 'nobody'}"
    if free:
        yield f"not for {', '.join(free)}, which train on all rows"


def _explain_filter_case(case: Case) -> Iterator[str]:
    point = ", ".join(f"{name}={value}" for name, value in case.point.items())
    yield f"{case.label}{f' at {point}' if point else ''}"
    options = ", ".join(f"{key}={value}" for key, value in all_options(case.solver).items())
    yield f"  {case.algorithm}: {options}"
    yield f"  minimize    {case.objective.text}"
    yield from (f"  subject to  {rule.text}" for rule in case.constraints)
    wanted = balance(case.objective.expression)
    assert wanted is not None
    pairs = zip(wanted.groups, wanted.target, strict=True)
    yield from (f"  wanted      {target:.4g} of {leaf.where}" for leaf, target in pairs)
    yield f"  not seen    {', '.join(case.unseen)}"


T = TypeVar("T")

MAX_SHOWN_ITEMS = 4
"""Maximum number of sweep points and pieces listed in full; beyond it, the first and the last."""
TREE_LINES = 30
TEXT_LENGTH = 300

ROLE_PHRASES = {1: "grows in", -1: "falls in", 0: "neither grows nor falls for sure in"}


def explain(prepared: PreparedExperiment) -> list[str]:
    """Return the full explanation: sweeps, and every goal with the algorithms that support it."""
    lines = [prepared.experiment.name, ""]
    lines += ["algorithms", *_indent_lines(_explain_algorithms(prepared.cases))]
    if stage := explain_filter(prepared):
        lines += ["", *stage]
    for name in ("objective", *prepared.experiment.constraints):
        title = name if name == "objective" else f"constraint {name}"
        tests = [] if name == "objective" else explain_safety(prepared, name)
        goals = explain_goal(_goal_by_point(prepared.cases, name))
        lines += ["", title, *_indent_lines([*goals, *tests])]
    if prepared.experiment.deployed is not None:
        lines += [
            "",
            "deployed model",
            f"  {_explain_deployed(prepared.experiment.deployed, prepared)}",
        ]
    metrics = case_metrics(prepared.cases)
    shown = [f"{name} = {ex.to_text(metrics[name])}" for name in prepared.experiment.metrics]
    return [*lines, "", "metrics", *_indent_lines(shown)]


def explain_goal(goals: Sequence[tuple[str, Goal]]) -> list[str]:
    """Explain a goal at its sweep points: text, tree, class, normal form, supporting algorithms."""
    label, goal = goals[0]
    objective = goal.name == "objective"
    verb = "minimize" if objective else "at most 0"
    at = (
        f" at {label}"
        if label and ex.to_text(goal.expression) != ex.to_text(goals[-1][1].expression)
        else ""
    )
    bound = "" if objective else " <= 0"
    return [
        f"as written  {goal.text}",
        f"understood  {_shorten_text(ex.to_text(goal.expression))}{bound}",
        f"class       {SHAPE_NAMES[goal.shape]}",
        f"{verb}{at}:",
        *_indent_lines(_shorten_lines(format_tree(goal.expression))),
        *_of_note(goal),
        *_ratio_note(goal),
        *_format_normal_forms(goals, objective=objective),
        *_accepting_algorithms(goal, objective=objective),
    ]


def format_tree(node: Expression) -> list[str]:
    """Format an expression as an indented tree, with slices written out."""
    heads = {ex.Sum: "sum", ex.Product: "product", ex.Quotient: "quotient"}
    if isinstance(node, ex.Constant | ex.MeasuredNode | ex.AlgorithmMetric):
        return [ex.to_text(node)]
    head = node.function if isinstance(node, ex.Apply) else heads[type(node)]
    return [
        head,
        *_indent_lines(line for child in ex.children(node) for line in format_tree(child)),
    ]


def format_normal_form(goal: Goal) -> list[str]:
    """Format the goal as solvers get it: bounds on combinations, monotone rates, or ratios."""
    return [line for piece in _first_and_last(goal.pieces) for line in _format_piece(piece, goal)]


def _format_piece(piece: Expression | None, goal: Goal) -> Iterator[str]:
    if piece is None:
        yield f"... {len(goal.pieces) - 2} more ..."
        return
    form, sums = affine(piece), ratio_sum(piece)
    if form is not None:
        yield _format_affine(form, bound=goal.name != "objective")
    elif goal.shape is Shape.CONVEX:
        yield ex.to_text(piece)
        signs = monotonicity(piece)
        for sign, words in ROLE_PHRASES.items():
            leaves = [str(leaf) for leaf, found in signs.items() if found == sign]
            if leaves:
                yield f"  {words} {'; '.join(leaves)}"
    elif sums is not None:
        if sums.affine.coefficients or sums.affine.constant:
            yield _format_affine(sums.affine, bound=False)
        for ratio in sums.ratios:
            yield f"+ {ratio.weight:g} * numerator / denominator"
            yield f"    numerator    {ex.to_text(ratio.numerator.expression())}"
            yield f"    denominator  {ex.to_text(ratio.denominator.expression())}"
    else:
        yield ex.to_text(piece)


def _format_affine(form: Affine, *, bound: bool) -> str:
    positive = positive_combination(form)
    return bound_text(positive) if bound else ex.to_text(positive.expression())


def _format_normal_forms(goals: Sequence[tuple[str, Goal]], *, objective: bool) -> Iterator[str]:
    yield "normal form" if objective else "normal form, all of it to hold"
    shown: dict[tuple[str, ...], str] = {}
    for label, goal in goals:
        shown.setdefault(tuple(format_normal_form(goal)), label)
    for entry in _first_and_last(list(shown.items())):
        if entry is None:
            yield f"  ... {len(shown) - 2} more sweep points ..."
            continue
        lines, label = entry
        head = [f"at {label}"] if label and len(shown) > 1 else []
        yield from _indent_lines([*head, *(_indent_lines(lines) if head else lines)])


def _of_note(goal: Goal) -> Iterator[str]:
    others = {part for part in ex.walk(goal.expression) if isinstance(part, ex.AlgorithmMetric)}
    for part in sorted(others, key=ex.to_text):
        when = (
            "the deployed model has decided" if part.algorithm == DEPLOYED else "that trial has run"
        )
        yield f"{ex.to_text(part)} is a number once {when}; below, {OF_PLACEHOLDER:g} stands for it"


def _ratio_note(goal: Goal) -> Iterator[str]:
    """Explain how the goal is measured where a denominator is 0."""
    for bottom in dict.fromkeys(part.denominator for part in vanishing_ratios(goal.expression)):
        yield f"undefined where {_shorten_text(ex.to_text(bottom))} is 0: then it is measured as"
        yield "  nan, and a constraint does not count as met"


def _accepting_algorithms(goal: Goal, *, objective: bool) -> Iterator[str]:
    """Yield every algorithm and whether it supports the goal."""
    yield "algorithms"
    width = max(map(len, all_algorithms()))
    for name in all_algorithms():
        try:
            found = solver_class(name)
        except FaultError as error:
            yield f"  {name:{width}}  {error.faults[0].message}"
            continue
        takes = found.objectives if objective else found.constraints
        why, _ = refusal_reason(found, goal, objective=objective)
        if found.role == "ignores":
            words = "ignores it, and is measured on it"
        elif goal.shape not in takes:
            what = "objectives" if objective else "constraints"
            words = f"cannot: it takes {' and '.join(sorted(takes))} {what}"
        elif why:
            words = f"cannot: {why}"
        else:
            words = "takes it" if found.role == "enforces" else "reads it, and promises nothing"
        yield f"  {name:{width}}  {words}"


def _explain_algorithms(cases: Sequence[Case]) -> Iterator[str]:
    for label in dict.fromkeys(case.label for case in cases):
        own = [case for case in cases if case.label == label]
        kind = "" if label == own[0].algorithm else f" ({own[0].algorithm})"
        options = ", ".join(f"{key}={value}" for key, value in all_options(own[0].solver).items())
        yield f"{label}{kind}: {options}; {len(own)} sweep point{'s' * (len(own) > 1)}"


def _explain_deployed(deployed: DeployedSpec, prepared: PreparedExperiment) -> str:
    """Describe where the deployed model's decisions come from."""
    if deployed.column is not None:
        return f"decisions are read from the column '{deployed.column}'"
    if deployed.algorithm is not None:
        label = deployed.algorithm
        return f"likelier decisions of the algorithm '{label}', at the same seed and sweep point"
    assert prepared.deployed_model is not None
    classifier = loads(prepared.deployed_model)
    seen = f"; it looks at {'; '.join(classifier.slices)}" if classifier.slices else ""
    return (
        f"likelier decisions of the classifier in '{deployed.model}' "
        f"({classifier.kind}, {classifier.width} features{seen})"
    )


def _goal_by_point(cases: Sequence[Case], name: str) -> list[tuple[str, Goal]]:
    """Return (sweep point, goal) pairs; pieces have `OF_PLACEHOLDER` in place of `of(...)`."""
    found: dict[str, Goal] = {}
    for case in cases:
        label = ", ".join(f"{key}={value}" for key, value in case.point.items())
        objective, rules = resolve_goals(case, lambda _: OF_PLACEHOLDER)
        written = {goal.name: goal.expression for goal in case.goals()}
        for goal in (objective, *rules):
            if goal.name == name:
                as_written = Goal(goal.name, goal.text, written[goal.name], goal.pieces, goal.shape)
                found.setdefault(label, as_written)
    return list(found.items())


def _first_and_last(items: Sequence[T]) -> list[T | None]:
    """Return all of a few items, else the first and the last with None in between."""
    return list(items) if len(items) <= MAX_SHOWN_ITEMS else [items[0], None, items[-1]]


def _shorten_text(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH else f"{text[:TEXT_LENGTH]}..."


def _shorten_lines(lines: list[str]) -> list[str]:
    if len(lines) <= TREE_LINES:
        return lines
    return [*lines[: TREE_LINES - 1], f"... {len(lines) - TREE_LINES + 1} more lines"]


def _indent_lines(lines: Iterator[str] | Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]
