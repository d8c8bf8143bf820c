"""Make the constraints of any algorithm hold on new rows or on validation rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Classifier
from ratecli.rates import expression as ex
from ratecli.solvers.base import USABLE_STATUSES, JudgedRows, Progress, Solution, Solver
from ratecli.solvers.baselines.options import PostShift
from ratecli.solvers.hull.infeasible import least_by_ranges
from ratecli.solvers.hull.options import Mixture
from ratecli.solvers.judges import (
    MAX_IGNORED_SHORTFALL,
    PLAIN_JUDGE,
    UNDEFINED_SHORTFALL,
    Attempt,
    Judge,
    NormalJudge,
    SafetyTestJudge,
)
from ratecli.solvers.oracles.unseen import UnseenScores
from ratecli.solvers.problem import Problem
from ratecli.solvers.refusals import small_group, what_would_help, worst_piece
from ratecli.solvers.seldonian.score_models import mean_label

GUARD_VERSION = 19
"""Version in the key of each guarded trial; increased when its results change."""
MAX_ROUNDS = 6
"""Maximum number of amounts by which constraints are tightened."""
DEFAULT_LEVEL = 0.9
"""Level of constraints that hold on new rows."""
FOLDS = 3
"""Number of folds in which the training is repeated."""
BIAS_SHARES = (0.7, 0.97)
"""Smallest and largest excess on new rows of a model of all rows, by that of models of two folds.

