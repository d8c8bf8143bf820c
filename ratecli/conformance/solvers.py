"""Checks of solvers: their declarations, options, solutions, behaviour and optimality gaps."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import get_args

import numpy as np
from pydantic import TypeAdapter

from ratecli.conformance import checks as ck
from ratecli.conformance import problems as tiny
from ratecli.conformance.problems import SolverRun, SolverRuns
from ratecli.errors import FaultError
from ratecli.experiment.entries import all_options
from ratecli.ledger.records import TrialResult, trial_key
from ratecli.ledger.store import check_storable
from ratecli.models.storage import dumps, loads
from ratecli.rates.analysis import Shape
from ratecli.runner.trial import check_outputs
from ratecli.solvers.base import Role, Solver
from ratecli.solvers.hull.master import MAX_EXCESS

TRACE_KEYS = {"iteration", "objective", "violation", "seconds"}
OBJECTIVE_TOLERANCE = 1e-6
"""Rounding may make an objective look better than the optimum by this much."""
SIMILAR_OBJECTIVE = 0.03
"""Largest difference between the objectives of two equivalent problems.

Randomized searches may end at different solutions.
"""


def check_solver(
    solver: type[Solver] | Solver, *, name: str = "", origin: str = ""
) -> ck.PluginReport:
    """Check a solver's class, or an instance with its own options.

    The solver runs about thirty times on tables of 60 rows, on problems with known optima. If
    its declarations or options are wrong, the other checks are skipped.
    """
    runs = SolverRuns(solver() if isinstance(solver, type) else solver)
    kind = type(runs.solver)
    checks = ck.run_checks(runs, SOLVER_CHECKS, SOLVER_DECLARATIONS)
    report = ck.PluginReport("algorithm", name or kind.__name__, origin or kind.__module__, checks)
    if not report.holds or not runs.goals:
        return report
    return replace(report, gaps=tuple(run.gap() for _, run in tiny.plain_runs(runs)))


def declares_what_it_supports(runs: SolverRuns) -> Iterator[str]:
    """Set role, objectives, constraints, version."""
    kind = type(runs.solver)
    if kind.role not in get_args(Role):
        yield f"its role is '{kind.role}', not one of {', '.join(get_args(Role))}"
    for key in ("objectives", "constraints"):
        classes = getattr(kind, key)
        for unknown in set(classes) - set(Shape):
            yield f"'{unknown}' among its {key} is not a class of goals"
        if bool(classes) is (kind.role == "ignores"):
            yield f"its role is '{kind.role}', but its {key} are {sorted(classes) or 'empty'}"
    if not isinstance(kind.version, int) or kind.version < 1:
        yield f"its version is {kind.version!r}, not a whole number from 1"


def has_valid_options(runs: SolverRuns) -> Iterator[str]:
    """Use a frozen dataclass, and describe each option."""
    kind, options = type(runs.solver), all_options(runs.solver)
    parameters = vars(kind).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        yield "its class is not a frozen dataclass"
    texts = "".join(inspect.cleandoc(base.__doc__ or "") for base in kind.__mro__)
    for each in dataclasses.fields(runs.solver):  # type: ignore[arg-type]
        if f"\n{each.name}\n" not in texts:
            yield f"its docstring does not describe '{each.name}'"
    text = json.dumps(options)
    if TypeAdapter(kind).validate_json(text, strict=True) != runs.solver:
        yield f"its options are not equal to themselves after they were written as {text}"
    trial_key(options)


def can_be_pickled(runs: SolverRuns) -> Iterator[str]:
    """Define it at module level."""
    if pickle.loads(pickle.dumps(runs.solver)) != runs.solver:  # noqa: S301  bytes made here
        yield "it is not equal to itself after it was pickled"


def returns_valid_solutions(run: SolverRun) -> Iterator[str]:
    """See Solution of ratecli.solvers.base."""
    yield from _solution_errors(run)
    if run.solver.role == "enforces" and run.goals.possible and run.outcome == "infeasible":
        yield "reported as infeasible, but feasible"


def handles_unusual_tables(run: SolverRun) -> Iterable[str]:
    """On an unusual table, return a solution with a status and a reason."""
    return _solution_errors(run)


def refuses_other_goals(run: SolverRun) -> Iterable[str]:
    """Refuse other goals with an error, or with a status and a reason."""
    return _solution_errors(run)


def _solution_errors(run: SolverRun) -> Iterator[str]:
    """Yield what is wrong with a solution, whatever the goals and rows are."""
    solution = run.solution
    if solution is None:
        yield run.outcome
        return
    if solution.status != "solved" and not solution.reason:
        yield f"its status is '{solution.status}', but it gives no reason"
    for unknown in solution.multipliers.keys() - run.goals.rules.keys():
        yield f"'{unknown}' among its multipliers is not a constraint"
    for name, variant in run.variants.items():
        check_outputs(name, run.rows.predictions(variant), run.rows)
    if run.solver.role == "enforces" and solution.status == "solved":
        violation = run.problem.violation(solution.main)
        if violation > MAX_EXCESS:
            yield f"it is 'solved', but a constraint is violated by {violation:.3g}"


def returns_valid_classifiers(run: SolverRun) -> Iterator[str]:
    """Use features (and slices) only."""
    X = run.problem.X
    order = np.random.default_rng(0).permutation(len(run.problem.label))
    for name, variant in run.variants.items():
        if variant.width != X.shape[1]:
            yield f"'{name}' has the width {variant.width}, not {X.shape[1]}"
        if variant.slices:  # only `problem` can append the slice columns to the features
            if not run.solver.sees_slices:
                yield f"'{name}' uses slices, but `sees_slices` is false"
            continue
        for rows in (order, order[:1]):
            expected, actual = run.problem.decisions(variant)[rows], variant.decide(X[rows])
            if np.shape(actual) != np.shape(expected) or not np.allclose(
                actual, expected, rtol=0, atol=1e-12
            ):
                yield f"'{name}' decides the same rows differently in another order or alone"


def is_not_better_than_the_optimum(run: SolverRun) -> Iterator[str]:
    """Train on X; measure with `problem`."""
    gap = run.gap()
    if gap.objective < gap.best - OBJECTIVE_TOLERANCE:
        yield f"its objective is {gap.objective:.6g}, the optimum {gap.best:.6g}"
    steps = run.solution.trace if run.solution else ()
    claimed = [each["objective"] for each in steps if each["violation"] <= OBJECTIVE_TOLERANCE]
    least, best = min(claimed, default=math.inf), run.best(run.problem.slices, OBJECTIVE_TOLERANCE)
    if least < best - OBJECTIVE_TOLERANCE:
        yield f"the objective in its trace is {least:.6g}, the optimum {best:.6g}"


def is_reproducible(runs: SolverRuns) -> Iterator[str]:
    """Use random numbers from `rng` only."""
    goals, table = runs.first, tiny.plain_table()
    pair = (runs.run(name, goals, table) for name in (goals.name, "the same again"))
    one, other = ((run.outcome, *map(dumps, run.variants.values())) for run in pair)
    if one != other:
        yield f"on '{goals.name}' its result changes with the same generator"


def ignores_the_order_of_rows(runs: SolverRuns) -> Iterator[str]:
    """Avoid sums that depend on it."""
    goals, table = runs.first, tiny.plain_table()
    other = table.iloc[np.random.default_rng(3).permutation(len(table))]
    pair = runs.run(goals.name, goals, table), runs.run("another order", goals, other)
    yield from map(ck.Caution, _differences(*pair, "with its rows in another order"))


def uses_weights(runs: SolverRuns) -> Iterator[str]:
    """See problem.rates, problem.labels() and rows()."""
    goals, table = runs.first, tiny.weighted_table()
    weighted = runs.run("weights", goals, table)
    if isinstance(weighted.answer, FaultError):
        raise ck.CheckSkippedError(f"it refuses rows of different weights: {weighted.outcome}")
    repeated = runs.run("repeated rows", goals, tiny.repeat_rows(table))
    unweighted = runs.run("no weights", goals, tiny.training_table())
    reasons = _differences(weighted, repeated, "where rows are repeated instead of weighted")
    have_effect = any(_differences(weighted, unweighted, "without weights"))
    yield from map(ck.Caution, reasons) if have_effect else reasons


def _differences(one: SolverRun, other: SolverRun, when: str) -> Iterator[str]:
    """Yield how the second result is worse or better on the first run's problem."""
    if one.main is None or other.main is None:
        if one.outcome != other.outcome:
            yield f"it ends as '{other.outcome}' {when}, otherwise as '{one.outcome}'"
        return
    for what, measured in (("objective", one.problem.value), ("violation", one.problem.violation)):
        here, there = measured(one.main), measured(other.main)
        if not abs(here - there) <= SIMILAR_OBJECTIVE:
            yield f"its {what} is {there:.3g} {when}, otherwise {here:.3g}"


