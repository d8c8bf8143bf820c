"""Checks of solvers: their declarations, options, solutions, behaviour and optimality gaps."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from pydantic import TypeAdapter

from ratecli.conformance import problems as tiny
from ratecli.conformance.checks import Caution, CheckSkippedError, PluginReport, run_checks
from ratecli.conformance.problems import SolverRun, SolverSubject, all_variants
from ratecli.errors import FaultError
from ratecli.experiment.entries import all_options
from ratecli.ledger.records import TrialResult, trial_key
from ratecli.ledger.store import check_storable
from ratecli.models.storage import dumps, loads
from ratecli.rates.analysis import Shape
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
) -> PluginReport:
    """Check a solver's class, or an instance with its own options.

    The solver runs about thirty times on tables of 60 rows, on problems with known optima. If
    its declarations or options are wrong, the other checks are skipped.
    """
    instance = solver() if isinstance(solver, type) else solver
    subject, kind = SolverSubject(instance), type(instance)
    checks = run_checks(subject, SOLVER_DECLARATIONS, SOLVER_CHECKS)
    report = PluginReport("algorithm", name or kind.__name__, origin or kind.__module__, checks)
    if not report.holds or not subject.goals:
        return report
    return replace(report, gaps=tuple(run.gap() for run in subject.plain_runs()))


def declares_what_it_supports(subject: SolverSubject) -> Iterator[str]:
    """Set role, objectives, constraints, version."""
    kind = type(subject.solver)
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


def has_valid_options(subject: SolverSubject) -> Iterator[str]:
    """Use a frozen dataclass, and describe each option."""
    kind = type(subject.solver)
    parameters = vars(kind).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        yield "its class is not a frozen dataclass"
    texts = "".join(inspect.cleandoc(base.__doc__ or "") for base in kind.__mro__)
    for each in dataclasses.fields(subject.solver):  # type: ignore[arg-type]
        if f"\n{each.name}\n" not in texts:
            yield f"its docstring does not describe '{each.name}'"
    options = all_options(subject.solver)
    text = json.dumps(options)
    if TypeAdapter(kind).validate_json(text, strict=True) != subject.solver:
        yield f"its options are not equal to themselves after they were written as {text}"
    trial_key(options)


def can_be_pickled(subject: SolverSubject) -> Iterator[str]:
    """Define it at module level."""
    if pickle.loads(pickle.dumps(subject.solver)) != subject.solver:  # noqa: S301  bytes made here
        yield "it is not equal to itself after it was pickled"


def returns_valid_solutions(subject: SolverSubject) -> Iterator[str]:
    """See Solution of ratecli.solvers.base."""
    for run in subject.plain_runs():
        yield from _solution_errors(subject, run, f"on '{run.goals.name}'")
        if subject.enforces and run.goals.possible and run.outcome == "infeasible":
            yield f"'{run.goals.name}' is reported as infeasible but is feasible"


def _solution_errors(subject: SolverSubject, run: SolverRun, where: str) -> Iterator[str]:
    """Yield what is wrong with a solution, whatever the goals and rows are."""
    solution = run.solution
    if solution is None:
        yield f"{where}: {run.outcome}"
        return
    if solution.status != "solved" and not solution.reason:
        yield f"{where} its status is '{solution.status}', but it gives no reason"
    for unknown in solution.multipliers.keys() - run.goals.rules.keys():
        yield f"{where} '{unknown}' among its multipliers is not a constraint"
    n = run.problem.X.shape[0]
    for name, variant in run.variants.items():
        decisions = run.problem.decisions(variant)
        if np.shape(decisions) != (n,):
            yield f"{where} '{name}' has decisions of the shape {np.shape(decisions)}, not ({n},)"
        if not (np.min(decisions) >= 0 and np.max(decisions) <= 1):
            yield f"{where} '{name}' has decisions outside of [0, 1]"
    if subject.enforces and solution.status == "solved":
        violation = run.problem.violation(solution.main)
        if violation > MAX_EXCESS:
            yield f"{where} it is 'solved', but a constraint is violated by {violation:.3g}"


def returns_valid_classifiers(subject: SolverSubject) -> Iterator[str]:
    """Use features (and slices) only."""
    for run, variant, where in all_variants(subject.plain_runs()):
        X = run.problem.X
        n, width = X.shape
        if variant.width != width:
            yield f"{where} has the width {variant.width}, not {width}"
        for unknown in set(variant.slices) - set(run.problem.slices):
            yield f"{where} uses the slice '{unknown}', which no goal names"
        if variant.slices:  # only `problem` can append the slice columns to the features
            if not subject.solver.sees_slices:
                yield f"{where} uses slices, but `sees_slices` is false"
            continue
        for key in ("score", "estimate"):
            answer = getattr(variant, key)(X)
            if np.shape(answer) != (n,):
                yield f"'{key}' of {where} has the shape {np.shape(answer)}, not ({n},)"
        order = np.random.default_rng(0).permutation(n)
        for rows in (order, order[:1]):
            expected, actual = run.problem.decisions(variant)[rows], variant.decide(X[rows])
            if np.shape(actual) != np.shape(expected) or not np.allclose(
                actual, expected, rtol=0, atol=1e-12
            ):
                yield f"{where} decides the same rows differently in another order or alone"


def is_not_better_than_the_optimum(subject: SolverSubject) -> Iterator[str]:
    """Train on X; measure with `problem`."""
    for run in subject.plain_runs():
        gap, where = run.gap(), f"on '{run.goals.name}'"
        if gap.objective < gap.best - OBJECTIVE_TOLERANCE:
            yield f"{where} its objective is {gap.objective:.6g}, the optimum {gap.best:.6g}"
        claimed = [
            step["objective"]
            for step in (run.solution.trace if run.solution else ())
            if step["violation"] <= OBJECTIVE_TOLERANCE
        ]
        least = min(claimed, default=math.inf)
        best = run.best(run.problem.slices, OBJECTIVE_TOLERANCE)
        if least < best - OBJECTIVE_TOLERANCE:
            yield f"{where} the objective in its trace is {least:.6g}, the optimum {best:.6g}"


def is_reproducible(subject: SolverSubject) -> Iterator[str]:
    """Use random numbers from `rng` only."""
    goals, rows = subject.first, tiny.plain_table()
    runs = (subject.run(name, goals, rows) for name in (goals.name, "the same again"))
    if len(set(map(_contents, runs))) > 1:
        yield f"on '{goals.name}' its result changes with the same generator"


def _contents(run: SolverRun) -> tuple[Any, ...]:
    """Return what must be equal for two runs to be the same.

    Two classifiers may differ even if they agree on these few rows.
    """
    stored = (
        (run.problem.decisions(each).tobytes(), dumps(each)) for each in run.variants.values()
    )
    return run.outcome, *run.variants, *stored


def ignores_the_order_of_rows(subject: SolverSubject) -> Iterator[str]:
    """Avoid sums that depend on it."""
    goals, rows = subject.first, tiny.plain_table()
    other = rows.iloc[np.random.default_rng(3).permutation(len(rows))]
    pair = subject.run(goals.name, goals, rows), subject.run("another order", goals, other)
    yield from map(Caution, _differences(*pair, "with its rows in another order"))


def uses_weights(subject: SolverSubject) -> Iterator[str]:
    """See problem.rates, problem.labels() and rows()."""
    goals, rows = subject.first, tiny.weighted_table()
    weighted = subject.run("weights", goals, rows)
    if isinstance(weighted.answer, FaultError):
        raise CheckSkippedError(f"it refuses rows of different weights: {weighted.outcome}")
    repeated = subject.run("repeated rows", goals, tiny.repeat_rows(rows))
    unweighted = subject.run("no weights", goals, tiny.training_table())
    reasons = _differences(weighted, repeated, "where rows are repeated instead of weighted")
    have_effect = any(_differences(weighted, unweighted, "without weights"))
    yield from map(Caution, reasons) if have_effect else reasons


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


def handles_unusual_tables(subject: SolverSubject) -> Iterator[str]:
    """Return a status and a reason."""
    for name, rows in tiny.unusual_tables().items():
        run = subject.run(name, subject.first, rows)
        if not isinstance(run.answer, FaultError):
            yield from _solution_errors(subject, run, f"on a table with {name}")


def refuses_other_goals(subject: SolverSubject) -> Iterator[str]:
    """Raise, or return a status and a reason."""
    others = [goals for goals in tiny.TINY_PROBLEM_GOALS if goals not in subject.goals]
    if not others or not subject.enforces:
        raise CheckSkippedError("it supports all goals, or enforces none")
    for goals in others:
        run = subject.run(f"unsupported {goals.name}", goals, tiny.plain_table())
        if run.solution:
            yield from _solution_errors(subject, run, f"on '{goals.name}'")


def can_be_stored(subject: SolverSubject) -> Iterator[str]:
    """Use ratecli.models, and a trace of numbers."""
    for run, variant, where in all_variants(subject.all_runs()):
        restored = run.problem.decisions(loads(dumps(variant)))
        if not np.array_equal(restored, run.problem.decisions(variant)):
            yield f"{where} decides differently after it was stored"
    for solution in (run.solution for run in subject.all_runs() if run.solution):
        for step in solution.trace:
            yield from (f"its trace has no '{key}'" for key in TRACE_KEYS - step.keys())
        trace, multipliers = solution.trace, solution.multipliers
        check_storable(TrialResult("k", "ok", trace=trace, multipliers=multipliers))


def has_no_side_effects(subject: SolverSubject) -> Iterator[str]:
    """Use `rng` and progress(text)."""
    yield from (effect for run in subject.all_runs() for effect in run.effects)


SOLVER_DECLARATIONS = (declares_what_it_supports, has_valid_options, can_be_pickled)
SOLVER_CHECKS = (
    returns_valid_solutions,
    returns_valid_classifiers,
    is_not_better_than_the_optimum,
    is_reproducible,
    ignores_the_order_of_rows,
    uses_weights,
    handles_unusual_tables,
    refuses_other_goals,
    can_be_stored,
    has_no_side_effects,
)
