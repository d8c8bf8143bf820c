"""Checks of solvers: their declarations, options, solutions, behaviour and optimality gaps."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from pydantic import TypeAdapter

from ratecli.conformance import problems as tiny
from ratecli.conformance.outcome import (
    Caution,
    CheckList,
    CheckResult,
    OptimalityGap,
    PluginReport,
    run_checks,
    skip,
)
from ratecli.conformance.problems import SEED, SolverRun, SolverSubject
from ratecli.errors import FaultError, exception_line
from ratecli.experiment.options import all_options
from ratecli.ledger.records import TrialResult, trial_key
from ratecli.ledger.store import result_documents
from ratecli.models.base import Array, Classifier
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

OPTION_CHECKS = CheckList[SolverSubject]()
SOLUTION_CHECKS = CheckList[SolverSubject]()
option_check, solution_check = OPTION_CHECKS.check, SOLUTION_CHECKS.check


def check_solver(
    solver: type[Solver] | Solver, *, name: str = "", origin: str = ""
) -> PluginReport:
    """Check a solver's class, or an instance with its own options.

    The solver runs about thirty times on tables of 60 rows, on problems with known optima. If
    its declarations or options are wrong, the other checks are skipped.
    """
    instance = solver() if isinstance(solver, type) else solver
    subject, gaps = SolverSubject(instance), tuple[OptimalityGap, ...]()
    checks = run_checks(OPTION_CHECKS, subject)
    if any(check.state == "failed" for check in checks):
        reason = "a check of its declarations failed"
        checks += tuple(CheckResult(each.name, "skipped", reason) for each in SOLUTION_CHECKS)
    else:
        checks += run_checks(SOLUTION_CHECKS, subject)
        gaps = tuple(_gaps(subject))
    kind = type(instance)
    return PluginReport("algorithm", name or kind.__name__, origin or kind.__module__, checks, gaps)


@option_check("declares what it supports", "set role, objectives, constraints, version")
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


@option_check("has options with defaults", "use a frozen dataclass of JSON values")
def _options(subject: SolverSubject) -> Iterator[str]:
    parameters = vars(subject.kind).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        yield "its class is not a frozen dataclass"
    for each in dataclasses.fields(subject.solver):  # type: ignore[arg-type]
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            yield f"the option '{each.name}' has no default"
    options = all_options(subject.solver)
    text = json.dumps(options)
    if TypeAdapter(subject.kind).validate_json(text, strict=True) != subject.solver:
        yield f"its options are not equal to themselves after they were written as {text}"
    trial_key(options)


@option_check(
    "checks the types of its options",
    "annotate them, as in Annotated[int, Ge(1)]",
)
def _typed(subject: SolverSubject) -> Iterator[str]:
    invalid = {"no": "such value"}
    options = all_options(subject.solver)
    for name in options:
        changed = options | {name: invalid}
        try:
            TypeAdapter(subject.kind).validate_json(json.dumps(changed), strict=True)
        except ValueError:
            continue
        yield Caution(f"the option '{name}' accepts any value, even {invalid}")


@option_check("documents its options", "a line for each under `Attributes`")
def _documented(subject: SolverSubject) -> Iterator[str]:
    text = inspect.getdoc(subject.kind) or ""
    # `dataclass` generates a docstring that starts like a call
    if not text or text.startswith(f"{subject.kind.__name__}("):
        yield "its class has no docstring"
    for each in dataclasses.fields(subject.solver):  # type: ignore[arg-type]
        if f"\n{each.name}\n" not in text:
            yield f"its docstring does not describe '{each.name}'"


@option_check("can be pickled", "define it at module level")
def _pickled(subject: SolverSubject) -> Iterator[str]:
    if pickle.loads(pickle.dumps(subject.solver)) != subject.solver:  # noqa: S301  bytes made here
        yield "it is not equal to itself after it was pickled"


@solution_check("solves supported goals", "return a Solution with all its fields")
def _solves(subject: SolverSubject) -> Iterator[str]:
    for run in subject.plain_runs():
        solution, where = run.required_solution, f"on '{run.goals.name}'"
        if solution.status not in SOLUTION_STATUSES:
            listed = ", ".join(SOLUTION_STATUSES)
            yield f"{where} its status is '{solution.status}', not one of {listed}"
        if solution.status in {"solved", "iteration_limit"} and not solution.variants:
            yield f"{where} it is {solution.status} and returns no classifier"
        if solution.status != "solved" and not solution.reason:
            yield f"{where} it is {solution.status} and gives no reason"
        for unknown in solution.multipliers.keys() - run.goals.rules.keys():
            yield f"{where} '{unknown}' among its multipliers is not a constraint"


@solution_check("has valid decisions", "return (n,) floats in [0, 1]")
def _decides(subject: SolverSubject) -> Iterator[str]:
    for run, variant, where in subject.variants(subject.plain_runs()):
        n, width = run.problem.X.shape
        if variant.width != width:
            yield f"{where} has the width {variant.width}, not {width}"
        for unknown in set(variant.slices) - set(run.problem.slices):
            yield f"{where} uses the slice '{unknown}', which no goal names"
        if variant.slices and not subject.solver.sees_slices:
            yield f"{where} uses slices, but `sees_slices` is false"
        yield from (f"{where} {reason}" for reason in _invalid_decisions(run, variant))
        # only `problem` can append the slice columns to the features
        for key in () if variant.slices else ("score", "estimate"):
            answer = getattr(variant, key)(run.problem.X)
            if np.shape(answer) != (n,):
                yield f"'{key}' of {where} has the shape {np.shape(answer)}, not ({n},)"


def _invalid_decisions(run: SolverRun, variant: Classifier) -> Iterator[str]:
    decisions, n = run.problem.decisions(variant), run.problem.X.shape[0]
    if np.shape(decisions) != (n,):
        yield f"has decisions of the shape {np.shape(decisions)}, not ({n},)"
    if not (np.isfinite(decisions).all() and decisions.min() >= 0 and decisions.max() <= 1):
        yield f"has decisions from {decisions.min():g} to {decisions.max():g}, not in [0, 1]"


@solution_check("decides each row independently", "use features (and slices) only")
def _by_row(subject: SolverSubject) -> Iterator[str]:
    for run, variant, where in subject.variants(subject.plain_runs()):
        X = run.problem.X
        order = np.random.default_rng(0).permutation(X.shape[0])
        for rows in () if variant.slices else (order, order[:1]):
            expected, actual = run.problem.decisions(variant)[rows], variant.decide(X[rows])
            if np.shape(actual) != np.shape(expected) or not np.allclose(
                actual, expected, rtol=0, atol=1e-12
            ):
                yield f"{where} decides the same rows differently in another order or alone"


@solution_check(
    "has a correct status",
    "return `solved` only if problem.violation(main) is 0",
)
def _status(subject: SolverSubject) -> Iterator[str]:
    """Check that `solved` means feasible, and that feasible problems are not called infeasible."""
    if not subject.enforces:
        skip(f"it {subject.kind.role} goals")
    for run in subject.plain_runs():
        status, where = run.solution.status if run.solution else "", f"'{run.goals.name}' is called"
        if status == "solved" and run.violation > MAX_EXCESS:
            yield f"{where} solved, and a constraint is violated by {run.violation:.3g}"
        if status == "infeasible" and run.goals.possible:
            yield f"{where} infeasible, and is feasible"


@solution_check("recognizes infeasible goals", "return infeasible or no_solution_found")
def _infeasible(subject: SolverSubject) -> Iterator[str]:
    impossible = [run for run in subject.plain_runs() if not run.goals.possible]
    if not impossible or not subject.enforces:
        skip("it does not support the goals, or does not enforce them")
    for run in impossible:
        if run.required_solution.status == "solved":
            yield f"'{run.goals.name}' is called solved, and no decisions satisfy it"


@solution_check(
    "is not better than the optimum",
    "train on X alone; measure with `problem`",
)
def _not_below_optimum(subject: SolverSubject) -> Iterator[str]:
    """Check that neither the measured nor the claimed objective is below the known optimum."""
    for run in subject.plain_runs():
        training, where = run.rows.training, f"on '{run.goals.name}'"
        exact = run.goals.exact(training)
        if exact is None or run.solution is None:
            continue
        if run.decisions is not None:
            best = exact.best(run.cells(), max(exact.violation(run.decisions), 0.0))
            objective = exact.value(run.decisions)
            if objective < best - OBJECTIVE_TOLERANCE:
                yield f"{where} its objective is {objective:.6g}, and {best:.6g} is the optimum"
        cells = tiny.indistinguishable_rows(tiny.dense(run.problem.X), training.group == "a")
        best = exact.best(cells, OBJECTIVE_TOLERANCE)
        for step in run.solution.trace:
            objective = float(step.get("objective", math.inf))
            feasible = float(step.get("violation", math.inf)) <= OBJECTIVE_TOLERANCE
            if feasible and objective < best - OBJECTIVE_TOLERANCE:
                yield f"{where} its trace has {objective:.6g}, and {best:.6g} is the optimum"


@solution_check("is measured correctly", "this is an error of ratecli: please report it")
def _measured(subject: SolverSubject) -> Iterator[str]:
    """Compare the objective and violation of `Problem` with those computed by this package."""
    for run in subject.plain_runs():
        exact = run.goals.exact(run.rows.training)
        if exact is None or run.main is None or run.decisions is None:
            continue
        for expected, actual in (
            (exact.value(run.decisions), run.problem.value(run.main)),
            (max(exact.violation(run.decisions), 0.0), run.violation),
        ):
            # this package's tangents to convex functions are accurate enough only up to 1
            if abs(expected - actual) > OBJECTIVE_TOLERANCE and expected <= 1:
                name = run.goals.name
                yield f"'{name}' has {actual:.9g} by ratecli, {expected:.9g} by this check"


@solution_check("is reproducible", "use random numbers from `rng` only")
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


@solution_check("ignores the order of rows", "avoid sums that depend on the order of rows")
def _row_order(subject: SolverSubject) -> Iterator[str]:
    goals, rows = subject.first, tiny.plain_table()
    other = rows.at(np.random.default_rng(3).permutation(len(rows)))
    pair = subject.run(goals.name, goals, rows), subject.run("another order", goals, other)
    yield from map(Caution, _differences(*pair, "with its rows in another order"))


@solution_check("uses weights", "see problem.rates, problem.labels() and problem.rows()")
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


@solution_check("handles unusual tables", "return a status and a reason")
def _unusual_tables(subject: SolverSubject) -> Iterator[str]:
    """Check that unusual tables give a valid answer, or a diagnostic that explains why not."""
    for name, rows in tiny.unusual_tables().items():
        run, where = subject.run(name, subject.first, rows), f"on a table with {name}"
        if isinstance(run.error, FaultError):
            continue
        solution = run.required_solution
        for variant in solution.variants.values():
            yield from (f"{where} it {reason}" for reason in _invalid_decisions(run, variant))
        if subject.enforces and solution.status == "solved" and run.violation > MAX_EXCESS:
            yield f"{where} it is called solved, and violated by {run.violation:.3g}"


@solution_check("refuses other goals", "raise, or return no_solution_found with a reason")
def _unsupported_goals(subject: SolverSubject) -> Iterator[str]:
    """Check that goals outside the declared classes are not falsely solved.

    ratecli refuses such goals; here they are passed to the solver all the same.
    """
    others = [goals for goals in tiny.TINY_PROBLEM_GOALS if goals not in subject.goals]
    if not others or not subject.enforces:
        skip(f"it {subject.kind.role} goals, or supports all")
    for goals in others:
        run = subject.run(f"unsupported {goals.name}", goals, tiny.plain_table())
        if run.error and not isinstance(run.error, FaultError | ValueError | NotImplementedError):
            yield Caution(f"on '{goals.name}' it raises {exception_line(run.error)}")
        if run.solution and run.solution.status == "solved" and run.violation > MAX_EXCESS:
            yield (
                f"'{goals.name}', which it does not support, is called solved, and violated by "
                f"{run.violation:.3g}"
            )


@solution_check("can be stored", "return classifiers of ratecli.models")
def _stored(subject: SolverSubject) -> Iterator[str]:
    for run, variant, where in subject.variants(subject.all_runs()):
        try:
            restored = run.problem.decisions(loads(dumps(variant)))
        except Exception as error:  # noqa: BLE001  plugins may raise anything
            yield f"{where} cannot be stored: {exception_line(error)}"
        else:
            if not np.array_equal(restored, run.problem.decisions(variant)):
                yield f"{where} decides differently after it was stored"


@solution_check("can be recorded", "keys of a trace: iteration, objective, violation, seconds")
def _recorded(subject: SolverSubject) -> Iterator[str]:
    for run in subject.all_runs():
        if (solution := run.solution) is None:
            continue
        for missing in (TRACE_KEYS - step.keys() for step in solution.trace):
            yield from (f"its trace has no '{key}'" for key in missing)
        result = TrialResult(
            "k", "ok", solution.reason, 0.0, {}, solution.trace, solution.multipliers
        )
        result_documents(result)
        pickle.dumps(solution)


@solution_check("uses its own random numbers", "pass `rng` on, also to scikit-learn")
def _own_random(subject: SolverSubject) -> Iterator[str]:
    if any(run.effects.random for run in subject.all_runs()):
        yield "it changes the global random state of NumPy or Python"


@solution_check("has no side effects", "report through `progress`, and write no files")
def _side_effects(subject: SolverSubject) -> Iterator[str]:
    for effects in (run.effects for run in subject.all_runs()):
        if effects.printed:
            yield f"it prints '{effects.printed.strip()[:40]}'"
        yield from (f"it writes to {path}" for path in effects.written)


@solution_check("reports progress", "call progress with one line of text")
def _progress(subject: SolverSubject) -> Iterator[str]:
    for call in (call for run in subject.all_runs() for call in run.progress):
        if len(call) != 1 or not isinstance(call[0], str) or not call[0].strip():
            yield f"it calls progress{call!r}"


@solution_check("does not change its input", "copy arrays before you change them")
def _unchanged(subject: SolverSubject) -> Iterator[str]:
    """Check that the problem is unchanged, since other solvers get the same arrays."""
    for run in subject.all_runs():
        rows, problem = run.rows.training, run.problem
        pairs = (problem.label, rows.label), (tiny.dense(problem.X), tiny.dense(rows.X))
        if not all(np.array_equal(*pair, equal_nan=True) for pair in pairs):
            yield f"after '{run.goals.name}' the features or labels are changed"


def _gaps(subject: SolverSubject) -> Iterator[OptimalityGap]:
    for run in subject.plain_runs() if subject.goals else ():
        exact = run.goals.exact(run.rows.training)
        if exact is None or run.solution is None:
            continue
        line = exact.best_line(tiny.linear_decisions(run.rows.training))
        value = violation = best = math.nan
        decisions: Array | None = run.decisions
        if decisions is not None:
            value, violation = exact.value(decisions), max(exact.violation(decisions), 0.0)
            best = exact.best(run.cells(), violation)
        status, seconds = run.solution.status, run.seconds
        yield OptimalityGap(run.goals.name, status, value, violation, best, line, seconds)