def can_be_stored(run: SolverRun) -> Iterator[str]:
    """Use ratecli.models, and a trace of numbers."""
    for name, variant in run.variants.items():
        restored = run.problem.decisions(loads(dumps(variant)))
        if not np.array_equal(restored, run.problem.decisions(variant)):
            yield f"'{name}' decides differently after it was stored"
    if run.solution:
        trace, multipliers = run.solution.trace, run.solution.multipliers
        for step in trace:
            yield from (f"its trace has no '{key}'" for key in TRACE_KEYS - step.keys())
        check_storable(TrialResult("k", "ok", trace=trace, multipliers=multipliers))


def has_no_side_effects(run: SolverRun) -> Iterable[str]:
    """Use `rng` and progress(text)."""
    return run.effects


SOLVER_DECLARATIONS = (declares_what_it_supports, has_valid_options, can_be_pickled)
SOLVER_CHECKS: ck.CheckTable = {
    **dict.fromkeys(SOLVER_DECLARATIONS, ck.itself),
    returns_valid_solutions: tiny.plain_runs,
    returns_valid_classifiers: tiny.plain_runs,
    is_not_better_than_the_optimum: tiny.plain_runs,
    is_reproducible: ck.itself,
    ignores_the_order_of_rows: ck.itself,
    uses_weights: ck.itself,
    handles_unusual_tables: tiny.unusual_runs,
    refuses_other_goals: tiny.unsupported_runs,
    can_be_stored: tiny.all_runs,
    has_no_side_effects: tiny.all_runs,
}
