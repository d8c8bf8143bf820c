"""Checks of solvers: their declarations, options, solutions, behaviour and optimality gaps."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import pickle
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from pydantic import TypeAdapter

from ratecli.conformance import problems as tiny
from ratecli.conformance.outcome import (
    Caution,
    OptimalityGap,
    PluginCheck,
    PluginReport,
    run_checks,
    skip,
)
from ratecli.conformance.problems import SEED, SolverRun, SolverSubject, all_variants
from ratecli.errors import FaultError, exception_line
from ratecli.experiment.options import all_options
from ratecli.ledger.records import TrialResult, trial_key
from ratecli.ledger.store import result_documents
from ratecli.models.storage import dumps, loads
from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Role, Solver
from ratecli.solvers.hull.best import MAX_EXCESS

SOLUTION_STATUSES = ("solved", "iteration_limit", "infeasible", "no_solution_found", "diverged")
TRACE_KEYS = {"iteration", "objective", "violation", "seconds"}
OBJECTIVE_TOLERANCE = 1e-6
"""Rounding may make an objective look better than the optimum by this much."""
SIMILAR_OBJECTIVE = 0.03
"""Largest difference between the objectives of two equivalent problems.

Randomized searches may end at different solutions.
"""
IGNORED_WEIGHTS_TOLERANCE = 0.01
"""Largest mean change in decisions that still counts as "sample weights had no effect"."""


def check_solver(
    solver: type[Solver] | Solver, *, name: str = "", origin: str = ""
) -> PluginReport:
    """Check a solver's class, or an instance with its own options.

    The solver runs about thirty times on tables of 60 rows, on problems with known optima. If
    its declarations or options are wrong, the other checks are skipped.
    """
    instance = solver() if isinstance(solver, type) else solver
    subject, kind = SolverSubject(instance), type(instance)
    checks = run_checks(subject, OPTION_CHECKS, SOLUTION_CHECKS)
    failed = any(check.state == "failed" for check in checks)
    gaps = () if failed else tuple(_gaps(subject))
    return PluginReport("algorithm", name or kind.__name__, origin or kind.__module__, checks, gaps)


def _declares(subject: SolverSubject) -> Iterator[str]:
    kind = subject.kind
    if kind.role not in get_args(Role):
        yield f"its role is '{kind.role}', not one of {', '.join(get_args(Role))}"
    for key in ("objectives", "constraints"):
        classes = getattr(kind, key)
        for unknown in set(classes) - set(Shape):
            yield f"'{unknown}' among its {key} is not a class of goals"
        if bool(classes) is (kind.role == "ignores"):
            yield f"it {kind.role} goals, and its {key} are {sorted(classes) or 'empty'}"
    if not isinstance(kind.version, int) or kind.version < 1:
        yield f"its version is {kind.version!r}, not a whole number from 1"


def _options(subject: SolverSubject) -> Iterator[str]:
    parameters = vars(subject.kind).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        yield "its class is not a frozen dataclass"
    documentation = inspect.getdoc(subject.kind) or ""
    # `dataclass` generates a docstring that starts like a call
    if not documentation or documentation.startswith(f"{subject.kind.__name__}("):
        yield "its class has no docstring"
    for each in dataclasses.fields(subject.solver):  # type: ignore[arg-type]
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            yield f"the option '{each.name}' has no default"
        if f"\n{each.name}\n" not in documentation:
            yield f"its docstring does not describe '{each.name}'"
    options, adapter = all_options(subject.solver), TypeAdapter(subject.kind)
    text = json.dumps(options)
    if adapter.validate_json(text, strict=True) != subject.solver:
        yield f"its options are not equal to themselves after they were written as {text}"
    trial_key(options)
    invalid = {"no": "such value"}
    for name in options:
        with suppress(ValueError):
            adapter.validate_json(json.dumps(options | {name: invalid}), strict=True)
            yield Caution(f"the option '{name}' accepts any value, even {invalid}")


def _pickled(subject: SolverSubject) -> Iterator[str]:
    if pickle.loads(pickle.dumps(subject.solver)) != subject.solver:  # noqa: S301  bytes made here
        yield "it is not equal to itself after it was pickled"


def _solutions(subject: SolverSubject) -> Iterator[str]:
    for run in subject.plain_runs():
        yield from _solution_errors(subject, run)
        if subject.enforces and run.goals.possible and run.required_solution.status == "infeasible":
            yield f"'{run.goals.name}' is called infeasible, and is feasible"


def _solution_errors(subject: SolverSubject, run: SolverRun, where: str = "") -> Iterator[str]:
    """Yield what is wrong with a solution, whatever the goals and rows are."""
    solution, where = run.required_solution, where or f"on '{run.goals.name}'"
    if solution.status not in SOLUTION_STATUSES:
        listed = ", ".join(SOLUTION_STATUSES)
        yield f"{where} its status is '{solution.status}', not one of {listed}"
    if solution.status in {"solved", "iteration_limit"} and not solution.variants:
        yield f"{where} it is {solution.status} and returns no classifier"
    if solution.status != "solved" and not solution.reason:
        yield f"{where} it is {solution.status} and gives no reason"
    for unknown in solution.multipliers.keys() - run.goals.rules.keys():
        yield f"{where} '{unknown}' among its multipliers is not a constraint"
    n = run.problem.X.shape[0]
    for name, variant in solution.variants.items():
        decisions = run.problem.decisions(variant)
        if np.shape(decisions) != (n,):
            yield f"{where} '{name}' has decisions of the shape {np.shape(decisions)}, not ({n},)"
        low, high = np.min(decisions), np.max(decisions)
        if not (np.isfinite(decisions).all() and low >= 0 and high <= 1):
            yield f"{where} '{name}' has decisions from {low:g} to {high:g}, not in [0, 1]"
    if subject.enforces and solution.status == "solved" and run.violation > MAX_EXCESS:
        yield f"{where} it is called solved, and a constraint is violated by {run.violation:.3g}"


def _classifiers(subject: SolverSubject) -> Iterator[str]:
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


def _not_below_optimum(subject: SolverSubject) -> Iterator[str]:
    """Check that neither the measured nor the claimed objective is below the known optimum."""
    for run, solution, exact in subject.exact_runs():
        where = f"on '{run.goals.name}'"
        if run.decisions is not None:
            best = exact.best(run.cells(), max(exact.violation(run.decisions), 0.0))
            objective = exact.value(run.decisions)
            if objective < best - OBJECTIVE_TOLERANCE:
                yield f"{where} its objective is {objective:.6g}, and {best:.6g} is the optimum"
        group = run.rows.training.group == "a"
        cells = tiny.indistinguishable_rows(tiny.dense(run.problem.X), group)
        best = exact.best(cells, OBJECTIVE_TOLERANCE)
        for step in solution.trace:
            objective = float(step.get("objective", math.inf))
            feasible = float(step.get("violation", math.inf)) <= OBJECTIVE_TOLERANCE
            if feasible and objective < best - OBJECTIVE_TOLERANCE:
                yield f"{where} its trace has {objective:.6g}, and {best:.6g} is the optimum"


def _reproducible(subject: SolverSubject) -> Iterator[str]:
    """Check that the result depends on the given generator, not on global random states."""
    goals, state, numpy_state = subject.first, random.getstate(), np.random.get_state()  # noqa: NPY002
    first = subject.run(goals.name, goals, tiny.plain_table())
    try:
        random.seed(SEED)
        np.random.seed(SEED)  # noqa: NPY002
        again = subject.run("again", goals, tiny.plain_table(), replace(subject.solver))  # type: ignore[type-var]
        once_more = subject.run("once more", goals, tiny.plain_table())
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)  # noqa: NPY002
    if not _contents(first) == _contents(again) == _contents(once_more):
        yield f"on '{goals.name}' its result changes with the same generator"


def _contents(run: SolverRun) -> Any:
    """Return what must be equal for two runs to be the same.

    Two classifiers may differ even if they agree on these few rows.
    """
    if run.solution is None:
        return None
    return run.solution.status, [
        (name, run.problem.decisions(variant).tobytes(), dumps(variant))
        for name, variant in run.solution.variants.items()
    ]


def _row_order(subject: SolverSubject) -> Iterator[str]:
    goals, rows = subject.first, tiny.plain_table()
    other = rows.at(np.random.default_rng(3).permutation(len(rows)))
    pair = subject.run(goals.name, goals, rows), subject.run("another order", goals, other)
    yield from map(Caution, _differences(*pair, "with its rows in another order"))


def _weights(subject: SolverSubject) -> Iterator[str]:
    goals, rows = subject.first, tiny.weighted_table()
    weighted = subject.run("weights", goals, rows)
    if isinstance(weighted.error, FaultError):
        skip(f"it refuses rows of different weights: {exception_line(weighted.error)}")
    repeated = subject.run("repeated rows", goals, tiny.repeat_rows(rows))
    for reason in _differences(weighted, repeated, "where rows are repeated instead of weighted"):
        unweighted = subject.run("no weights", goals, replace(rows, weight=np.ones(len(rows))))
        if weighted.decisions is None or unweighted.decisions is None:
            yield reason
        elif np.abs(weighted.decisions - unweighted.decisions).mean() <= IGNORED_WEIGHTS_TOLERANCE:
            yield f"weights have no effect: {reason}"
        else:
            yield Caution(reason)


def _differences(one: SolverRun, other: SolverRun, when: str) -> Iterator[str]:
    """Yield how the second result is worse or better on the first run's problem."""
    first, second = one.required_solution, other.required_solution
    if one.main is None or other.main is None:
        if first.status != second.status:
            yield f"it is {second.status} {when}, else {first.status}"
        return
    for what, measured in (("objective", one.problem.value), ("violation", one.problem.violation)):
        here, there = measured(one.main), measured(other.main)
        if not abs(here - there) <= SIMILAR_OBJECTIVE:
            yield f"its {what} is {there:.3g} {when}, else {here:.3g}"


