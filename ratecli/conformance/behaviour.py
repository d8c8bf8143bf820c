"""How a solver behaves: the same again, on odd tables, with weights, stored, and without traces."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ratecli.conformance.goals import GOALS
from ratecli.conformance.outcome import DoubtError, FailsError, SkipsError, Trial, said
from ratecli.conformance.rows import edges, plain, repeated, weighted
from ratecli.conformance.solving import SEED, Run, Subject, fresh, refused
from ratecli.errors import FaultError
from ratecli.ledger.records import TrialResult
from ratecli.ledger.store import documents
from ratecli.models.base import Classifier
from ratecli.models.storage import dumps, loads
from ratecli.solvers.hull.best import EXCESS

ALIKE = 0.03
"""How far apart the objectives may be of two ways to say the same: a search that draws may end elsewhere."""


IGNORED = 0.01
"""Mean difference of decisions up to which weights made none."""


def _repeats(subject: Subject) -> None:
    """Twice the same generator, whatever the state is that NumPy and Python share."""
    goals = subject.first
    first = subject.on(goals)
    state, shared = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        random.seed(SEED)
        np.random.seed(SEED)  # noqa: NPY002
        again = subject.run("again", goals, plain(), fresh(subject.solver))
        once_more = subject.run("once more", goals, plain())
    finally:
        random.setstate(state)
        np.random.set_state(shared)  # noqa: NPY002
    for other in (again, once_more):
        if not _same(first, other):
            raise FailsError(f"on '{goals.name}' it answers otherwise with the same generator")


def _same(one: Run, other: Run) -> bool:
    """Bit for bit: status, variants, what they decide and what they are made of."""
    if one.solution is None or other.solution is None:
        return (one.solution is None) == (other.solution is None)
    mine, theirs = one.solution.variants, other.solution.variants
    if one.solution.status != other.solution.status or list(mine) != list(theirs):
        return False
    return all(
        np.array_equal(one.problem.decisions(mine[name]), one.problem.decisions(theirs[name]))
        and _parts(mine[name]) == _parts(theirs[name])
        for name in mine
    )


def _parts(classifier: Classifier) -> dict[str, bytes]:
    """Two that decide these few rows alike may still be two."""
    return {name: np.asarray(array).tobytes() for name, array in classifier.state().items()}


def _order(subject: Subject) -> None:
    goals, rows = subject.first, plain()
    first = subject.on(goals)
    order = np.random.default_rng(3).permutation(len(rows))
    other = subject.run("another order", goals, rows.at(order))
    _alike(first, other, "with its rows in another order", doubt=True)


def _weights(subject: Subject) -> None:
    goals, rows = subject.first, weighted()
    one = subject.run("weights", goals, rows)
    if isinstance(one.error, FaultError):
        raise SkipsError(f"it refuses rows of different weights: {said(one.error)}")
    many = subject.run("repeated rows", goals, repeated(rows))
    try:
        _alike(one, many, "where rows stand there eight times, not once with a weight of 8")
    except FailsError as error:
        alone = subject.run("no weights", goals, replace(rows, weight=np.ones(len(rows))))
        if one.main is None or alone.main is None:
            raise
        apart = one.problem.decisions(one.main) - one.problem.decisions(alone.main)
        if np.abs(apart).mean() <= IGNORED:
            raise FailsError(f"weights change nothing: {error}") from error
        raise DoubtError(str(error)) from error


def _alike(one: Run, other: Run, when: str, *, doubt: bool = False) -> None:
    """Whether the second's classifier is about as good on the first's problem."""
    kind = DoubtError if doubt else FailsError
    first, second = one.answer(), other.answer()
    if one.main is None or other.main is None:
        if first.status != second.status:
            raise kind(f"it ends as {second.status} {when}, else as {first.status}")
        return
    here = [one.problem.value(each) for each in (one.main, other.main)]
    missed = [one.problem.violation(each) for each in (one.main, other.main)]
    if not (abs(here[0] - here[1]) <= ALIKE and abs(missed[0] - missed[1]) <= ALIKE):
        told = f"objective {here[1]:.3g} and violation {missed[1]:.3g}"
        raise kind(f"it has {told} {when}, else {here[0]:.3g} and {missed[0]:.3g}")


def _odd(subject: Subject) -> None:
    """Tables with something odd about them: an answer, or a fault that says why there is none."""
    for name, rows in edges().items():
        run = subject.run(name, subject.first, rows)
        if run.error is not None:
            if isinstance(run.error, FaultError):
                continue
            raise FailsError(f"on a table with {name} it raises {said(run.error)}")
        solution = run.answer()
        for variant in solution.variants.values():
            found = run.problem.decisions(variant)
            if not (np.isfinite(found).all() and found.min() >= 0 and found.max() <= 1):
                raise FailsError(f"on a table with {name} its decisions are not in [0, 1]")
        claims = solution.status == "solved" and subject.kind.role == "enforces"
        missed = run.problem.violation(run.main) if run.main is not None else 0.0
        if claims and missed > EXCESS:
            raise FailsError(f"a table with {name} is called solved, and missed by {missed:.3g}")


def _untaken(subject: Subject) -> None:
    """Goals that it does not take: ratecli refuses them before; asked all the same, it is honest."""
    if subject.kind.role != "enforces":
        raise SkipsError(f"it {subject.kind.role} goals")
    others = [goals for goals in GOALS if goals not in subject.goals]
    if not others:
        raise SkipsError("it takes all that the kit has")
    for goals in others:
        run = subject.run(f"untaken {goals.name}", goals, plain())
        if run.error is not None and not refused(run.error):
            raise DoubtError(f"asked for '{goals.name}' it raises {said(run.error)}")
        if run.solution is not None and run.main is not None and run.solution.status == "solved":
            missed = run.problem.violation(run.main)
            if missed > EXCESS:
                raise FailsError(
                    f"'{goals.name}', which it does not take, is called solved and missed by {missed:.3g}"
                )


def _stored(subject: Subject) -> None:
    for run in _answers(subject):
        assert run.solution is not None
        for name, variant in run.solution.variants.items():
            try:
                back = loads(dumps(variant))
            except Exception as error:
                raise FailsError(f"variant '{name}' cannot be stored: {said(error)}") from error
            if not np.array_equal(run.problem.decisions(back), run.problem.decisions(variant)):
                raise FailsError(f"variant '{name}', stored and read, decides otherwise")


def _recorded(subject: Subject) -> None:
    for run in _answers(subject):
        assert run.solution is not None
        solution = run.solution
        for step in solution.trace:
            absent = {"iteration", "objective", "violation", "seconds"} - step.keys()
            if absent:
                raise FailsError(f"its trace has no '{min(absent)}'")
        result = TrialResult(
            "k", "ok", solution.reason, 0.0, {}, solution.trace, solution.multipliers
        )
        try:
            documents(result)
            pickle.dumps(solution)
        except Exception as error:
            raise FailsError(f"its solution cannot be recorded: {said(error)}") from error


def _answers(subject: Subject) -> Iterator[Run]:
    _ = subject.first
    return (run for run in subject.all() if run.error is None and run.solution is not None)


def _alone(subject: Subject) -> None:
    _ = subject.first
    for run in subject.all():
        if run.seen.random:
            raise FailsError("it draws from the random numbers that NumPy or Python share")


def _traceless(subject: Subject) -> None:
    _ = subject.first
    for run in subject.all():
        if run.seen.printed:
            raise FailsError(f"it prints '{run.seen.printed.strip()[:40]}'")
        if run.seen.written:
            raise FailsError(f"it writes to {run.seen.written[0]}")


def _tells(subject: Subject) -> None:
    _ = subject.first
    for run in subject.all():
        for call in run.told:
            if len(call) != 1 or not isinstance(call[0], str) or not call[0].strip():
                raise FailsError(f"it calls progress{call!r}")


def _leaves(subject: Subject) -> None:
    """The problem is as it was: others are given the same arrays."""
    _ = subject.first
    for run in subject.all():
        rows = run.rows.training
        X = run.problem.X if isinstance(run.problem.X, np.ndarray) else run.problem.X.toarray()
        own = rows.X if isinstance(rows.X, np.ndarray) else rows.X.toarray()
        same = np.array_equal(run.problem.label, rows.label, equal_nan=True) and np.array_equal(
            X, own
        )
        if not same:
            raise FailsError(f"after '{run.goals.name}' the features or labels are others")


BEHAVIOUR: tuple[Trial[Subject], ...] = (
    Trial("gives the same again", "draw from the `rng` it is given, from nothing else", _repeats),
    Trial("heeds no order of rows", "sums over rows should not hang on their order", _order),
    Trial("counts weights", "take rows' weights from problem.rates, problem.labels() or problem.rows()", _weights),
    Trial("bears odd tables", "give a status and a reason where nothing can be learned", _odd),
    Trial("is honest beyond its classes", "raise, or say no_solution_found with a reason", _untaken),
    Trial("can be stored", "answer with classifiers of ratecli.models (linear, grouped, mixture, fitted)", _stored),
    Trial("can be recorded", "a trace of plain numbers: iteration, objective, violation, seconds", _recorded),
    Trial("draws its own numbers", "give `rng` on, also to scikit-learn as random_state", _alone),
    Trial("leaves no traces", "say what there is to say by `progress`", _traceless),
    Trial("tells its progress", "call progress with one line of text", _tells),
    Trial("leaves the problem alone", "copy arrays before you change them", _leaves),
)  # fmt: skip
