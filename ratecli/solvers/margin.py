"""Make the constraints of any algorithm hold on new rows or on validation rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Classifier
from ratecli.rates import expression as ex
from ratecli.solvers.base import USABLE_STATUSES, Progress, Solution, Solver
from ratecli.solvers.baselines.options import PostShift
from ratecli.solvers.hull.options import Mixture
from ratecli.solvers.judges import (
    PLAIN_JUDGE,
    Attempt,
    Judge,
    NormalJudge,
    SafetyTestJudge,
)
from ratecli.solvers.problem import Problem
from ratecli.solvers.refusals import small_group, what_would_help, worst_piece
from ratecli.solvers.tightening import TighteningSearch, folds_of

GUARD_VERSION = 21
"""Version in the key of each guarded trial; increased when its results change."""
DEFAULT_LEVEL = 0.9
"""Level of constraints that hold on new rows."""
PATH_STEPS = 15
"""Number of equal steps from no margin to the one that passes a safety test as often as `aim`."""
SAFER_STEPS = 6
"""Number of such steps to larger margins, which are tested first."""
MAX_TRIED_ENTRIES, MAX_TRIED_PIECES = 10**6, 6
"""Largest numbers of features in all rows, and of pieces, with which a refusal tries algorithms."""
Holds = Literal["train", "validation", "new_rows"]


@dataclass(frozen=True)
class MarginSpec:
    """The rows on which constraints must hold.

    A model satisfies its constraints on the rows it was fitted to, but slightly less well on others
    (Cotter et al. 2019, "Training well-generalizing classifiers"). Therefore constraints are
    tightened on the training rows until their values on other rows, or the values to be expected
    there, are small enough.

    Attributes
    ----------
    holds
        The rows on which constraints must hold.
    level
        Required probability, above one half, that all constraints hold in the population of the
        rows. None on validation rows: only their rates have to satisfy the constraints.
    aim
        Required probability, at least one half, of passing the safety test that follows. The result
        of the test is predicted from training rows (see `seldonian.prediction`).
    """

    holds: Holds = "train"
    level: float | None = None
    aim: float | None = None


def solve_with_margin(
    solver: Solver,
    guard: MarginSpec,
    problem: Problem,
    rng: np.random.Generator,
    progress: Progress = lambda _: None,
    *,
    path: bool = True,
) -> Solution:
    """Solve the problem with constraints tightened until they hold as `guard` requires.

    On new rows, the main classifier must satisfy `violation + c * error <= 0` for each piece of a
    constraint: `violation` by decisions on rows that its training did not see
    (`TighteningSearch.rehearse`), `error` the standard error by the delta method times
    `EXTRA_NOISE`, and c such that all pieces hold together with probability `level` (`judges`).
    Streamed rows, which are many for each parameter, are judged by the model of all rows, and so
    are validation rows.

    Each round tightens the constraints by their shortfall (`TighteningSearch.run`). Of the amounts
    without a shortfall, the one with the smallest objective is used, if its model is useful: better
    than any constant decision, random ones included, that the judge accepts. Without such amounts,
    the status is `no_solution_found` if a level was required (`_refuse` says why), else
    `iteration_limit` with the model of the smallest shortfall.

    With an `aim` and `path`, this model is one of several candidates for the safety test
    (`_with_path`). Without `path`, a refusal does not try other algorithms. A solver with
    `needs_safety_test` finds its own margin; only candidates are added. Solvers that do not enforce
    constraints run unchanged.

    Raises
    ------
    FaultError
        E410 if constraints are judged on validation rows and there are none.
    """
    enforced = problem.constraints if solver.role == "enforces" else ()
    prepares = solver.needs_safety_test
    if guard == MarginSpec() or not enforced or (prepares and not path):
        return solver.solution(problem, rng, progress)
    rows = _judging_rows(guard, problem)
    judge: Judge = NormalJudge(guard.level)
    first = solver.solution(problem, rng, progress)
    if not (first.variants and first.status in USABLE_STATUSES):
        return first  # tightening is useless
    if guard.holds == "new_rows" and problem.stream is None:
        folds = folds_of(problem)
        search = TighteningSearch(
            solver, problem, problem, rng, progress, judge, folds, tries_others=path
        )
        return _rehearsed_solution(search, first)
    if prepares:
        search = TighteningSearch(solver, problem, problem, rng, progress, judge)
        return _with_path(search.solve, first, 0.0, -_margin_of_test(guard, problem, first))
    if guard.aim is not None:
        judge = SafetyTestJudge(problem, guard.aim, len(first.variants))
    search = TighteningSearch(solver, problem, rows, rng, progress, judge)
    chosen = _choose_margin(search, guard, first)
    solution = chosen.solution
    assert solution is not None
    if guard.aim is None or not path:
        return solution
    return _with_path(search.solve, solution, chosen.by, 0.0)


def _choose_margin(search: TighteningSearch, guard: MarginSpec, first: Solution) -> Attempt:
    """Return the attempt that is chosen; its solution has no variants if none is useful."""
    tried = search.run(search.judged(first, np.zeros(len(search.problem.pieces))))
    useful = [each for each in tried if search.is_useful(each)]
    best = min(useful or tried, key=lambda each: (each.missed, each.objective))
    if search.needs_level and (best.missed or not useful):
        return replace(best, solution=_refuse(search, tried))
    found = best.solution
    assert found is not None
    if best.missed or found.status not in USABLE_STATUSES:
        judged = "in the predicted safety test" if guard.aim else f"on {guard.holds} rows"
        name = search.problem.piece_owners[int(best.upper.argmax())]
        reason = f"'{name}' is violated by {best.missed:.3g} {judged}"
        if not best.missed:  # only constraints tightened more than necessary could not be satisfied
            reason = "the constraints are satisfied, but the objective may not be the smallest"
        found = replace(found, status="iteration_limit", reason=reason)
    return replace(best, solution=found)


def _rehearsed_solution(search: TighteningSearch, first: Solution) -> Solution:
    """Return the solution of all rows with amounts that hold in folds, or a refusal."""
    if not search.folds:
        return _refuse(search, [])
    tried = search.run(search.judged(first, np.zeros(len(search.problem.pieces))))
    passed = [each for each in tried[1:] if search.is_useful(each) and not each.missed]
    for each in sorted(passed, key=lambda each: each.objective):
        if not each.by.any():
            return first
        solution = search.solve(each.by, first.near or first.main)
        if solution.status in USABLE_STATUSES and solution.variants:
            return search.checked(solution, each.by)
    return _refuse(search, tried)


def _margin_of_test(guard: MarginSpec, problem: Problem, solution: Solution) -> Array:
    """Return what the prediction of the safety test adds to each piece (J,) of the constraints.

    It is unknown, and 0, unless pieces are tested and all rates are of decisions.
    """
    pieces = problem.pieces
    assert guard.aim is not None
    assert problem.safety_test is not None
    of = {leaf.rate.of for leaf in ex.leaves(*pieces)}
    if problem.safety_test.method != "pieces" or of != {"decision"}:
        return np.zeros(len(pieces))
    decisions = problem.decisions(solution.main)
    upper = SafetyTestJudge(problem, guard.aim)(problem, decisions)
    return np.maximum(upper - PLAIN_JUDGE(problem, decisions), 0.0)


def _with_path(
    solve: Callable[[Array, Classifier], Solution],
    found: Solution,
    start: Array | float,
    end: Array | float,
) -> Solution:
    """Solve with margins from larger than `start` down to `end` (J,): candidates for the test.

    The margin at `start`, which gave `found`, is larger than the test requires in most cases, and
    too small in others. How large it must be is unknown before the test, so candidates are tested
    from the largest margin on until one fails (see `SafetyRows.verdict`).
    """
    change = np.asarray(end - start)
    steps = range(-SAFER_STEPS, PATH_STEPS + 1) if change.any() else [0]
    path = list[Mapping[str, Classifier]]()
    near = found.near or found.main
    for step in steps:
        solution = solve(start + step / PATH_STEPS * change, near) if step else found
        statuses = {"solved"} if step < 0 else USABLE_STATUSES
        if not step or (solution.variants and solution.status in statuses):
            path.append(solution.variants)
    return replace(found, variants=path[0], bolder=tuple(path[1:]))


def _refuse(search: TighteningSearch, tried: Sequence[Attempt]) -> Solution:
    """Return a solution without a model that says what would help."""
    problem, judge = search.problem, search.judge
    assert isinstance(judge, NormalJudge)
    kind = "decision" if problem.label_range is None else "prediction"
    wanted = f"on new rows with probability {judge.level:g}"
    where = "training" if search.rows is problem else "validation"
    reason = f"there are too few {where} rows to judge whether the constraints hold {wanted}"
    if tried and not search.is_useful(tried[0]):
        reason = (
            f"the model is no better than a constant {kind} that satisfies the constraints, even "
            "without a margin for new rows: use a looser limit"
        )
    elif tried:
        # the first attempt has no bias if there are folds
        useful = [each for each in tried[bool(search.folds) :] if search.is_useful(each)]
        worst = worst_piece(problem, min(useful or tried, key=lambda each: each.missed))[1]
        if useful:
            helps = [*what_would_help(problem, judge, useful, where=where)]
        else:
            helps = ["a looser limit", *small_group(problem, tried[0]), "other features"]
            helps.append(f"more {where} rows")
        helps += _other_algorithms(search)
        listed = " or ".join([*filter(None, [", ".join(helps[:-1])]), helps[-1]])
        reason = f"no model that is expected to satisfy {worst} {wanted} is better than a constant "
        reason += f"{kind}. What may help: {listed}"
    return Solution({}, "no_solution_found", reason)


def _other_algorithms(search: TighteningSearch) -> Iterator[str]:
    """Yield algorithms that hold on these rows, of those that are tried at little cost."""
    problem, judge = search.problem, search.judge
    assert isinstance(judge, NormalJudge)
    is_cheap = problem.X.size <= MAX_TRIED_ENTRIES and len(problem.pieces) <= MAX_TRIED_PIECES
    if not (search.tries_others and is_cheap):
        return
    known = "post_shift (groups must be known when decisions are made)"
    for name, other in ((known, PostShift()), ("mixture", Mixture())):
        shapes = {goal.shape for goal in problem.constraints}
        accepts = problem.objective.shape in other.objectives and shapes <= other.constraints
        if accepts and problem.label_range is None and type(other) is not type(search.solver):
            guard = MarginSpec("new_rows", judge.level)
            if solve_with_margin(other, guard, problem, search.rng, path=False).variants:
                yield f"the algorithm {name}"


def _judging_rows(guard: MarginSpec, problem: Problem) -> Problem:
    """Return the rows on which constraints are judged, unless the algorithm names others."""
    if guard.holds != "validation":
        return problem
    if problem.validation is None:
        hint = "set split: {validation: 0.2} in the data set"
        message = "constraints have to hold on validation rows, but there are none"
        raise FaultError(Diagnostic("E410", message, hint))
    return problem.validation
