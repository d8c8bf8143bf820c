"""The safety test of a constraint as it was understood, in lines for a person to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ratecli.certify.trees import GoalTestPlan, OneSidedBound, plan_goal_test
from ratecli.experiment.cases import OF_PLACEHOLDER, Case, resolve_goals
from ratecli.experiment.prepare import PreparedExperiment
from ratecli.experiment.safety import SafetyTestSettings
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine
from ratecli.rates.analysis import Goal
from ratecli.sampling.rows import TrialData, load_trial_data
from ratecli.sampling.safety_rows import goal_leaves, rates_on_split, without_split_condition

MAX_SAFETY_CASES = 4
"""Up to so many trees, bounds of a tree, or tests of several algorithms are all shown."""
SIDE_NAMES = {1: "upper", -1: "lower"}


def explain_safety(prepared: PreparedExperiment, name: str) -> list[str]:
    """What is tested of a constraint, at which delta; nothing where no algorithm is tested.

    The bounds are known once the data is there: rows tell which rates are bounded together.
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
    """What the lines of a case hang on."""
    rules = [ex.to_text(goal.expression) for goal in case.constraints if goal.name == name]
    how = test.delta[name], test.bound, test.method, test.division, case.guard.aim
    return *rules, *how, test.holdout, case.datasets


def _format_cases(alike: Sequence[Case]) -> str:
    """The first of some cases, and how many there are."""
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
    promise = case.promise(rows.splits()["safety"])
    assert promise is not None
    known = plan_goal_test(goal, promise, rates)
    yield from _explain_bounds(goal, known)
    if test.division == "optimized" and len(known.asked) > len(known.trees):
        yield "these deltas are a start: candidate rows tell how the delta is divided"


def _describe_safety_rows(case: Case, test: SafetyTestSettings) -> str:
    """Which rows these are, where they are not just any."""
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
    """Each bound that is needed, under its tree where there are several."""
    several = len(known.trees) > 1
    if several:
        yield f"{len(known.trees)} parts, of which each must be at most 0 at the whole delta"
    indent = "  " if several else ""
    for p, tree in enumerate(known.trees[:MAX_SAFETY_CASES]):
        if several:
            yield f"part {p + 1}: {ex.to_text(tree)}"
        for each in (each for each in known.asked if each.tree == p):
            yield f"{indent}{_explain_bound(each, known.quantities[each.quantity])}"
    if len(known.trees) > MAX_SAFETY_CASES:
        yield f"... {len(known.trees) - MAX_SAFETY_CASES} more parts ..."
    if not known.asked:
        yield f"nothing is bounded: '{goal.name}' hangs on no rate"


def _explain_bound(asked: OneSidedBound, quantity: Affine) -> str:
    rounded = Affine({leaf: float(f"{c:.6g}") for leaf, c in quantity.coefficients.items()})
    return f"{SIDE_NAMES[asked.sign]} bound of {ex.to_text(rounded.expression())}, delta {asked.delta:.4g}"
