"""What can be wrong with goals that were understood, before any data is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ratecli.config.document import Document, Loc
from ratecli.config.experiment import Experiment
from ratecli.errors import Fault, Span
from ratecli.experiment.cases import PLACEHOLDER, Case, known_goals
from ratecli.experiment.ranges import violation_range
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal, Shape, two_sided
from ratecli.rates.balance import disclosure
from ratecli.rates.expression import Expression
from ratecli.rates.syntax import NOWHERE
from ratecli.rates.table import DEPLOYED
from ratecli.solvers.base import Solver
from ratecli.solvers.registry import working

SHAPES = {
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


WHICH = (
    "say which under `deployed`: a column of its decisions, an algorithm, or the file of a model"
)


def written(experiment: Experiment, loc: Sequence[str | int]) -> str:
    """The text of the objective, a constraint or a metric, as the file has it."""
    if tuple(loc) == ("objective",):
        return experiment.objective
    part, name = loc
    texts = experiment.constraints if part == "constraints" else experiment.metrics
    return texts[str(name)]


def goal_faults(experiment: Experiment, document: Document, case: Case) -> Iterator[Fault]:
    """E309 where a goal looks at other rows than those of training, E307 without a deployed model."""
    deployed = experiment.deployed is not None
    for goal in case.goals():
        loc = _loc(case, goal)
        for leaf in _all_measured(goal.expression):
            if leaf.split not in {None, "train"}:
                message = (
                    f"a goal looks at the split '{leaf.split}': algorithms see training rows only"
                )
                place = document.place(loc, leaf.span)
                yield Fault("E309", message, "measure it under `metrics` instead", place=place)
    for loc, expression in case.texts():
        for leaf in _all_measured(expression):
            if isinstance(leaf, ex.Leaf) and leaf.rate.needs_deployed and not deployed:
                message = f"'{leaf.rate.name}' compares with a deployed model, and none is given"
                yield Fault("E307", message, WHICH, place=document.place(loc, leaf.span))
        for part in ex.walk(expression):
            if isinstance(part, ex.Of) and part.algorithm == DEPLOYED and not deployed:
                text = written(experiment, loc)[part.span.start : part.span.end]
                message = f"'{text}' asks for a deployed model, and none is given"
                yield Fault("E307", message, WHICH, place=document.place(loc, part.span))


def _loc(case: Case, goal: Goal) -> Loc:
    return ("objective",) if goal is case.objective else ("constraints", goal.name)


def refused_goals(document: Document, case: Case) -> Iterator[Fault]:
    """An E308 for each goal that the case's algorithm is given and does not take, or that its safety
    test cannot bound.
    """
    if case.solver.role == "ignores":
        yield from _unbounded(document, case)
        return
    objective, rules = known_goals(case, lambda _: PLACEHOLDER)
    known = {goal.name: goal for goal in (objective, *rules)}
    for goal in case.goals():
        aim = goal is case.objective
        why, span = refusal(type(case.solver), known[goal.name], objective=aim)
        if why:
            verb = "enforce" if case.solver.role == "enforces" else "use"
            what = "minimize the objective" if aim else f"{verb} '{goal.name}'"
            message = f"algorithm '{case.label}' cannot {what}: {why}"
            goal_now = known[goal.name]
            able = [name for name, found in working() if _takes(found, goal_now, objective=aim)]
            hint = (
                f"algorithms that can: {', '.join(able)}" if able else "no algorithm here can yet"
            )
            yield Fault("E308", message, hint, place=document.place(_loc(case, goal), span))


def _unbounded(document: Document, case: Case) -> Iterator[Fault]:
    for goal in case.constraints if case.safety is not None else ():
        for part in ex.walk(goal.expression):
            if isinstance(part, ex.Ranking | ex.Disclosure):
                message = f"a safety test cannot bound '{ex.text(part)}': it is no mean over rows"
                place = document.place(("constraints", goal.name), part.span)
                yield Fault("E308", message, "measure it under `metrics` instead", place=place)


def refusal(found: type[Solver], goal: Goal, *, objective: bool) -> tuple[str, Span | None]:
    """Why an algorithm does not take a goal, "" if it does, and where in its text, if it is a part."""
    takes = found.objectives if objective else found.constraints
    if goal.shape not in takes:
        return (
            f"it is {SHAPES[goal.shape]}, the algorithm takes {' and '.join(sorted(takes))} goals",
            None,
        )
    both = (pair for piece in goal.pieces if (pair := two_sided(piece))) if found.one_sided else ()
    for part, leaf in both:
        span = None if part.span == NOWHERE else part.span
        return f"'{ex.text(part)}' neither grows nor falls for sure in '{ex.text(leaf)}'", span
    return "", None


def _takes(found: type[Solver], goal: Goal, *, objective: bool) -> bool:
    return found.role == "enforces" and not refusal(found, goal, objective=objective)[0]


def range_faults(
    document: Document, found: Sequence[Case], names: Iterable[str]
) -> Iterator[Fault]:
    """E305 for a goal that says nothing, or that nothing can meet, whatever the classifier.

    W305 where that is so at some sweep points only; `names` are those of the constraints.
    """
    aims = [case.objective.expression for case in found if case.solver.role != "ignores"]
    if aims and not any(True for aim in aims for _ in ex.measured(aim)):
        hint = "write what is to be small, such as error"
        place = document.place(("objective",))
        yield Fault("E305", "the objective speaks of no rate", hint, place=place)
    for name in names:
        goals = [goal for case in found for goal in case.constraints if goal.name == name]
        fault = (_disclosed(name, goals) or _vacuous(name, goals)) if goals else None
        if fault:
            yield fault.at(document.place(("constraints", name)))


def _disclosed(name: str, goals: Sequence[Goal]) -> Fault | None:
    """An E305 for a bound on a disclosivity that none can have, at any sweep point."""
    bounds = (bound for goal in goals for piece in goal.pieces if (bound := disclosure(piece)))
    for node, alpha in bounds:
        if not 0 <= alpha <= 1:
            message = f"'{name}' bounds '{ex.text(node)}' by {alpha:g}"
            return Fault("E305", message, "a disclosivity lies between 0 and 1")
    return None


def _vacuous(name: str, goals: Sequence[Goal]) -> Fault | None:
    """What is wrong with a rule, given at all its sweep points."""
    if not any(True for goal in goals for _ in ex.measured(goal.expression)):
        hint = "a rule compares a rate, such as positive_rate[women], with something"
        return Fault("E305", f"'{name}' speaks of no rate", hint)
    ranges = [violation_range(goal) for goal in goals]
    hint = "rates lie between 0 and 1"
    if all(high <= 0 for _, high in ranges):
        return Fault("E305", f"'{name}' always holds, whatever the classifier does", hint)
    if all(low > 0 for low, _ in ranges):
        return Fault("E305", f"'{name}' can never hold, whatever the classifier does", hint)
    budgets = all(
        disclosure(piece) for goal in goals for piece in goal.pieces
    )  # up to 1, which is none
    if not budgets and any(high <= 0 or low > 0 for low, high in ranges):
        return Fault("W305", f"'{name}' holds always or never at some sweep points", hint)
    return None


def _all_measured(node: Expression) -> Iterator[ex.Measured]:
    """Also what `of(...)` measures."""
    yield from ex.measured(node)
    for part in ex.walk(node):
        if isinstance(part, ex.Of):
            yield from ex.measured(part.metric)