def _unusual_tables(subject: SolverSubject) -> Iterator[str]:
    """Check that unusual tables give a valid answer, or a diagnostic that explains why not."""
    for name, rows in tiny.unusual_tables().items():
        run = subject.run(name, subject.first, rows)
        if not isinstance(run.error, FaultError):
            yield from _solution_errors(subject, run, f"on a table with {name}")


def _unsupported_goals(subject: SolverSubject) -> Iterator[str]:
    """Check that goals outside the declared classes are not falsely solved.

    ratecli refuses such goals; here they are passed to the solver all the same.
    """
    others = [goals for goals in tiny.TINY_PROBLEM_GOALS if goals not in subject.goals]
    if not others or not subject.enforces:
        skip(f"it {subject.kind.role} goals, or supports all")
    for goals in others:
        run = subject.run(f"unsupported {goals.name}", goals, tiny.plain_table())
        if run.error is None:
            yield from _solution_errors(subject, run)
        elif not isinstance(run.error, FaultError | ValueError | NotImplementedError):
            yield Caution(f"on '{goals.name}' it raises {exception_line(run.error)}")


def _stored(subject: SolverSubject) -> Iterator[str]:
    for run, variant, where in all_variants(subject.all_runs()):
        try:
            restored = run.problem.decisions(loads(dumps(variant)))
        except Exception as error:  # noqa: BLE001  plugins may raise anything
            yield f"{where} cannot be stored: {exception_line(error)}"
        else:
            if not np.array_equal(restored, run.problem.decisions(variant)):
                yield f"{where} decides differently after it was stored"
    for solution in (run.solution for run in subject.all_runs() if run.solution):
        for step in solution.trace:
            yield from (f"its trace has no '{key}'" for key in TRACE_KEYS - step.keys())
        trace, multipliers = solution.trace, solution.multipliers
        result_documents(TrialResult("k", "ok", trace=trace, multipliers=multipliers))
        pickle.dumps(solution)