The share grows with the excess in multiples of what the judge adds for noise, which is 1.4 standard
errors for one piece. For linear models of 6 to 100 features and 1,500 to 12,000 rows, it was mostly
0.60 to 0.85 up to 2.3 of them, 0.75 to 1.03 up to 3.5, and 0.86 to 0.97 beyond.
"""
SHARE_AT_NONE, SHARE_PER_NOISE = 0.62, 0.085
"""The share between these two is the first number plus a multiple of that ratio."""
PATH_STEPS = 15
"""Number of equal steps from no margin to the one that passes a safety test as often as `aim`."""
SAFER_STEPS = 6
"""Number of such steps to larger margins, which are tested first."""
MIN_STEP = 1 / 32
"""Smallest share of a step that is tried."""
MAX_SPARE_ROOM = 1e-3
"""Largest unneeded slack that a tightened constraint may end with."""
SPARE_SHARE = 0.05
"""The same as a share of what the judge adds to the constraint."""
BIAS_PER_ROOT, MAX_FIRST_STEP = 0.45, 5.0
"""First amounts that are tried in folds, in what the judge adds to the model of all rows: 1 and the
first number per root of the number of features, about what the bias was, up to the second number.
"""
SLOPE_LOST, MAX_BIAS = 0.4, 1.4
"""A unit of tightening lowers a violation on new rows by 1 less this share of the bias per unit of
tightening, which counts up to a maximum: the bias grows with the amounts, but less than they do.
"""
MIN_SLOPE, MAX_SLOPE = 0.3, 1.5
"""Smallest and largest such decrease that is inferred from two amounts."""
MAX_EXTRAPOLATION = 0.6
"""Larger amounts are not judged if the step to them is at most this multiple of the one before."""
MAX_NOISE_SLOPE = 0.5
"""Maximum change of what the judge adds for noise per unit of tightening."""
MAX_NOISE_CHANGE = 2.0
"""Factor by which noise may shrink when constraints are tightened."""
MAX_CORRECTIONS = 5
"""Maximum number of corrections of amounts that are not judged."""
ROUNDING = 1e-9
"""Largest change of the sum of two pieces that counts as none."""
CONSTANTS = 21
"""Number of constant chances of a positive decision that are compared with a model."""
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
    constraint. The violation is estimated by training again with the same amounts, on all but one
    of `FOLDS` folds of the rows, and deciding the rows of the other (see `_Search.rehearse`). The
    last amounts may be read off the line through two attempts instead (see `_Search.extrapolate`).
    `error` is the standard error by the delta method times `EXTRA_NOISE`, and c is such that all
    pieces hold together with probability `level` (see `judges`). Streamed rows, which are many for
    each parameter, are judged by the model of all rows; so are validation rows.

    Each round tightens the constraints by their shortfall, divided by the slope between the last
    two attempts. If the constraints cannot be satisfied then, or only by models that are not
    useful, the step was too large and is halved; the one after a success may be twice as long. No
    problem is solved whose constraints contradict each other (see `least_by_ranges`). Of the
    amounts without a shortfall, the one with the smallest objective is used. If there is none, the
    status is `no_solution_found` if a level was required (see `_refuse` for the reason), else
    `iteration_limit` with the model of the smallest shortfall. A model is useful if its objective
    is smaller than that of any constant decision, random ones included, that the judge accepts.

    With an `aim` and `path`, this model is one of several candidates for the safety test (see
    `_with_path`). Without `path`, a refusal does not try other algorithms. A solver with
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
        folds = _folds(problem)
        search = _Search(solver, problem, problem, rng, progress, judge, folds, tries_others=path)
        return _rehearsed_solution(search, first)
    if prepares:
        search = _Search(solver, problem, problem, rng, progress, judge)
        return _with_path(search.solve, first, 0.0, -_margin_of_test(guard, problem, first))
    if guard.aim is not None:
        judge = SafetyTestJudge(problem, guard.aim, len(first.variants))
    search = _Search(solver, problem, rows, rng, progress, judge)
    chosen = _choose_margin(search, guard, first)
    solution = chosen.solution
    assert solution is not None
    if guard.aim is None or not path:
        return solution
    return _with_path(search.solve, solution, chosen.by, 0.0)


def _choose_margin(search: _Search, guard: MarginSpec, first: Solution) -> Attempt:
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


def _rehearsed_solution(search: _Search, first: Solution) -> Solution:
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


@dataclass
class _Fold:
    """Rows to fit to, and the other rows with their positions; the last model, to start from."""

    fitted: Problem
    new: Problem
    positions: NDArray[np.intp]
    near: Classifier | None = None


def _folds(problem: Problem) -> list[_Fold]:
    """Return the folds in which training is repeated; none if some rate has too few rows."""
    if problem.rates.sums.shape[1] < FOLDS:
        return []
    parts = UnseenScores.of({"folds": FOLDS}, problem).parts
    found = [_Fold(problem.on(fitted), problem.on(new), new) for fitted, new in parts]
    return found if all(each.fitted.rates.totals.all() for each in found) else []


@dataclass(frozen=True)
class _Search:
    """A search for the amounts by which constraints must be tightened.

    Constraints are judged on `rows`, unless the algorithm chooses its model by other rows than
    training rows, or on all training rows by the models of `folds`.
    """

    solver: Solver
    problem: Problem
    rows: Problem
    rng: np.random.Generator
    progress: Progress
    judge: Judge
    folds: Sequence[_Fold] = ()
    tries_others: bool = False

    @cached_property
    def limit(self) -> float:
        """The smallest objective of a constant decision that the judge accepts, else infinity."""
        return _best_constant(self.problem, self.rows, self.judge)

    @cached_property
    def rough(self) -> Solver:
        """The algorithm that repeats the training in folds."""
        return self.solver.rough

    @cached_property
    def opposites(self) -> list[tuple[int, int, float]]:
        """Pairs of pieces whose sum is the same for all rates, with this sum.

        They limit a difference from both sides. An excess of one is a lack of the other.
        """
        points = np.random.default_rng(0).random((len(self.problem.rates.index()), 3))
        found = self.problem.piece_function.values(points)
        change = found - found[:, :1]
        cancel = np.abs(change[:, None] + change).max(axis=2) < ROUNDING
        pairs = np.argwhere(np.triu(cancel, 1)).tolist()
        return [(i, j, float(found[i, 0] + found[j, 0])) for i, j in pairs]

    def consistent(self, by: Array, upper: Array) -> Array:
        """Return amounts `by` (J,), reduced where `opposites` would contradict each other.

        The amount of the piece with the smaller `upper` (J,) is reduced, below 0 if necessary.
        """
        by = by.copy()
        for i, j, both in self.opposites:
            k = i if upper[i] < upper[j] else j
            by[k] -= max(by[i] + by[j] + both + MAX_SPARE_ROOM, 0.0)
        return by

    def exceeds_limits(self, errors: Array) -> bool:
        """Whether noise (J,) is larger than what `opposites` allow, whatever the amounts are."""
        return any(errors[i] + errors[j] + both > MAX_SPARE_ROOM for i, j, both in self.opposites)

    @property
    def needs_level(self) -> bool:
        return isinstance(self.judge, NormalJudge) and self.judge.level is not None

    def run(self, first: Attempt) -> list[Attempt]:
        """Tighten constraints until the judge is satisfied; return all attempts."""
        tried, last, before, step = [first], first, None, 1.0
        low, high = np.full(len(first.by), -np.inf), np.full(len(first.by), np.inf)
        rounds = 1 if self.exceeds_limits(first.errors / MAX_NOISE_CHANGE) else MAX_ROUNDS
        while len(tried) < rounds and step >= MIN_STEP and self.is_useful(first):
            begins = bool(self.folds) and last is first
            slopes = self._slopes(first, before, last)
            if begins:
                bias = 1 + BIAS_PER_ROOT * math.sqrt(self.problem.X.shape[1])
                enough = min(bias, MAX_FIRST_STEP) * first.errors
                start, target = last.by, np.where(first.plain + enough > 0, enough, 0.0)
            else:
                missed = last.upper > MAX_IGNORED_SHORTFALL
                low, high = np.where(missed, last.by, low), np.where(missed, high, last.by)
                start, target = _next_step(last, slopes, low, high)
                if np.array_equal(target, last.by):
                    break
            by = self.consistent(start + step * (target - start), last.upper)
            if self.folds and not begins:
                near = self.extrapolate(before or first, last, slopes, by)
                if near and self.is_useful(near):
                    tried.append(near)
                    break
            attempt = self.rehearse(by) if self.folds else self.attempt(by, last)
            tried += [attempt] if attempt else []
            if attempt and self.is_useful(attempt):
                before, last, step = (None if begins else last), attempt, min(2 * step, 1.0)
            else:
                step /= 2
        return tried

    def extrapolate(
        self, earlier: Attempt, last: Attempt, slopes: Array, by: Array
    ) -> Attempt | None:
        """Return what the line through two attempts predicts for other amounts `by` (J,).

        Standard errors change with the amounts, too: a recall of .92 has a larger one than one of
        .95. Steps back of several pieces leave all of them less room, so that they need more
        together: the amounts are corrected until the judge accepts the prediction. None if it never
        does, if the amounts are too far, or if the noise of `opposites` exceeds their limits.
        """
        assert isinstance(self.judge, NormalJudge)
        upper, missing, moved = last.upper, np.zeros(len(by)), last.by - earlier.by
        noise, changed = np.zeros(len(by)), np.abs(moved) > MAX_SPARE_ROOM
        np.divide(last.errors - earlier.errors, moved, out=noise, where=changed)
        slopes = np.maximum(slopes - np.clip(noise, -MAX_NOISE_SLOPE, MAX_NOISE_SLOPE), MIN_SLOPE)
        for _ in range(MAX_CORRECTIONS):
            by = self.consistent(by + missing / slopes, upper)
            shifted = replace(self.judge, bias=last.bias - slopes * (by - last.by))
            upper = shifted(*last.judged)
            missing = np.maximum(upper, 0.0)
            if missing.max() <= MAX_SPARE_ROOM:
                break
        by = self.consistent(by + missing / slopes, upper)
        step = by - last.by
        is_far = (step > MAX_EXTRAPOLATION * np.abs(moved).max()).any()
        if is_far or missing.max() > MAX_SPARE_ROOM or self.exceeds_limits(last.errors):
            return None
        most = int(np.abs(moved).argmax())
        gained = (last.objective - earlier.objective) * step[most] / (moved[most] or 1.0)
        lowered = slopes * step
        return replace(
            last,
            by=by,
            plain=last.plain - step,
            bias=last.bias - lowered,
            upper=np.minimum(last.upper - lowered, 0.0),
            objective=last.objective + gained,
        )

    def _slopes(self, first: Attempt, before: Attempt | None, last: Attempt) -> Array:
        """Return by how much less pieces (J,) are violated per unit of tightening.

        It is what the bias suggests, for steps back at least what a comparison with the first
        attempt shows, of which the bias is taken to be a half; or what the last two attempts show.
        Beyond both of them, it is the mean of these, because the bias grows less and less.
        """
        usual = np.ones(len(last.by))
        if self.folds:
            bias = np.maximum(last.unseen + last.bias - last.plain, 0.0)
            per_unit = bias / np.maximum(last.by, MAX_SPARE_ROOM)
            usual = 1 - SLOPE_LOST * np.minimum(per_unit, MAX_BIAS)
            biased = replace(first, upper=first.upper + bias / 2)
            back = np.maximum(usual, _secant(biased, last, usual))
            usual = np.where(last.upper > 0, usual, back)
        if before is None:
            return usual
        slopes = _secant(before, last, usual)
        beyond = (last.upper > 0) == (last.by > before.by)
        return np.asarray(np.where(beyond, (slopes + usual) / 2, slopes))

    def solve(self, by: Array, near: Classifier | None = None) -> Solution:
        """Solve the problem with its constraints tightened by amounts (J,).

        The search may start from the classifier `near`. The solution has no variants if the
        tightened constraints contradict each other.
        """
        tightened = replace(_tighten_problem(self.problem, by), near=near)
        if least_by_ranges(tightened.pieces) > MAX_IGNORED_SHORTFALL:
            return Solution({}, "infeasible")
        solution = self.solver.solution(tightened, self.rng, self.progress)
        if solution.judged is None:
            return solution
        rows = replace(solution.judged.rows, constraints=self.problem.constraints)
        return replace(solution, judged=solution.judged._replace(rows=rows))

    def attempt(self, by: Array, last: Attempt) -> Attempt | None:
        """Tighten by amounts (J,), solve from the last solution on, and judge the main variant."""
        assert last.solution is not None
        solution = self.solve(by, last.solution.near or last.solution.main)
        return self.judged(solution, by) if solution.variants else None

    def judged(self, solution: Solution, by: Array) -> Attempt:
        """Judge the main variant of a solution of constraints tightened by `by`."""
        main, problem = solution.main, self.problem
        judged = solution.judged if self.rows is problem else None
        judged = judged or JudgedRows(self.rows, self.rows.decisions(main))
        objective = float(np.nan_to_num(problem.value(main), nan=np.inf))
        plain, upper = PLAIN_JUDGE(*judged), self.judge(*judged)
        none = np.zeros(len(by))
        return Attempt(by, plain, plain, none, upper, objective, judged, solution)

    def checked(self, solution: Solution, by: Array) -> Solution:
        """Return a solution whose status says if it violates a constraint on its training rows.

        A constraint with a negative amount in `by` (J,) may be violated by this amount.
        """
        rows = solution.judged or JudgedRows(self.problem, self.problem.decisions(solution.main))
        excess = PLAIN_JUDGE(*rows) + np.minimum(by, 0.0)
        if excess.max() <= MAX_IGNORED_SHORTFALL:
            return solution
        name = self.problem.piece_owners[int(excess.argmax())]
        reason = f"'{name}' is violated by {excess.max():.3g} on training rows"
        return replace(solution, status="iteration_limit", reason=reason)

    def rehearse(self, by: Array) -> Attempt | None:
        """Repeat the training on the folds with amounts (J,), and judge decisions on new rows.

        The noise of the rows cancels to first order, because a fold whose rates are too high by
        chance leaves others that are too low. What remains is the mean excess of models of two
        thirds of the rows, of which a share is expected for all rows (see `BIAS_SHARES`). A mean
        below 0 counts as 0; of `opposites`, it counts as far as no amounts satisfy both otherwise.
        None if the training fails in a fold.
        """
        decisions, inside = np.zeros(self.problem.rates.sums.shape[1]), list[Array]()
        for fold in self.folds:
            rng = np.random.default_rng(self.problem.seed)
            part = replace(self, solver=self.rough, problem=fold.fitted, rng=rng)
            try:
                solution = part.solve(by, fold.near)
            except FaultError:  # all rows had a solution: these are too few for the algorithm
                return None
            if solution.status not in USABLE_STATUSES or not solution.variants:
                return None
            main = solution.main
            fold.near = solution.near or main
            own = solution.judged or JudgedRows(fold.fitted, fold.fitted.decisions(main))
            inside.append(PLAIN_JUDGE(*own))
            decisions[fold.positions] = fold.new.decisions(main)
        judged, plain = JudgedRows(self.problem, decisions), np.mean(inside, axis=0)
        unseen = PLAIN_JUDGE(*judged)
        assert isinstance(self.judge, NormalJudge)
        excess, noise = unseen - plain, self.judge(*judged) - unseen
        share = np.full(len(by), BIAS_SHARES[1])
        np.divide(np.abs(excess), noise, out=share, where=noise > 0)
        share = np.clip(SHARE_AT_NONE + SHARE_PER_NOISE * share, *BIAS_SHARES)
        bias = np.where(excess > 0, (share - 1) * excess, -excess)
        upper = replace(self.judge, bias=bias)(*judged)
        for i, j, _ in self.opposites:
            k = i if excess[i] < 0 else j
            less = min(max(upper[i] + upper[j], 0.0), share[k] * max(-excess[k], 0.0))
            bias[k], upper[k] = bias[k] - less, upper[k] - less
        objective = float(np.nan_to_num(self.problem.value_of(decisions), nan=np.inf))
        return Attempt(by, plain, unseen, bias, upper, objective, judged)

    def is_useful(self, attempt: Attempt) -> bool:
        """Whether a model satisfies the tightened constraints and its objective is below the limit.

        A model that misses them has the smallest violation instead of the smallest objective, and
        is close to a constant decision. It is accepted only if no constant satisfies the judge and
        no level is required.
        """
        accepted = math.isinf(self.limit) and not self.needs_level
        found = attempt.solution
        satisfied = found is None or found.status in USABLE_STATUSES or accepted
        return satisfied and attempt.objective < self.limit


def _refuse(search: _Search, tried: Sequence[Attempt]) -> Solution:
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
        reason = f"this algorithm finds no model that makes {worst} hold {wanted} and is better "
        reason += f"than a constant {kind}; any of these may help: {listed}"
    return Solution({}, "no_solution_found", reason)


def _other_algorithms(search: _Search) -> Iterator[str]:
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


def _secant(before: Attempt, last: Attempt, usual: Array) -> Array:
    """Return by how much less pieces (J,) are violated per unit between two attempts.

    It is `usual` for pieces whose amounts are about equal.
    """
    moved, slopes = last.by - before.by, usual.copy()
    changed = np.abs(moved) > MAX_SPARE_ROOM
    np.divide(before.upper - last.upper, moved, out=slopes, where=changed)
    return np.asarray(np.clip(slopes, MIN_SLOPE, MAX_SLOPE))


def _next_step(attempt: Attempt, slopes: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return from where and by how much to tighten pieces (J,) next.

    The amounts are the present ones if these are neither too small nor too large. A violated
    piece is tightened from its present value, because it may have slack. `low` and `high` are the
    last amounts that were too small and large enough; a step past them ends halfway.
    """
    by, missing = attempt.by, attempt.upper
    spare = np.maximum(MAX_SPARE_ROOM, SPARE_SHARE * (missing - attempt.plain))
    if attempt.missed == 0 and not (by[missing < -spare] > 0).any():
        return by, by
    start = np.where(missing > 0, np.maximum(by, -attempt.plain), by)
    more, less = (np.maximum(each + (missing + spare / 2) / slopes, 0.0) for each in (start, by))
    # brackets may be out of date: other pieces were tightened by other amounts then
    more = np.where((start < high) & (high <= more), (start + high) / 2, more)
    less = np.where((less <= low) & (low < by), (by + low) / 2, less)
    return start, np.where(missing > 0, more, less)


