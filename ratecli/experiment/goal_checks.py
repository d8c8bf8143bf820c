"""Checks of resolved goals and of algorithm entries, made without data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ratecli.config.algorithm import AlgorithmSpec
from ratecli.config.document import Document
from ratecli.config.experiment import Experiment
from ratecli.errors import Diagnostic, Loc, Span
from ratecli.experiment.cases import OF_PLACEHOLDER, Case, resolve_goals
from ratecli.experiment.options import solver_class
from ratecli.experiment.safety import is_safety_tested, merged_safety, own_safety_keys
from ratecli.ledger.records import CONSTRAINT_TOLERANCE
from ratecli.rates import expression as ex
from ratecli.rates.affine import disclosure_bound
from ratecli.rates.analysis import (
    Goal,
    Shape,
    affine_pieces,
    constraint_goal,
    find_two_sided_rate,
    interval,
)
from ratecli.rates.expression import Expression
from ratecli.rates.metrics import BUILTIN_NAMES
from ratecli.rates.syntax import NO_SPAN
from ratecli.rates.table import DEPLOYED
from ratecli.solvers.base import Solver
from ratecli.solvers.feasibility import min_constraint_excess
from ratecli.solvers.registry import loadable_solvers


def check_swept_names(experiment: Experiment, document: Document) -> Iterator[Diagnostic]:
    """Yield an E106 for each swept name that hides a metric or function."""
    for loc in _swept_name_locs(experiment):
        if loc[-1] in BUILTIN_NAMES:
            message = f"'{loc[-1]}' is a metric or function of the language and cannot be swept"
            yield Diagnostic(
                "E106", message, "sweep another name", place=document.place(loc, key=True)
            )


def _swept_name_locs(experiment: Experiment) -> Iterator[Loc]:
    yield from (("sweep", name) for name in experiment.sweep.names)
    for index, entry in enumerate(experiment.algorithms):
        names = entry.sweep.names if entry.sweep else ()
        yield from (("algorithms", index, entry.name, "sweep", name) for name in names)


def violation_range(goal: Goal) -> tuple[float, float]:
    """Return the range of a constraint's violation over all rates; infinite with `of(...)`."""
    known = [
        part
        for part in goal.pieces
        if not any(isinstance(n, ex.AlgorithmMetric) for n in ex.walk(part))
    ]
    if len(known) < len(goal.pieces):
        return float("-inf"), float("inf")
    shaped = constraint_goal(goal.name, goal.text, goal.pieces, goal.expression)
    ranges = [interval(piece) for piece in shaped.pieces]
    low = max(low for low, _ in ranges)
    if len(goal.pieces) > 1 and shaped.shape is Shape.AFFINE:
        # comparisons may be satisfiable one by one but not together
        low = _least_chain_violation(shaped)
    return low, max(high for _, high in ranges)


def _least_chain_violation(goal: Goal) -> float:
    """Return the least violation of a chain of affine comparisons, over rates in [0, 1]."""
    forms = affine_pieces(goal)
    rates = ex.leaves(*goal.pieces)
    coefficients = np.array(
        [[form.coefficients.get(rate, 0.0) for rate in rates] for form in forms]
    )
    least = min_constraint_excess(coefficients, np.array([form.constant for form in forms]))
    return least if least > CONSTRAINT_TOLERANCE else min(least, 0.0)


SHAPE_NAMES = {
    Shape.AFFINE: "affine",
    Shape.CONVEX: "convex in the rates",
    Shape.RATIO: "a ratio of rates",
    Shape.RATIO_SUM: "a comparison of ratios of rates",
    Shape.BALANCE: "a distance of shares from given ones",
    Shape.OTHER: "neither convex nor a sum of ratios",
    Shape.ESTIMATE: "a measure of estimates of the label, not of decisions",
    Shape.DISCLOSURE: "a bound on a disclosivity",
    Shape.RANKING: "a measure of scores, which can only be reported",
    Shape.REPORTED: "more than `disclosivity(by=...) <= number`, and can only be reported",
}


DEPLOYED_HINT = (
    "say which under `deployed`: a column of its decisions, an algorithm, or the file of a model"
)


def source_text(experiment: Experiment, loc: Sequence[str | int]) -> str:
    """Return the text of the objective, a constraint or a metric, as written in the file."""
    if tuple(loc) == ("objective",):
        return experiment.objective
    part, name = loc
    texts = experiment.constraints if part == "constraints" else experiment.metrics
    return texts[str(name)]


