"""Checks of a solver's behaviour.

Reproducibility, row weights, odd tables, stored models, and side effects.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ratecli.conformance.optimum import TINY_PROBLEM_GOALS
from ratecli.conformance.outcome import (
    CheckFailedError,
    CheckSkippedError,
    CheckWarningError,
    PluginCheck,
    exception_line,
)
from ratecli.conformance.rows import odd_tables, plain_table, repeat_rows, weighted_table
from ratecli.conformance.solving import SEED, SolverRun, SolverSubject, copy_solver, is_refusal
from ratecli.errors import FaultError
from ratecli.ledger.records import TrialResult
from ratecli.ledger.store import result_documents
from ratecli.models.base import Classifier
from ratecli.models.storage import dumps, loads
from ratecli.solvers.hull.best import MAX_EXCESS

SIMILAR_OBJECTIVE = 0.03
"""Largest difference between the objectives of two equivalent problems.

Randomized searches may end at different solutions.
"""


IGNORED_WEIGHTS_TOLERANCE = 0.01
"""Largest mean change in decisions that still counts as "sample weights had no effect"."""


def _check_reproducible(subject: SolverSubject) -> None:
    """Check that the result depends on the given generator, not on global random states."""
    goals = subject.first
    first = subject.on(goals)
    state, shared = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        random.seed(SEED)
        np.random.seed(SEED)  # noqa: NPY002
        again = subject.run("again", goals, plain_table(), copy_solver(subject.solver))
        once_more = subject.run("once more", goals, plain_table())
    finally:
        random.setstate(state)
        np.random.set_state(shared)  # noqa: NPY002
    for other in (again, once_more):
        if not _are_identical(first, other):
            raise CheckFailedError(
                f"on '{goals.name}' it answers otherwise with the same generator"
            )


def _are_identical(one: SolverRun, other: SolverRun) -> bool:
    """Return whether status, variants, decisions and model parameters are identical."""
    if one.solution is None or other.solution is None:
        return (one.solution is None) == (other.solution is None)
    mine, theirs = one.solution.variants, other.solution.variants
    if one.solution.status != other.solution.status or list(mine) != list(theirs):
        return False
    return all(
        np.array_equal(one.problem.decisions(mine[name]), one.problem.decisions(theirs[name]))
        and _model_parts(mine[name]) == _model_parts(theirs[name])
        for name in mine
    )


def _model_parts(classifier: Classifier) -> dict[str, bytes]:
    """Return the parameters of a classifier.

    Two classifiers may differ even if they agree on these few rows.
    """
    return {name: np.asarray(array).tobytes() for name, array in classifier.state().items()}


def _check_row_order_ignored(subject: SolverSubject) -> None:
    goals, rows = subject.first, plain_table()
    first = subject.on(goals)
    order = np.random.default_rng(3).permutation(len(rows))
    other = subject.run("another order", goals, rows.at(order))
    _check_similar(first, other, "with its rows in another order", doubt=True)


def _check_weights(subject: SolverSubject) -> None:
    goals, rows = subject.first, weighted_table()
    one = subject.run("weights", goals, rows)
    if isinstance(one.error, FaultError):
        raise CheckSkippedError(
            f"it refuses rows of different weights: {exception_line(one.error)}"
        )
    many = subject.run("repeated rows", goals, repeat_rows(rows))
    try:
        _check_similar(one, many, "where rows stand there eight times, not once with a weight of 8")
    except CheckFailedError as error:
        alone = subject.run("no weights", goals, replace(rows, weight=np.ones(len(rows))))
        if one.main is None or alone.main is None:
            raise
        apart = one.problem.decisions(one.main) - one.problem.decisions(alone.main)
        if np.abs(apart).mean() <= IGNORED_WEIGHTS_TOLERANCE:
            raise CheckFailedError(f"weights change nothing: {error}") from error
        raise CheckWarningError(str(error)) from error


def _check_similar(one: SolverRun, other: SolverRun, when: str, *, doubt: bool = False) -> None:
    """Check that the second classifier is about as good on the first run's problem."""
    kind = CheckWarningError if doubt else CheckFailedError
    first, second = one.answer(), other.answer()
    if one.main is None or other.main is None:
        if first.status != second.status:
            raise kind(f"it ends as {second.status} {when}, else as {first.status}")
        return
    here = [one.problem.value(each) for each in (one.main, other.main)]
    missed = [one.problem.violation(each) for each in (one.main, other.main)]
    if not (
        abs(here[0] - here[1]) <= SIMILAR_OBJECTIVE
        and abs(missed[0] - missed[1]) <= SIMILAR_OBJECTIVE
    ):
        told = f"objective {here[1]:.3g} and violation {missed[1]:.3g}"
        raise kind(f"it has {told} {when}, else {here[0]:.3g} and {missed[0]:.3g}")


def _check_odd_tables(subject: SolverSubject) -> None:
    """Check that odd tables give a valid answer, or a diagnostic that explains why not."""
    for name, rows in odd_tables().items():
        run = subject.run(name, subject.first, rows)
        if run.error is not None:
            if isinstance(run.error, FaultError):
                continue
            raise CheckFailedError(f"on a table with {name} it raises {exception_line(run.error)}")
        solution = run.answer()
        for variant in solution.variants.values():
            found = run.problem.decisions(variant)
            if not (np.isfinite(found).all() and found.min() >= 0 and found.max() <= 1):
                raise CheckFailedError(f"on a table with {name} its decisions are not in [0, 1]")
        claims = solution.status == "solved" and subject.kind.role == "enforces"
        missed = run.problem.violation(run.main) if run.main is not None else 0.0
        if claims and missed > MAX_EXCESS:
            raise CheckFailedError(
                f"a table with {name} is called solved, and missed by {missed:.3g}"
            )