def _side_effects(subject: SolverSubject) -> Iterator[str]:
    for run in subject.all_runs():
        effects, rows, problem = run.effects, run.rows.training, run.problem
        if effects.random:
            yield "it changes the global random state of NumPy or Python"
        if effects.printed:
            yield f"it prints '{effects.printed.strip()[:40]}'"
        yield from (f"it writes to {path}" for path in effects.written)
        for call in run.progress:
            if len(call) != 1 or not isinstance(call[0], str) or not call[0].strip():
                yield f"it calls progress{call!r}, not with one line of text"
        # other solvers get the same arrays
        pairs = (problem.label, rows.label), (tiny.dense(problem.X), tiny.dense(rows.X))
        if not all(np.array_equal(*pair, equal_nan=True) for pair in pairs):
            yield f"after '{run.goals.name}' the features or labels are changed"


OPTION_CHECKS = (
    PluginCheck(
        "declares what it supports", "set role, objectives, constraints, version", _declares
    ),
    PluginCheck(
        "has valid options",
        "use a frozen dataclass with annotated types, defaults and a line each in `Attributes`",
        _options,
    ),
    PluginCheck("can be pickled", "define it at module level", _pickled),
)
SOLUTION_CHECKS = (
    PluginCheck("returns valid solutions", "see Solution of ratecli.solvers.base", _solutions),
    PluginCheck("returns valid classifiers", "use features (and slices) only", _classifiers),
    PluginCheck(
        "is not better than the optimum",
        "train on X alone; measure with `problem`",
        _not_below_optimum,
    ),
    PluginCheck("is reproducible", "use random numbers from `rng` only", _reproducible),
    PluginCheck(
        "ignores the order of rows", "avoid sums that depend on the order of rows", _row_order
    ),
    PluginCheck("uses weights", "see problem.rates, problem.labels() and problem.rows()", _weights),
    PluginCheck("handles unusual tables", "return a status and a reason", _unusual_tables),
    PluginCheck(
        "refuses other goals", "raise, or return no_solution_found and a reason", _unsupported_goals
    ),
    PluginCheck(
        "can be stored",
        "return classifiers of ratecli.models, and a trace of numbers and text",
        _stored,
    ),
    PluginCheck(
        "has no side effects",
        "copy arrays, draw from `rng`, report with progress(text), and write no files",
        _side_effects,
    ),
)


def _gaps(subject: SolverSubject) -> Iterator[OptimalityGap]:
    for run, solution, exact in subject.exact_runs() if subject.goals else ():
        line = exact.best_line(tiny.linear_decisions(run.rows.training))
        value = violation = best = math.nan
        if (decisions := run.decisions) is not None:
            value, violation = exact.value(decisions), max(exact.violation(decisions), 0.0)
            best = exact.best(run.cells(), violation)
        yield OptimalityGap(
            run.goals.name, solution.status, value, violation, best, line, run.seconds
        )