def check_goals(experiment: Experiment, document: Document, case: Case) -> Iterator[Diagnostic]:
    """Yield an E309 for goals on rows other than training rows, E307 without a deployed model."""
    deployed = experiment.deployed is not None
    for goal in case.goals():
        loc = _goal_loc(case, goal)
        for leaf in _measured_rates(goal.expression):
            if leaf.split not in {None, "train"}:
                message = (
                    f"a goal looks at the split '{leaf.split}': algorithms see training rows only"
                )
                place = document.place(loc, leaf.span)
                yield Diagnostic("E309", message, "measure it under `metrics` instead", place=place)
    for loc, expression in case.texts():
        for leaf in _measured_rates(expression):
            if isinstance(leaf, ex.Leaf) and leaf.rate.needs_deployed and not deployed:
                message = f"'{leaf.rate.name}' compares with a deployed model, and none is given"
                yield Diagnostic(
                    "E307", message, DEPLOYED_HINT, place=document.place(loc, leaf.span)
                )
        for part in ex.walk(expression):
            if isinstance(part, ex.AlgorithmMetric) and part.algorithm == DEPLOYED and not deployed:
                text = source_text(experiment, loc)[part.span.start : part.span.end]
                message = f"'{text}' asks for a deployed model, and none is given"
                yield Diagnostic(
                    "E307", message, DEPLOYED_HINT, place=document.place(loc, part.span)
                )


def _goal_loc(case: Case, goal: Goal) -> Loc:
    return ("objective",) if goal is case.objective else ("constraints", goal.name)


def check_goal_support(document: Document, case: Case) -> Iterator[Diagnostic]:
    """Yield an E308 for each goal that the algorithm or its safety test does not support."""
    if case.solver.role == "ignores":
        yield from _check_boundable(document, case)
        return
    objective, rules = resolve_goals(case, lambda _: OF_PLACEHOLDER)
    known = {goal.name: goal for goal in (objective, *rules)}
    for goal in case.goals():
        aim = goal is case.objective
        why, span = refusal_reason(type(case.solver), known[goal.name], objective=aim)
        if why:
            verb = "enforce" if case.solver.role == "enforces" else "use"
            what = "minimize the objective" if aim else f"{verb} '{goal.name}'"
            message = f"algorithm '{case.label}' cannot {what}: {why}"
            goal_now = known[goal.name]
            able = [
                name
                for name, found in loadable_solvers()
                if _accepts_goal(found, goal_now, objective=aim)
            ]
            hint = (
                f"algorithms that can: {', '.join(able)}" if able else "no algorithm here can yet"
            )
            yield Diagnostic(
                "E308", message, hint, place=document.place(_goal_loc(case, goal), span)
            )


def _check_boundable(document: Document, case: Case) -> Iterator[Diagnostic]:
    for goal in case.constraints if case.safety is not None else ():
        for part in ex.walk(goal.expression):
            if isinstance(part, ex.RankingMeasure | ex.Disclosure):
                message = (
                    f"a safety test cannot bound '{ex.to_text(part)}': it is no mean over rows"
                )
                place = document.place(("constraints", goal.name), part.span)
                yield Diagnostic("E308", message, "measure it under `metrics` instead", place=place)


def refusal_reason(found: type[Solver], goal: Goal, *, objective: bool) -> tuple[str, Span | None]:
    """Return why an algorithm does not support a goal ("" if it does), and the span if known."""
    takes = found.objectives if objective else found.constraints
    if goal.shape not in takes:
        return (
            (
                f"it is {SHAPE_NAMES[goal.shape]}, "
                f"the algorithm takes {' and '.join(sorted(takes))} goals"
            ),
            None,
        )
    both = (
        (pair for piece in goal.pieces if (pair := find_two_sided_rate(piece)))
        if found.one_sided
        else ()
    )
    for part, leaf in both:
        span = None if part.span == NO_SPAN else part.span
        return (
            f"'{ex.to_text(part)}' neither grows nor falls for sure in '{ex.to_text(leaf)}'",
            span,
        )
    return "", None


def _accepts_goal(found: type[Solver], goal: Goal, *, objective: bool) -> bool:
    return found.role == "enforces" and not refusal_reason(found, goal, objective=objective)[0]


def check_goal_ranges(
    document: Document, found: Sequence[Case], names: Iterable[str]
) -> Iterator[Diagnostic]:
    """Yield an E305 for each goal without a rate, or that always or never holds for any classifier.

    W305 if that is so at some sweep points only. `names` are those of the constraints.
    """
    aims = [case.objective.expression for case in found if case.solver.role != "ignores"]
    if aims and not any(True for aim in aims for _ in ex.measured_nodes(aim)):
        hint = "write what is to be small, such as error"
        place = document.place(("objective",))
        yield Diagnostic("E305", "the objective speaks of no rate", hint, place=place)
    for name in names:
        goals = [goal for case in found for goal in case.constraints if goal.name == name]
        fault = (
            (_check_disclosivity_bound(name, goals) or _check_rule_range(name, goals))
            if goals
            else None
        )
        if fault:
            yield fault.at(document.place(("constraints", name)))


def _check_disclosivity_bound(name: str, goals: Sequence[Goal]) -> Diagnostic | None:
    """Return an E305 if the bound on a disclosivity is outside [0, 1] at any sweep point."""
    bounds = (
        bound for goal in goals for piece in goal.pieces if (bound := disclosure_bound(piece))
    )
    for node, alpha in bounds:
        if not 0 <= alpha <= 1:
            message = f"'{name}' bounds '{ex.to_text(node)}' by {alpha:g}"
            return Diagnostic("E305", message, "a disclosivity lies between 0 and 1")
    return None