def _best_constant(problem: Problem, rows: Problem, judge: Judge) -> float:
    """Return the smallest training objective of a constant decision without shortfall, else inf.

    Random decisions with the same chance for all rows count, too. Their rates of 0 and 1 are known
    to be the population's. The constant of numeric labels is their mean.
    """
    if isinstance(judge, NormalJudge):
        judge = replace(judge, prior=0.0, undefined=-UNDEFINED_SHORTFALL)
    trained, judged = (each.rates.sums.shape[1] for each in (problem, rows))
    chances = np.linspace(0, 1, CONSTANTS)
    if problem.label_range is not None:
        chances = np.array([mean_label(problem)])
    found = np.array([problem.value_of(np.full(trained, chance)) for chance in chances])
    for k in np.argsort(found):
        if judge(rows, np.full(judged, chances[k])).max() <= MAX_IGNORED_SHORTFALL:
            return float(np.nan_to_num(found[k], nan=np.inf))
    return math.inf


def _judging_rows(guard: MarginSpec, problem: Problem) -> Problem:
    """Return the rows on which constraints are judged, unless the algorithm names others."""
    if guard.holds != "validation":
        return problem
    if problem.validation is None:
        hint = "set split: {validation: 0.2} in the data set"
        message = "constraints have to hold on validation rows, but there are none"
        raise FaultError(Diagnostic("E410", message, hint))
    return problem.validation


def _tighten_problem(problem: Problem, by: Array) -> Problem:
    """Return the problem with the pieces of its constraints tightened by amounts (J,)."""
    goals, amounts = [], iter(by.tolist())
    for goal in problem.constraints:
        pieces = [(piece, next(amounts)) for piece in goal.pieces]
        tight = tuple(ex.add(piece, ex.Constant(by)) if by else piece for piece, by in pieces)
        goals.append(replace(goal, pieces=tight))
    return replace(problem, constraints=tuple(goals))
