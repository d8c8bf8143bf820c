"""The search for amounts by which constraints are tightened until a judge accepts the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import FaultError
from ratecli.models.base import Array, Classifier
from ratecli.rates import expression as ex
from ratecli.solvers.base import USABLE_STATUSES, JudgedRows, Progress, Solution, Solver
from ratecli.solvers.hull.infeasible import least_by_ranges
from ratecli.solvers.judges import (
    MAX_IGNORED_SHORTFALL,
    PLAIN_JUDGE,
    UNDEFINED_SHORTFALL,
    Attempt,
    Judge,
    NormalJudge,
)
from ratecli.solvers.oracles.unseen import UnseenScores
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.score_models import mean_label

MAX_ROUNDS = 6
"""Maximum number of amounts by which constraints are tightened."""
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
"""The noise of the first attempt is divided by this before a search is given up.

A choice, not measured.
"""
MAX_CORRECTIONS = 5
"""Maximum number of corrections of amounts that are not judged."""
CONSTANTS = 21
"""Number of constant chances of a positive decision that are compared with a model."""


@dataclass
class Fold:
    """Rows to fit to, and the other rows with their positions; the last model, to start from."""

    fitted: Problem
    new: Problem
    positions: NDArray[np.intp]
    near: Classifier | None = None


def folds_of(problem: Problem) -> list[Fold]:
    """Return the folds in which training is repeated; none if some rate has too few rows."""
    if problem.rates.sums.shape[1] < FOLDS:
        return []
    parts = UnseenScores.of({"folds": FOLDS}, problem).parts
    found = [Fold(problem.on(fitted), problem.on(new), new) for fitted, new in parts]
    return found if all(each.fitted.rates.totals.all() for each in found) else []


@dataclass(frozen=True)
class TighteningSearch:
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
    folds: Sequence[Fold] = ()
    tries_others: bool = False

    @cached_property
    def limit(self) -> float:
        """The smallest objective of a constant decision that the judge accepts, else infinity."""
        return best_constant(self.problem, self.rows, self.judge)

    @cached_property
    def rough(self) -> Solver:
        """The algorithm that repeats the training in folds."""
        return self.solver.rough

    def consistent(self, by: Array, upper: Array) -> Array:
        """Return amounts `by` (J,), reduced where `Problem.opposites` would contradict each other.

        The amount of the piece with the smaller `upper` (J,) is reduced, below 0 if necessary.
        """
        by = by.copy()
        for i, j, both in self.problem.opposites:
            k = i if upper[i] < upper[j] else j
            by[k] -= max(by[i] + by[j] + both + MAX_SPARE_ROOM, 0.0)
        return by

    def exceeds_limits(self, errors: Array) -> bool:
        """Return whether errors (J,) are so large that both sides of a limit cannot hold."""
        pairs = self.problem.opposites
        return any(errors[i] + errors[j] + both > MAX_SPARE_ROOM for i, j, both in pairs)

    @property
    def needs_level(self) -> bool:
        return isinstance(self.judge, NormalJudge) and self.judge.level is not None

    def run(self, first: Attempt) -> list[Attempt]:
        """Tighten constraints until the judge is satisfied; return all attempts.

        Each step is the shortfall divided by the slope between the last two attempts. It is halved
        if no useful model satisfies the constraints then, and the one after a success may be twice
        as long. No problem is solved whose constraints contradict each other.
        """
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
                start, target = next_step(last, slopes, low, high)
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
        does, if the amounts are too far, or if the noise exceeds two-sided limits.
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
        tightened constraints contradict each other, or if the algorithm cannot take them.
        """
        tightened = replace(_tighten_problem(self.problem, by), near=near)
        if least_by_ranges(tightened.pieces) > MAX_IGNORED_SHORTFALL:
            return Solution({}, "infeasible")
        try:
            solution = self.solver.solution(tightened, self.rng, self.progress)
        except FaultError as error:  # the constraints as written had a solution
            return Solution({}, "no_solution_found", error.faults[0].message)
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
        chosen = solution.judged or JudgedRows(problem, problem.decisions(main))
        judged = chosen
        if self.rows is not problem:
            judged = JudgedRows(self.rows, self.rows.decisions(main))
        objective = float(np.nan_to_num(problem.value(main), nan=np.inf))
        plain, unseen, upper = PLAIN_JUDGE(*chosen), PLAIN_JUDGE(*judged), self.judge(*judged)
        none = np.zeros(len(by))
        return Attempt(by, plain, unseen, none, upper, objective, judged, solution)

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
        below 0 counts as 0. For two-sided limits (`Problem.opposites`), a negative mean counts only
        if otherwise no amounts would satisfy both sides. None if the training fails in a fold.
        """
        decisions, inside = np.zeros(self.problem.rates.sums.shape[1]), list[Array]()
        for fold in self.folds:
            rng = np.random.default_rng(self.problem.seed)
            part = replace(self, solver=self.rough, problem=fold.fitted, rng=rng)
            solution = part.solve(by, fold.near)
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
        for i, j, _ in self.problem.opposites:
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


def _secant(before: Attempt, last: Attempt, usual: Array) -> Array:
    """Return by how much less pieces (J,) are violated per unit between two attempts.

    It is `usual` for pieces whose amounts are about equal.
    """
    moved, slopes = last.by - before.by, usual.copy()
    changed = np.abs(moved) > MAX_SPARE_ROOM
    np.divide(before.upper - last.upper, moved, out=slopes, where=changed)
    return np.asarray(np.clip(slopes, MIN_SLOPE, MAX_SLOPE))


def next_step(attempt: Attempt, slopes: Array, low: Array, high: Array) -> tuple[Array, Array]:
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


def best_constant(problem: Problem, rows: Problem, judge: Judge) -> float:
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


def _tighten_problem(problem: Problem, by: Array) -> Problem:
    """Return the problem with the pieces of its constraints tightened by amounts (J,)."""
    goals, amounts = [], iter(by.tolist())
    for goal in problem.constraints:
        pieces = [(piece, next(amounts)) for piece in goal.pieces]
        tight = tuple(ex.add(piece, ex.Constant(by)) if by else piece for piece, by in pieces)
        goals.append(replace(goal, pieces=tight))
    return replace(problem, constraints=tuple(goals))