def _check_refused_goals(subject: SolverSubject) -> None:
    """Check that goals outside the declared classes are not falsely solved.

    ratecli refuses such goals; here they are passed to the solver all the same.
    """
    if subject.kind.role != "enforces":
        raise CheckSkippedError(f"it {subject.kind.role} goals")
    others = [goals for goals in TINY_PROBLEM_GOALS if goals not in subject.goals]
    if not others:
        raise CheckSkippedError("it takes all that the kit has")
    for goals in others:
        run = subject.run(f"untaken {goals.name}", goals, plain_table())
        if run.error is not None and not is_refusal(run.error):
            raise CheckWarningError(
                f"asked for '{goals.name}' it raises {exception_line(run.error)}"
            )
        if run.solution is not None and run.main is not None and run.solution.status == "solved":
            missed = run.problem.violation(run.main)
            if missed > MAX_EXCESS:
                raise CheckFailedError(
                    f"'{goals.name}', which it does not take, is called solved and missed by "
                    f"{missed:.3g}"
                )


def _check_model_storage(subject: SolverSubject) -> None:
    for run in _runs_with_answer(subject):
        assert run.solution is not None
        for name, variant in run.solution.variants.items():
            try:
                back = loads(dumps(variant))
            except Exception as error:
                raise CheckFailedError(
                    f"variant '{name}' cannot be stored: {exception_line(error)}"
                ) from error
            if not np.array_equal(run.problem.decisions(back), run.problem.decisions(variant)):
                raise CheckFailedError(f"variant '{name}', stored and read, decides otherwise")


def _check_ledger_record(subject: SolverSubject) -> None:
    for run in _runs_with_answer(subject):
        assert run.solution is not None
        solution = run.solution
        for step in solution.trace:
            absent = {"iteration", "objective", "violation", "seconds"} - step.keys()
            if absent:
                raise CheckFailedError(f"its trace has no '{min(absent)}'")
        result = TrialResult(
            "k", "ok", solution.reason, 0.0, {}, solution.trace, solution.multipliers
        )
        try:
            result_documents(result)
            pickle.dumps(solution)
        except Exception as error:
            raise CheckFailedError(
                f"its solution cannot be recorded: {exception_line(error)}"
            ) from error


def _runs_with_answer(subject: SolverSubject) -> Iterator[SolverRun]:
    _ = subject.first
    return (run for run in subject.all() if run.error is None and run.solution is not None)


def _check_own_random(subject: SolverSubject) -> None:
    _ = subject.first
    for run in subject.all():
        if run.seen.random:
            raise CheckFailedError("it draws from the random numbers that NumPy or Python share")


def _check_no_side_effects(subject: SolverSubject) -> None:
    _ = subject.first
    for run in subject.all():
        if run.seen.printed:
            raise CheckFailedError(f"it prints '{run.seen.printed.strip()[:40]}'")
        if run.seen.written:
            raise CheckFailedError(f"it writes to {run.seen.written[0]}")


def _check_progress(subject: SolverSubject) -> None:
    _ = subject.first
    for run in subject.all():
        for call in run.told:
            if len(call) != 1 or not isinstance(call[0], str) or not call[0].strip():
                raise CheckFailedError(f"it calls progress{call!r}")


def _check_inputs_unchanged(subject: SolverSubject) -> None:
    """Check that the problem is unchanged, since other solvers get the same arrays."""
    _ = subject.first
    for run in subject.all():
        rows = run.rows.training
        X = run.problem.X if isinstance(run.problem.X, np.ndarray) else run.problem.X.toarray()
        own = rows.X if isinstance(rows.X, np.ndarray) else rows.X.toarray()
        same = np.array_equal(run.problem.label, rows.label, equal_nan=True) and np.array_equal(
            X, own
        )
        if not same:
            raise CheckFailedError(f"after '{run.goals.name}' the features or labels are others")


BEHAVIOUR_CHECKS: tuple[PluginCheck[SolverSubject], ...] = (
    PluginCheck(
        "gives the same again",
        "draw from the `rng` it is given, from nothing else",
        _check_reproducible,
    ),
    PluginCheck(
        "heeds no order of rows",
        "sums over rows should not hang on their order",
        _check_row_order_ignored,
    ),
    PluginCheck(
        "counts weights",
        "take rows' weights from problem.rates, problem.labels() or problem.rows()",
        _check_weights,
    ),
    PluginCheck(
        "bears odd tables",
        "give a status and a reason where nothing can be learned",
        _check_odd_tables,
    ),
    PluginCheck(
        "is honest beyond its classes",
        "raise, or say no_solution_found with a reason",
        _check_refused_goals,
    ),
    PluginCheck(
        "can be stored",
        "answer with classifiers of ratecli.models (linear, grouped, mixture, fitted)",
        _check_model_storage,
    ),
    PluginCheck(
        "can be recorded",
        "a trace of plain numbers: iteration, objective, violation, seconds",
        _check_ledger_record,
    ),
    PluginCheck(
        "draws its own numbers",
        "give `rng` on, also to scikit-learn as random_state",
        _check_own_random,
    ),
    PluginCheck(
        "leaves no traces", "say what there is to say by `progress`", _check_no_side_effects
    ),
    PluginCheck("tells its progress", "call progress with one line of text", _check_progress),
    PluginCheck(
        "leaves the problem alone", "copy arrays before you change them", _check_inputs_unchanged
    ),
)