def _check_rule_range(name: str, goals: Sequence[Goal]) -> Diagnostic | None:
    """Return an E305 or W305 for a constraint, given its goal at all sweep points."""
    if not any(True for goal in goals for _ in ex.measured_nodes(goal.expression)):
        hint = "a rule compares a rate, such as positive_rate[women], with something"
        return Diagnostic("E305", f"'{name}' speaks of no rate", hint)
    ranges = [violation_range(goal) for goal in goals]
    hint = "rates lie between 0 and 1"
    if all(high <= 0 for _, high in ranges):
        return Diagnostic("E305", f"'{name}' always holds, whatever the classifier does", hint)
    if all(low > 0 for low, _ in ranges):
        return Diagnostic("E305", f"'{name}' can never hold, whatever the classifier does", hint)
    # bounds on a disclosivity may be swept up to 1, which is no restriction
    budgets = all(disclosure_bound(piece) for goal in goals for piece in goal.pieces)
    if not budgets and any(high <= 0 or low > 0 for low, high in ranges):
        return Diagnostic("W305", f"'{name}' holds always or never at some sweep points", hint)
    return None


def _measured_rates(node: Expression) -> Iterator[ex.MeasuredNode]:
    """Yield the measured rates of an expression, including those inside `of(...)`."""
    yield from ex.measured_nodes(node)
    for part in ex.walk(node):
        if isinstance(part, ex.AlgorithmMetric):
            yield from ex.measured_nodes(part.metric)


MARGIN_KEYS = ("constraints_on", "margin")
"""Keys of an entry that tighten its constraints."""


def check_algorithm_entry(
    experiment: Experiment, document: Document, entry: AlgorithmSpec, at: Loc
) -> Iterator[Diagnostic]:
    """Yield diagnostics about an algorithm's entry, whose location is `at`.

    E307, E102 for what the algorithm needs; E104 for a margin without effect, or specified twice.
    """
    found = solver_class(entry.name)
    place = document.place(at, key=True)
    if found.needs_deployed and experiment.deployed is None:
        message = f"'{entry.name}' takes the deployed model, and none is given"
        yield Diagnostic("E307", message, DEPLOYED_HINT, place=place)
    if found.needs_promise and not is_safety_tested(experiment, entry):
        message = f"'{entry.name}' trains for a safety test, and there is none"
        yield Diagnostic("E102", message, "say safety: {delta: 0.05}", place=place)
    for key, message, hint in _useless_margin_keys(experiment, entry):
        yield Diagnostic("E104", message, hint, place=document.place((*at, *key)))


def check_filter_compatibility(
    experiment: Experiment,
    document: Document,
    entry: AlgorithmSpec,
    at: Loc,
    *,
    take: str,
    aim: float | None,
) -> Iterator[Diagnostic]:
    """Yield an E104 for an algorithm that cannot work with the filtered training rows.

    The prediction of a safety test requires rows of equal weight. The audit of a stored model must
    encode features as they are without the filter.
    """
    found, place = solver_class(entry.name), document.place(at, key=True)
    predicts = found.needs_promise or (aim is not None and found.role == "enforces")
    if predicts and take == "weights":
        message = (
            f"'{entry.label}' predicts its safety test from training rows that count alike, "
            "and the filter weighs them"
        )
        hint = "say take: sample of the filter, or filter: false here"
        yield Diagnostic("E104", message, hint, place=place)
    stored = experiment.deployed is not None and experiment.deployed.model is not None
    if found.needs_deployed and stored:
        message = f"'{entry.label}' takes a stored model as it is: no rows are filtered for it"
        yield Diagnostic("E104", message, "say filter: false here", place=place)


def _useless_margin_keys(
    experiment: Experiment, entry: AlgorithmSpec
) -> Iterator[tuple[Loc, str, str]]:
    """Yield (key, message, hint) for each key of the entry that has no effect on its trials."""
    found, given = solver_class(entry.name), [key for key in MARGIN_KEYS if _states_key(entry, key)]
    if found.role != "enforces":
        for key in given:
            message = f"'{entry.name}' promises nothing: '{key}' has nothing to hold"
            yield (key,), message, "leave it out"
        if own_safety_keys(entry).get("aim") is not None:
            message = f"'{entry.name}' holds no constraint: there is none to tighten for an 'aim'"
            yield ("safety", "aim"), message, "leave it out"
        return
    test = merged_safety(experiment, entry)
    for key in given:
        if found.needs_promise:
            message = (
                f"'{entry.name}' leaves room for its safety test itself, whatever '{key}' says"
            )
            yield (key,), message, "say how much by `inflation`, or by the 'aim' of the test"
        elif test is not None and test.test and test.aim is not None:
            message = f"'aim' of the safety test says how much room there is, and so does '{key}'"
            yield (key,), message, "leave one out"


def _states_key(entry: AlgorithmSpec, key: str) -> bool:
    return bool(getattr(entry, key) != AlgorithmSpec.model_fields[key].default)
