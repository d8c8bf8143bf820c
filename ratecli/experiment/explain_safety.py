"""The safety test of a constraint as it was understood, in lines for a person to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ratecli.certify.trees import Asked, Tested, tested
from ratecli.experiment.cases import PLACEHOLDER, Case, known_goals
from ratecli.experiment.prepare import Prepared
from ratecli.experiment.safety import SafetyTest
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine
from ratecli.rates.analysis import Goal
from ratecli.sampling.rows import World, world
from ratecli.sampling.safety_rows import leaves_of, on_any_split, rates_on

FEW = 4
"""Up to so many trees, bounds of a tree, or tests of several algorithms are all shown."""
SIDES = {1: "upper", -1: "lower"}


def explain_safety(prepared: Prepared, name: str) -> list[str]:
    """What is tested of a constraint, at which delta; nothing where no algorithm is tested.

    The bounds are known once the data is there: rows tell which rates are bounded together.
    """
    found: dict[tuple[object, ...], list[Case]] = {}
    for case in prepared.cases:
        if case.safety is not None:
            found.setdefault(_what(case, case.safety, name), []).append(case)
    if not found:
        return []
    tests = list(found.values())
    shown = ["safety test, which a model must pass for every constraint to be given"]
    for alike in tests[:FEW]:
        head = [_named(alike)] if len(tests) > 1 else []
        shown += [f"  {line}" for line in (*head, *_lines(prepared, alike[0], name))]
    more = [f"  ... {len(tests) - FEW} more tests ..."] if len(tests) > FEW else []
    return [*shown, *more]


def _what(case: Case, test: SafetyTest, name: str) -> tuple[object, ...]:
    """What the lines of a case hang on."""
    rules = [ex.text(goal.expression) for goal in case.constraints if goal.name == name]
    how = test.delta[name], test.bound, test.method, test.division, case.guard.aim
    return *rules, *how, test.holdout, case.datasets


def _named(alike: Sequence[Case]) -> str:
    """The first of some cases, and how many there are."""
    point = (f"{key}={value}" for key, value in alike[0].point.items())
    more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
    return f"of {', '.join([alike[0].label, *point])}{more}"


def _lines(prepared: Prepared, case: Case, name: str) -> Iterator[str]:
    test = case.safety
    assert test is not None
    yield (
        f"delta {test.delta[name]:g}, bound {test.bound}, method {test.method}, on "
        f"{float(test.holdout.fraction):g} of the training rows{_rows(case, test)}"
    )
    if case.guard.aim is not None:
        yield f"constraints are tightened until it is passed with a chance of {case.guard.aim:g}"
    if not prepared.plan.tasks:
        yield "which bounds are needed shows once the data is there"
        return
    _, rules = known_goals(case, lambda _: PLACEHOLDER)
    (goal,) = (on_any_split(goal) for goal in rules if goal.name == name)
    rows = _world(prepared, case)
    rates, _ = rates_on(leaves_of([goal]), rows.sample, "safety")
    promise = case.promise(rows.splits()["safety"])
    assert promise is not None
    known = tested(goal, promise, rates)
    yield from _bounds(goal, known)
    if test.division == "optimized" and len(known.asked) > len(known.trees):
        yield "these deltas are a start: candidate rows tell how the delta is divided"


def _rows(case: Case, test: SafetyTest) -> str:
    """Which rows these are, where they are not just any."""
    by = [*(["data set"] if case.pooled else []), *test.holdout.stratify]
    found = [
        *(["the last ones"] if test.holdout.positional else []),
        *([f"stratified by {', '.join(by)}"] if by else []),
    ]
    return f", {', '.join(found)}: what is certified is approximate" if found else ""


def _world(prepared: Prepared, case: Case) -> World:
    deployed = prepared.experiment.deployed
    column = deployed.column if deployed else None
    data = prepared.data.only(case.datasets)
    return world(data, prepared.experiment.seeds[0], column, case.drawing)


def _bounds(goal: Goal, known: Tested) -> Iterator[str]:
    """Each bound that is needed, under its tree where there are several."""
    several = len(known.trees) > 1
    if several:
        yield f"{len(known.trees)} parts, of which each must be at most 0 at the whole delta"
    indent = "  " if several else ""
    for p, tree in enumerate(known.trees[:FEW]):
        if several:
            yield f"part {p + 1}: {ex.text(tree)}"
        for each in (each for each in known.asked if each.tree == p):
            yield f"{indent}{_bound(each, known.quantities[each.quantity])}"
    if len(known.trees) > FEW:
        yield f"... {len(known.trees) - FEW} more parts ..."
    if not known.asked:
        yield f"nothing is bounded: '{goal.name}' hangs on no rate"


def _bound(asked: Asked, quantity: Affine) -> str:
    rounded = Affine({leaf: float(f"{c:.6g}") for leaf, c in quantity.coefficients.items()})
    return f"{SIDES[asked.sign]} bound of {ex.text(rounded.expression())}, delta {asked.delta:.4g}"
