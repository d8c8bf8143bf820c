"""Checks of goals, metrics and algorithm entries, made without data."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from ratecli.config.dataset import DatasetSpec
from ratecli.config.experiment import Problem
from ratecli.config.trials import AlgorithmSpec
from ratecli.datasets.registry import logged_columns
from ratecli.errors import Diagnostic, Loc, Span, did_you_mean
from ratecli.experiment.cases import Case, measured_rates, references, resolve_goals
from ratecli.experiment.entries import (
    merged_safety,
    own_safety_keys,
    solver_class,
    usable_solvers,
)
from ratecli.rates import expression as ex
from ratecli.rates.affine import disclosure_bound
from ratecli.rates.analysis import (
    Goal,
    Shape,
    compare_in_pairs,
    constraint_goal,
    find_two_sided_rate,
    interval,
    nonconvex_terms,
    nonquadratic_part,
)
from ratecli.rates.syntax import NO_SPAN
from ratecli.rates.table import DEPLOYED, RATES
from ratecli.solvers.base import Solver
from ratecli.solvers.oracles.choice import LINEAR_MODEL, is_linear, is_regressor, model_name
from ratecli.solvers.registry import all_algorithms, ranked_algorithms

SHAPE_NAMES = {
    Shape.AFFINE: "affine",
    Shape.CONVEX: "convex in the rates",
    Shape.RATIO: "a ratio of rates",
    Shape.RATIO_SUM: "a comparison of ratios of rates",
    Shape.BALANCE: "a distance of shares from given ones",
    Shape.SMOOTH: "smooth, but neither convex in the rates nor a comparison of ratios of rates",
    Shape.OTHER: "neither convex in the rates nor a comparison of ratios of rates",
    Shape.QUADRATIC: "a measure of estimates or of returns, not of decisions",
    Shape.ESTIMATE: "a measure of estimates or of returns, not of decisions",
    Shape.DISCLOSURE: "a bound on a disclosivity",
    Shape.RANKING: "a measure of scores, which can only be reported",
    Shape.REPORTED: "more than `disclosivity(by=...) <= number`, and can only be reported",
}
SAFETY_HINT = "add safety: {delta: 0.05}"
NUMERIC_ERROR_RATES = frozenset({"error", "squared_error"})
"""Kinds of measurement that exist for numeric labels (`rates.table.Measurement`)."""
DEPLOYED_HINT = "set `deployed` to a column of its decisions, an algorithm, or the file of a model"
MEASURE_HINT = "measure it under `metrics` instead"


def check_entry(
    problem: Problem, entry: AlgorithmSpec, found: type[Solver], take: str | None
) -> Iterator[Diagnostic]:
    """Yield an error for each requirement of an algorithm that its entry does not satisfy.

    E307 without a deployed model, E102 without a safety test, E104 for a margin that has no effect
    or is specified twice, and for a filter that does not suit the algorithm. `take` says how the
    filter is applied; None without a filter.
    """
    loc, deployed = problem.entry_loc(entry.label), problem.deployed
    test, enforces = merged_safety(problem, entry), found.role == "enforces"
    if test is not None and not test.test:
        test = None  # rows are held out only
    makes_room = found.needs_safety_test or (test is not None and test.aim is not None)

    def error(code: str, reason: str, hint: str) -> Diagnostic:
        return Diagnostic(code, f"'{entry.label}' {reason}", hint, loc=loc, key=True)

    if found.needs_deployed and deployed is None:
        yield error("E307", "needs a deployed model, but there is none", DEPLOYED_HINT)
    if found.needs_safety_test and test is None:
        yield error("E102", "trains for a safety test, but there is none", SAFETY_HINT)
    if enforces and makes_room and take == "weights":
        reason = "needs rows of equal weight to plan for its safety test; the filter weights them"
        yield error("E104", reason, "set take: sample in the filter, or filter: false here")
    if found.needs_deployed and deployed and deployed.model is not None and take is not None:
        # the audit must encode features as they are without the filter
        reason = "uses the stored model as it is, so a filter has no effect"
        yield error("E104", reason, "set filter: false here")
    holds = entry.holds or problem.holds
    reads = found.role == "reads" and not found.hides_groups and bool(problem.constraints)
    if reads and entry.holds is None and holds != "train":
        reason = f"ignores `holds: {holds}` and uses training rows only"
        hint = "use post_shift or another algorithm that enforces constraints on new rows"
        yield error("W402", reason, hint)
    idle = {
        ("holds",): entry.holds not in {None, "train"} and (makes_room or not enforces),
        ("level",): entry.level is not None and (makes_room or not enforces),
        ("safety", "aim"): own_safety_keys(entry).get("aim") and not enforces,
    }
    reason = "its safety test sets the margin" if enforces else "it enforces no constraint"
    for inside in (inside for inside, is_given in idle.items() if is_given):
        message = f"'{inside[-1]}' of '{entry.name}' has no effect: {reason}"
        yield Diagnostic("E104", message, "leave it out", loc=(*loc, *inside))


def check_case(
    problem: Problem, datasets: Mapping[str, DatasetSpec], case: Case, numeric: Collection[str]
) -> Iterator[Diagnostic]:
    """Yield the errors of a case; `numeric` are the data sets whose labels are numbers.

    E309 for goals on rows other than training rows, E307 without a deployed model, E205 for a data
    set without the existing score that the algorithm uses, E306, E308 and E411 for labels that do
    not match.
    """
    for loc, goal in case.located_goals():
        yield from (fault.under(*loc) for fault in check_goal_splits(goal.expression))
    for loc, tree in case.expressions() if problem.deployed is None else ():
        parts: list[ex.Expression] = [*references(tree, DEPLOYED)]
        leaves = (leaf for leaf in measured_rates(tree) if isinstance(leaf, ex.Leaf))
        parts += (leaf for leaf in leaves if leaf.rate.needs_deployed)
        for part in parts:
            message = f"'{ex.to_text(part)}' needs a deployed model, but there is none"
            yield Diagnostic("E307", message, DEPLOYED_HINT, loc=loc, span=part.span)
    for name in case.datasets if (score := case.solver.score_column) else ():
        known = list(datasets[name].scores or ())
        if score not in known:
            message = f"data set '{name}' has no score '{score}'"
            hint = did_you_mean(score, known, "scores") if known else f"add scores: [{score}] to it"
            loc = problem.entry_loc(case.label, "model")
            yield Diagnostic("E205", message, hint, loc=loc)
    numbers = [name for name in case.datasets if name in numeric]
    classes = [name for name in case.datasets if name not in numeric]
    if numbers and classes:
        message = (
            f"'{numbers[0]}' and '{classes[0]}' form one table, "
            f"but only the labels of '{numbers[0]}' are numbers"
        )
        hint = f"use them one by one: sweep: {{dataset: [{', '.join(case.datasets)}]}}"
        yield Diagnostic("E411", message, hint, loc=("datasets", numbers[0]), key=True)
    elif numbers:
        levels = [("datasets", name, "levels") for name in numbers if datasets[name].levels]
        yield from _check_numeric_labels(case, levels, problem.entry_loc(case.label))
    elif not case.solver.takes_classes:
        model = getattr(case.solver, "model", LINEAR_MODEL)
        options = {"model": model_name(model)} if is_regressor(model) else case.solver.numbers or {}
        listed = ", ".join(f"{key}: {value}" for key, value in options.items())
        what = f"'{listed}' of '{case.label}'" if listed else f"algorithm '{case.label}'"
        message = f"{what} estimates numbers, but the label is read as two classes"
        hint = "use another one, or set `target: number` if the label is a number"
        loc = problem.entry_loc(case.label)
        yield Diagnostic("E308", message, hint, loc=loc, key=True)


def check_goal_splits(goal: ex.Expression) -> Iterator[Diagnostic]:
    """Yield an E309 for each rate of a goal on rows other than training rows."""
    for leaf in measured_rates(goal):
        if leaf.split not in {None, "train"}:
            message = f"a goal uses the split '{leaf.split}', but training only sees training rows"
            yield Diagnostic("E309", message, MEASURE_HINT, span=leaf.span)


def _check_numeric_labels(case: Case, levels: Sequence[Loc], entry: Loc) -> Iterator[Diagnostic]:
    """Yield errors of everything in a case that needs labels of two classes."""
    for loc in levels:
        message = "'levels' are thresholds of decisions, but the label is a number"
        yield Diagnostic("E104", message, "leave it out", loc=loc, key=True)
    rates = " and ".join(name for name, rate in RATES.items() if rate.of in NUMERIC_ERROR_RATES)
    for loc, tree in case.expressions():
        for leaf in measured_rates(tree):
            if not isinstance(leaf, ex.Leaf) or leaf.rate.of not in NUMERIC_ERROR_RATES:
                message = f"'{ex.to_text(leaf)}' needs labels of two classes, not numbers"
                hint = f"rates of numbers: {rates}"
                yield Diagnostic("E306", message, hint, loc=loc, span=leaf.span)
    if case.solver.learns("numbers"):
        return
    model = getattr(case.solver, "model", LINEAR_MODEL)
    message = f"algorithm '{case.label}' needs labels of two classes, not numbers"
    hint = f"algorithms that can: {_algorithms_for('numbers')}"
    if type(case.solver).numbers is not None and not is_linear(model):
        message = f"the model '{model_name(model)}' of '{case.label}' predicts no numbers"
        hint = "name a regressor, such as HistGradientBoostingRegressor or LGBMRegressor"
    yield Diagnostic("E308", message, hint, loc=entry, key=True)


def _algorithms_for(rows: Literal["numbers", "streams", "episodes"]) -> str:
    """List the algorithms that learn numeric labels, streamed rows or policies, as files do."""
    found = []
    for name, solver in usable_solvers():
        options = getattr(solver, rows)
        if options is not None and not options.keys() & all_algorithms()[name].preset.keys():
            found.append(f"{name}: {json.dumps(options)}" if options else name)
    return ", ".join(found)


def check_support(
    problem: Problem, datasets: Mapping[str, DatasetSpec], case: Case, numeric: Collection[str]
) -> Iterator[Diagnostic]:
    """Yield an E308 for each goal that the algorithm does not support.

    E414 for everything that needs streamed rows in memory. `numeric` as in `check_case`.
    """
    yield from _check_streamed_rows(problem, datasets, case)
    yield from _check_episodes(problem, datasets, case)
    if case.solver.role == "ignores":
        return
    numbers = any(name in numeric for name in case.datasets)
    objective, rules = resolve_goals(case)
    refused = False
    for (loc, _), goal in zip(case.located_goals(), (objective, *rules), strict=True):
        aim = goal is objective
        why, span = refusal_reason(type(case.solver), goal, objective=aim)
        if why:
            verb = "enforce" if case.solver.role == "enforces" else "use"
            what = "minimize the objective" if aim else f"{verb} '{goal.name}'"
            message = f"algorithm '{case.label}' cannot {what}: {why}"
            hint = _who_can(problem, case, goal, numbers=numbers)
            yield Diagnostic("E308", message, hint, loc=loc, span=span)
            refused = True
    if rules and not refused and (why := case.solver.refusal(None, rules)):
        message = f"algorithm '{case.label}' cannot enforce these rules together: {why}"
        yield Diagnostic("E308", message, loc=("constraints", rules[-1].name))


def _who_can(problem: Problem, case: Case, goal: Goal, *, numbers: bool) -> str:
    """Return help for a goal that an algorithm does not support: the algorithms that do."""
    aim = goal.name == "objective"
    able = [
        name
        for name, found in usable_solvers()
        if found.role == "enforces"
        and (found.numbers is not None if numbers else found().takes_classes)
        and not refusal_reason(found, goal, objective=aim)[0]
    ]
    named = [f"{each.name} ({each.choice})" for each in ranked_algorithms() if each.name in able]
    hint = f"algorithms that can: {', '.join(named)}"
    if problem.safety is None and all(solver_class(x).needs_safety_test for x in able):
        hint += f"; {SAFETY_HINT}"
    if not able:
        hint = "no algorithm can; list it in `metrics` to measure it"
    if goal.shape is Shape.RANKING:
        hint += f". {AREA_HINT}"
    if goal.shape in {Shape.QUADRATIC, Shape.ESTIMATE} and not numbers:
        hint = f"set target: number in the data set if its label is a number; {hint}"
    if aim:
        return hint
    pieces = tuple(map(ex.negate, goal.pieces))
    reversed_ = constraint_goal(goal.name, goal.text, pieces, ex.negate(goal.expression))
    if not refusal_reason(type(case.solver), reversed_, objective=False)[0]:
        hint = f"did you mean {'>=' if '<=' in goal.text else '<='}? {hint}"
    return hint


def refusal_reason(found: type[Solver], goal: Goal, *, objective: bool) -> tuple[str, Span | None]:
    """Return why an algorithm does not support a goal ("" if it does), and the span if known."""
    takes = found.objectives if objective else found.constraints
    if goal.shape not in takes and goal.shape is Shape.ESTIMATE and Shape.QUADRATIC in takes:
        part = next(part for piece in goal.pieces if (part := nonquadratic_part(piece)))
        why = f"'{ex.to_text(part)}' is not a sum of mse and mean_error"
        if isinstance(part, ex.Leaf) and part.rate.of == "squared_error":
            why = f"it subtracts '{part.rate.name}', which is not convex: bound that of each group"
        return why, None if part.span == NO_SPAN else part.span
    if goal.shape not in takes:
        listed = " and ".join(", ".join(sorted(takes)).rsplit(", ", 1))
        what, span = "it", None
        if goal.shape in {Shape.SMOOTH, Shape.OTHER}:
            part = next(part for piece in goal.pieces for part in nonconvex_terms(piece))
            span = None if part.span == NO_SPAN else part.span
            text = goal.text[span.start : span.end] if span else ex.to_text(part)
            what = f"'{shorten_text(text, 100)}'"
        why = f"{what} is {SHAPE_NAMES[goal.shape]}; the algorithm supports only {listed} goals"
        return why, span
    for pair in map(find_two_sided_rate, goal.pieces) if found.one_sided else ():
        if pair is not None:
            part, leaf = pair
            text = shorten_text(ex.to_text(part), 100)
            why = f"'{text}' is not known to be monotone in '{ex.to_text(leaf)}'"
            return why, None if part.span == NO_SPAN else part.span
    return (found.refusal(goal, ()) if objective else found.refusal(None, [goal])), None


def shorten_text(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}..."


def _check_streamed_rows(
    problem: Problem, datasets: Mapping[str, DatasetSpec], case: Case
) -> Iterator[Diagnostic]:
    """Yield an E414 for everything in a case that needs streamed rows in memory."""
    name = next((name for name in case.datasets if datasets[name].stream), None)
    if name is None:
        return
    deployed, entry = problem.deployed, problem.entry_loc(case.label)
    needs: list[tuple[bool, Loc, str]] = [
        (len(case.datasets) > 1, ("datasets", name), "a table of several data sets"),
        (case.share is not None, ("resample",), "resampling"),
        (case.holdout is not None, ("safety",), "a safety test"),
        (case.filtering is not None, ("filter",), "a filter"),
        (deployed is not None and deployed.column is None, ("deployed",), "a deployed model"),
        (not case.solver.learns("streams"), entry, f"algorithm '{case.label}'"),
        (
            case.guard.level is not None and datasets[name].weight is not None,
            problem.holds_loc(case.label),
            "a margin for new rows of unequal weight",
        ),
    ]
    for needed, loc, what in needs:
        if needed:
            message = f"{what} needs all rows in memory, but '{name}' is streamed"
            hint = "read the table into memory: stream: false"
            if loc == entry:
                hint += f"; or use an algorithm that can: {_algorithms_for('streams')}"
            yield Diagnostic("E414", message, hint, loc=loc, key=True)
    for loc, tree in case.expressions():
        for part in measured_rates(tree):
            if isinstance(part, ex.RankingMeasure):
                message = f"'{ex.to_text(part)}' sorts all rows, but '{name}' is streamed"
                yield Diagnostic("E414", message, "leave it out", loc=loc, span=part.span)


def _check_episodes(
    problem: Problem, datasets: Mapping[str, DatasetSpec], case: Case
) -> Iterator[Diagnostic]:
    """Yield an E308 for an algorithm that learns no policies, E411 for several tables."""
    logged = {name: logged_columns(datasets[name]) for name in case.datasets}
    episodic = [name for name, columns in logged.items() if columns and columns.episode]
    if episodic and not case.solver.learns("episodes"):
        message = f"algorithm '{case.label}' learns no policies of episodes"
        hint = f"algorithms that can: {_algorithms_for('episodes')}"
        yield Diagnostic("E308", message, hint, loc=problem.entry_loc(case.label), key=True)
    for loc, goal in case.located_goals():
        for leaf in ex.leaves(goal.expression):
            if leaf.rate.name == "return_true":
                message = f"a goal uses '{ex.to_text(leaf)}', which no log tells"
                yield Diagnostic("E309", message, MEASURE_HINT, loc=loc, span=leaf.span)
    if episodic and len(logged) > 1:
        message = f"'{episodic[0]}' has episodes and cannot be pooled with other data sets"
        hint = f"use them one by one: sweep: {{dataset: [{', '.join(logged)}]}}"
        yield Diagnostic("E411", message, hint, loc=("datasets", episodic[0]), key=True)


AREA_HINT = (
    "An area made of rates can be a goal: with `levels: 10` in the data set, write for example "
    "'1 - mean(tpr, by=level)' with an upper bound on fpr[level = 0] to fpr[level = 9]"
)
RATE_RANGE = "rates, the largest difference and the smallest ratio lie between 0 and 1"
CONTRADICTION = 1e-9
"""Two constraints contradict each other if the sum of their violations is always larger."""


def check_goal_ranges(cases: Sequence[Case], constraints: Collection[str]) -> Iterator[Diagnostic]:
    """Yield an E305 for each goal without a rate, or that always or never holds for any classifier.

    Also for two constraints that contradict each other. W305 if that is so at some sweep points
    only. `constraints` are names.
    """
    aims = [case.objective.expression for case in cases if case.solver.role != "ignores"]
    if aims and not any(_has_rate(aim) for aim in aims):
        hint = "write the rates to minimize, such as error"
        yield Diagnostic("E305", "the objective contains no rate", hint, loc=("objective",))
    # algorithms share the goals of a sweep point
    goals_at = {tuple(map(id, case.constraints)): case.constraints for case in cases}.values()
    for name in constraints:
        goals = [goal for goals in goals_at for goal in goals if goal.name == name]
        fault = _range_error(name, goals) if goals else None
        if fault is not None:
            code, message, hint = fault
            yield Diagnostic(code, message, hint, loc=("constraints", name))
    found = [_contradictions(goals, list(constraints)) for goals in goals_at]
    for pair in dict.fromkeys(pair for pairs in found for pair in pairs):
        everywhere = all(pair in pairs for pairs in found)
        message = f"no classifier satisfies both '{pair[0]}' and '{pair[1]}'"
        message += " at some sweep points" * (not everywhere)
        code = "E305" if everywhere else "W305"
        yield Diagnostic(code, message, "change the limit of one", loc=("constraints", pair[1]))


def _contradictions(constraints: Sequence[Goal], names: Sequence[str]) -> set[tuple[str, str]]:
    """Return pairs of constraints that exclude each other, each in the order of `names`."""
    found, known = set(), defaultdict[frozenset[ex.Leaf], list[tuple[str, ex.Expression]]](list)
    for goal in sorted(constraints, key=lambda goal: names.index(goal.name)):
        for piece in goal.pieces:
            if interval(piece)[0] > 0:  # which is an error of its own
                continue
            same = known[frozenset(ex.leaves(piece))]
            for name, other in same:
                if name != goal.name and interval(ex.add(piece, other))[0] > CONTRADICTION:
                    found.add((name, goal.name))
            same.append((goal.name, piece))
    return found


def _has_rate(tree: ex.Expression) -> bool:
    return any(True for _ in ex.measured_nodes(tree))


def _range_error(name: str, goals: Sequence[Goal]) -> tuple[str, str, str] | None:
    """Return code, message and hint for a constraint, given its goal at all sweep points."""
    bounds = [disclosure_bound(piece) for goal in goals for piece in goal.pieces]
    if not any(_has_rate(goal.expression) for goal in goals):
        hint = "compare a rate, such as positive_rate[women], with a number or another rate"
        return "E305", f"'{name}' contains no rate", hint
    ranges, hint = [violation_range(goal) for goal in goals], RATE_RANGE
    if all(high <= 0 for _, high in ranges):
        return "E305", f"'{name}' always holds, whatever the classifier does", hint
    if all(low > 0 for low, _ in ranges):
        return "E305", f"'{name}' can never hold, whatever the classifier does", hint
    # bounds on a disclosivity may be swept up to 1, which is no restriction
    ends = [high for _, high in ranges if not all(bounds)]
    if any(high <= 0 for high in ends) or any(low > 0 for low, _ in ranges):
        return "W305", f"'{name}' holds always or never at some sweep points", hint
    return None


def violation_range(goal: Goal) -> tuple[float, float]:
    """Return the range of a constraint's violation over all rates; infinite with `of(...)`."""
    if any(map(references, goal.pieces)):
        return -np.inf, np.inf
    limited = ex.transform(compare_in_pairs(goal.expression), _with_limit)
    shaped = constraint_goal(goal.name, goal.text, (limited,), goal.expression)
    ranges = [interval(piece) for piece in shaped.pieces]
    return max(low for low, _ in ranges), max(high for _, high in ranges)


def _with_limit(node: ex.Expression) -> ex.Expression | None:
    """Limit a largest two-sided difference to at least 0, a smallest ratio to at most 1."""
    match node:
        case ex.Apply("max", (ex.Apply("sum", (left, right)), *_)):
            other, limit = ex.subtract(ex.negate(right), left), ex.Constant(0.0)
        case ex.Apply("min", (ex.Apply("quotient", (left, right)), *_)):
            other, limit = ex.divide(right, left), ex.Constant(1.0)
        case _:
            return None
    return replace(node, arguments=(*node.arguments, limit)) if other in node.arguments else None
