"""Checks of solvers: their declarations, options and solutions, and their optimality gaps."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import pickle
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import numpy as np
from pydantic import TypeAdapter

from ratecli.conformance.behaviour import BEHAVIOUR_CHECKS
from ratecli.conformance.optimum import indistinguishable_rows, linear_decisions
from ratecli.conformance.outcome import (
    CheckFailedError,
    CheckResult,
    CheckSkippedError,
    CheckWarningError,
    OptimalityGap,
    PluginCheck,
    PluginReport,
    exception_line,
    run_checks,
)
from ratecli.conformance.solving import SolverRun, SolverSubject
from ratecli.experiment.options import all_options, check_option_values
from ratecli.ledger.keys import trial_key
from ratecli.models.base import Array, Classifier
from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Role, Solver
from ratecli.solvers.hull.best import MAX_EXCESS


def _declares(solver: Solver) -> None:
    found = type(solver)
    if found.role not in get_args(Role):
        raise CheckFailedError(
            f"its role is '{found.role}', not one of {', '.join(get_args(Role))}"
        )
    for key in ("objectives", "constraints"):
        unknown = sorted(map(str, set(getattr(found, key)) - set(Shape)))
        if unknown:
            raise CheckFailedError(f"'{unknown[0]}' among its {key} is no class of goals")
        if not getattr(found, key) and found.role != "ignores":
            raise CheckFailedError(f"it says of no class of {key} that it takes them")
    if found.role == "ignores" and (found.objectives or found.constraints):
        raise CheckFailedError("it ignores goals, and names classes that it takes")
    if not isinstance(found.version, int) or found.version < 1:
        raise CheckFailedError(f"its version is {found.version!r}, not a whole number from 1")


def _options(solver: Solver) -> None:
    found = type(solver)
    parameters = vars(found).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise CheckFailedError("its class is no frozen dataclass")
    for each in dataclasses.fields(solver):  # type: ignore[arg-type]
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            raise CheckFailedError(f"the option '{each.name}' has no default")
    adapter: TypeAdapter[Solver] = TypeAdapter(found)
    text = json.dumps(all_options(solver))
    back = adapter.validate_json(text, strict=True)
    if back != solver:
        raise CheckFailedError(f"its options, written as {text}, are read as others")
    trial_key(all_options(solver))


def _typed(solver: Solver) -> None:
    adapter: TypeAdapter[Solver] = TypeAdapter(type(solver))
    for each in dataclasses.fields(solver):  # type: ignore[arg-type]
        odd = {"no": "such value"}
        given: Mapping[str, Any] = all_options(solver) | {each.name: odd}
        try:
            adapter.validate_json(json.dumps(given), strict=True)
        except ValueError:
            continue
        if any(True for _ in check_option_values(type(solver), given)):
            continue
        raise CheckWarningError(f"the option '{each.name}' takes anything, even {odd}")


def _documented(solver: Solver) -> None:
    text = inspect.getdoc(type(solver)) or ""
    # `dataclass` generates a docstring that starts like a call
    if not text or text.startswith(f"{type(solver).__name__}("):
        raise CheckFailedError("its class has no docstring")
    for each in dataclasses.fields(solver):  # type: ignore[arg-type]
        if f"\n{each.name}\n" not in text:
            raise CheckFailedError(f"its docstring says nothing of '{each.name}'")


def _travels(solver: Solver) -> None:
    try:
        back = pickle.loads(pickle.dumps(solver))  # noqa: S301  bytes made here
    except Exception as error:
        raise CheckFailedError(f"it cannot be pickled: {exception_line(error)}") from error
    if back != solver:
        raise CheckFailedError("pickled and back it is not equal to itself")


OPTION_CHECKS: tuple[PluginCheck[Solver], ...] = (
    PluginCheck(
        "declares what it takes",
        "set role, objectives, constraints and version on the class",
        _declares,
    ),
    PluginCheck(
        "has options with defaults",
        "a frozen dataclass of plain JSON values, each with a default",
        _options,
    ),
    PluginCheck(
        "types its options", "annotate it, as in Annotated[int, Ge(1)] or Literal['a', 'b']", _typed
    ),
    PluginCheck(
        "documents its options", "a line for each under `Attributes` in the docstring", _documented
    ),
    PluginCheck(
        "goes to workers",
        "keep nothing in it that pickle does not know: a module-level class",
        _travels,
    ),
)


SOLUTION_STATUSES = ("solved", "iteration_limit", "infeasible", "no_solution_found", "diverged")
OBJECTIVE_TOLERANCE = 1e-6
"""Rounding may make an objective look better than the optimum by this much."""


def check_solver(
    solver: type[Solver] | Solver, *, name: str = "", origin: str = ""
) -> PluginReport:
    """Check a solver's class, or an instance with its own options.

    It is run about thirty times on tables of 60 rows, on problems with known optima.
    """
    made = solver() if isinstance(solver, type) else solver
    shown = name or type(made).__name__
    subject = SolverSubject(made)
    checks = run_checks(OPTION_CHECKS, made)
    if any(check.state == "failed" for check in checks):
        rest = "its options are not as they should be"
        left = tuple(
            CheckResult(each.name, "skipped", rest)
            for each in (*SOLUTION_CHECKS, *BEHAVIOUR_CHECKS)
        )
        return PluginReport("algorithm", shown, origin or type(made).__module__, (*checks, *left))
    checks += run_checks((*SOLUTION_CHECKS, *BEHAVIOUR_CHECKS), subject)
    return PluginReport(
        "algorithm", shown, origin or type(made).__module__, checks, tuple(_gaps(subject))
    )


def _solves(subject: SolverSubject) -> None:
    """Check the solution of every problem that the solver declares to take."""
    _ = subject.first
    for goals in subject.goals:
        solution = subject.on(goals).answer()
        if solution.status not in SOLUTION_STATUSES:
            listed = ", ".join(SOLUTION_STATUSES)
            raise CheckFailedError(
                f"its status on '{goals.name}' is '{solution.status}', not one of {listed}"
            )
        if solution.status in {"solved", "iteration_limit"} and not solution.variants:
            raise CheckFailedError(
                f"on '{goals.name}' it is {solution.status} and gives no classifier"
            )
        if solution.status != "solved" and not solution.reason:
            raise CheckFailedError(f"on '{goals.name}' it is {solution.status} and gives no reason")
        unknown = set(solution.multipliers) - set(goals.rules)
        if unknown:
            raise CheckFailedError(f"'{unknown.pop()}' among its multipliers is no constraint")


def _decides(subject: SolverSubject) -> None:
    """Check that there are decisions, scores and estimates for every row.

    Decisions must be between 0 and 1.
    """
    for run in _answered(subject):
        for name, variant in run.answer().variants.items():
            where = f"variant '{name}' on '{run.goals.name}'"
            if variant.width != run.problem.X.shape[1]:
                raise CheckFailedError(
                    f"{where} has the width {variant.width}, of {run.problem.X.shape[1]}"
                )
            if unknown := set(variant.slices) - set(run.problem.slices):
                raise CheckFailedError(f"{where} looks at '{unknown.pop()}', which no goal names")
            if variant.slices and not subject.solver.sees_slices:
                raise CheckFailedError(
                    f"{where} looks at slices, and `sees_slices` says that it does not"
                )
            _check_decisions(run, variant, where)


def _check_decisions(run: SolverRun, variant: Classifier, where: str) -> None:
    n = run.problem.X.shape[0]
    found = run.problem.decisions(variant)
    if np.shape(found) != (n,):
        raise CheckFailedError(f"{where} decides {np.shape(found)}, of {n} rows")
    if not (np.isfinite(found).all() and found.min() >= 0 and found.max() <= 1):
        raise CheckFailedError(
            f"{where} decides with chances from {found.min():g} to {found.max():g}"
        )
    if variant.slices:
        return  # only `problem` can append the slice columns to the features
    for key in ("score", "estimate"):
        answer = getattr(variant, key)(run.problem.X)
        if np.shape(answer) != (n,):
            raise CheckFailedError(f"'{key}' of {where} is {np.shape(answer)}, of {n} rows")


def _by_row(subject: SolverSubject) -> None:
    """Check that the decision on a row depends on its features, not on its position."""
    for run in _answered(subject):
        for name, variant in run.answer().variants.items():
            if variant.slices:
                continue
            X, whole = run.problem.X, run.problem.decisions(variant)
            order = np.random.default_rng(0).permutation(X.shape[0])
            moved, single = variant.decide(X[order]), variant.decide(X[:1])
            if not (_close(moved, whole[order]) and _close(single, whole[:1])):
                where = f"variant '{name}' on '{run.goals.name}'"
                raise CheckFailedError(
                    f"{where} decides the same rows otherwise in another order or alone"
                )


def _check_status(subject: SolverSubject) -> None:
    """Check that `solved` means feasible, and that feasible problems are not called infeasible."""
    if subject.kind.role != "enforces":
        raise CheckSkippedError(f"it {subject.kind.role} goals and promises nothing")
    for run in _answered(subject):
        solution, main = run.answer(), run.main
        if solution.status == "solved" and main is not None:
            missed = run.problem.violation(main)
            if missed > MAX_EXCESS:
                where = f"'{run.goals.name}' is called solved"
                raise CheckFailedError(f"{where}, and a constraint is missed by {missed:.3g}")
        if solution.status == "infeasible" and run.goals.possible:
            raise CheckFailedError(f"'{run.goals.name}' is called infeasible, and can be met")


def _impossible(subject: SolverSubject) -> None:
    """Check that a problem that no decisions can satisfy is not `solved`."""
    asked = [goals for goals in subject.goals if not goals.possible]
    if not asked or subject.kind.role != "enforces":
        raise CheckSkippedError("it promises nothing that could be out of reach")
    for goals in asked:
        status = subject.on(goals).answer().status
        if status == "solved":
            raise CheckFailedError(f"'{goals.name}' is called solved, and no decisions can meet it")


def _check_not_below_optimum(subject: SolverSubject) -> None:
    """Check that neither the measured nor the claimed objective is below the known optimum."""
    for run in _answered(subject):
        if run.goals.exact is None:
            continue
        exact, training = run.goals.exact(run.rows.training), run.rows.training
        decisions = run.decisions()
        if decisions is not None:
            slack = max(exact.violation(decisions), 0.0)
            best = exact.best(run.cells(), slack)
            found = exact.objective.at(decisions)
            if found < best - OBJECTIVE_TOLERANCE:
                raise CheckFailedError(
                    f"on '{run.goals.name}' it has {found:.6g}, and {best:.6g} is the least"
                )
        most = exact.best(
            indistinguishable_rows(_dense(run), (training.group == "a").astype(float)),
            OBJECTIVE_TOLERANCE,
        )
        for step in run.answer().trace:
            claimed = float(step.get("objective", math.inf))
            if (
                float(step.get("violation", math.inf)) <= OBJECTIVE_TOLERANCE
                and claimed < most - OBJECTIVE_TOLERANCE
            ):
                said = f"its trace says {claimed:.6g} without a violation"
                raise CheckFailedError(f"on '{run.goals.name}' {said}, and {most:.6g} is the least")


def _counts(subject: SolverSubject) -> None:
    """Compare the objective and violation of `Problem` with those computed by this package."""
    for run in _answered(subject):
        decisions = run.decisions()
        if run.goals.exact is None or decisions is None or run.main is None:
            continue
        exact = run.goals.exact(run.rows.training)
        pairs = (
            (exact.objective.at(decisions), run.problem.value(run.main)),
            (max(exact.violation(decisions), 0.0), run.problem.violation(run.main)),
        )
        for here, there in pairs:
            if not (math.isclose(here, there, abs_tol=1e-7) or math.isnan(here) or here > 1):
                raise CheckFailedError(
                    f"on '{run.goals.name}' {there:.9g} is measured, and {here:.9g} counted"
                )


def _answered(subject: SolverSubject) -> Iterator[SolverRun]:
    """Yield the runs on the plain table with a solution; `_solves` reports why others have none."""
    _ = subject.first
    for goals in subject.goals:
        run = subject.on(goals)
        if run.error is None and run.solution is not None:
            yield run


def _close(one: Any, other: Array) -> bool:
    return np.shape(one) == np.shape(other) and bool(np.allclose(one, other, rtol=0, atol=1e-12))


def _dense(run: SolverRun) -> Array:
    X = run.problem.X
    return X if isinstance(X, np.ndarray) else X.toarray()


def _gaps(subject: SolverSubject) -> Iterator[OptimalityGap]:
    for goals in subject.goals:
        run = subject.on(goals)
        if goals.exact is None or run.solution is None:
            continue
        exact, decisions = goals.exact(run.rows.training), run.decisions()
        line = exact.best_line(linear_decisions(run.rows.training))
        value = missed = best = math.nan
        if decisions is not None:
            value, missed = exact.objective.at(decisions), max(exact.violation(decisions), 0.0)
            best = exact.best(run.cells(), missed)
        status = run.solution.status
        yield OptimalityGap(goals.name, status, value, missed, best, line, run.seconds)


SOLUTION_CHECKS: tuple[PluginCheck[SolverSubject], ...] = (
    PluginCheck(
        "solves what it takes", "give a Solution with a status, a reason, and classifiers", _solves
    ),
    PluginCheck(
        "decides rows",
        "decisions are (n,) floats in [0, 1]; name slices as the problem does",
        _decides,
    ),
    PluginCheck("decides row by row", "let decisions hang on features (and slices) only", _by_row),
    PluginCheck(
        "is honest",
        "say solved only where problem.violation(main) is 0; else say why not",
        _check_status,
    ),
    PluginCheck(
        "sees what is out of reach",
        "say infeasible or no_solution_found, with a reason",
        _impossible,
    ),
    PluginCheck(
        "beats no optimum",
        "measure with problem.value and problem.violation; train on X alone",
        _check_not_below_optimum,
    ),
    PluginCheck("is measured rightly", "this is ratecli's: please report it", _counts),
)
