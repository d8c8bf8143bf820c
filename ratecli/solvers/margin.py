"""Make the constraints of any algorithm hold on new rows or on validation rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import linprog

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Classifier
from ratecli.rates import expression as ex
from ratecli.rates.affine import ratio_sum
from ratecli.rates.analysis import Goal
from ratecli.solvers.base import USABLE_STATUSES, JudgedRows, Progress, Solution, Solver
from ratecli.solvers.judges import (
    PLAIN_JUDGE,
    UNDEFINED_SHORTFALL,
    Judge,
    NormalJudge,
    SafetyTestJudge,
)
from ratecli.solvers.oracles.unseen import folds_of
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.scores import mean_label

GUARD_VERSION = 15
"""Version in the key of each guarded trial; increased when its results change."""
MAX_ROUNDS = 6
"""Maximum number of times that a problem is solved."""
DEFAULT_LEVEL = 0.9
"""Level of constraints that hold on new rows."""
HALVINGS = 4
"""Number of times that rows are halved to estimate a bias."""
MAX_COST = 0.25
"""Largest share of the gain over the best constant decision that a margin may cost."""
SHARES = (0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
"""Shares of standard errors that are tried if there are too few rows: up to 25 times as many."""
PATH_STEPS = 15
"""Number of equal steps from no margin to the one that passes a safety test as often as `aim`."""
SAFER_STEPS = 6
"""Number of such steps to larger margins, which are tested first."""
MIN_STEP = 1 / 32
"""Smallest share of a step that is tried."""
BIAS_STEPS = 6
"""Number of amounts, each half of the one before, by which constraints are tightened for a bias."""
MAX_SPARE_ROOM = 1e-3
"""Largest unneeded slack that a tightened constraint may end with."""
MAX_IGNORED_SHORTFALL = 1e-5
"""Largest shortfall that counts as none."""
INFEASIBLE_PROGRAM = 2
"""Status with which `linprog` reports that a problem is infeasible."""
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
        of the test is predicted from training rows (see `seldonian.solver.calibrate_inflation`).
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

    On new rows, the main classifier must satisfy `violation + bias + c * error <= 0` for each
    piece of a constraint. The violation is that on training rows, or if the algorithm chooses its
    model by other rows, on those. The bias is the excess on new rows that is expected because a
    model is fitted to its rows, or because the returned model is not that of the folds (see
    `_bias`); it is 0 for streamed rows, which are many for each parameter. `error` is the standard
    error by the delta method times `EXTRA_NOISE`, and c is such that the normal probabilities of
    violating the pieces add up to 1 - level.

    Each round adds the shortfall to the constraints. If they cannot be satisfied then, or only by
    models that are not useful, the step was too large and is halved. No problem is solved whose
    constraints contradict each other (see `_can_hold`). Of the useful models tried,
    return the one with the smallest objective whose main classifier has no shortfall. If there is
    none, the status is `no_solution_found` if a level was required (see `_refuse` for the reason),
    else `iteration_limit` with the model of the smallest shortfall. A model is useful if it is
    better than a constant decision. On new rows, it must also keep all but `MAX_COST` of what the
    first model gains over the best constant decision.

    With an `aim` and `path`, this model is one of several candidates for the safety test (see
    `_with_path`). A solver with `needs_safety_test` finds its own margin; only candidates are
    added. Solvers that do not enforce constraints run unchanged.

    Raises
    ------
    FaultError
        E410 if constraints are judged on validation rows and there are none.
    """
    first = solver.solution(problem, rng, progress)
    is_usable = first.variants and first.status in USABLE_STATUSES  # else tightening is useless
    enforced = problem.constraints if solver.role == "enforces" else ()
    prepares = solver.needs_safety_test
    if guard == MarginSpec() or not enforced or not is_usable or (prepares and not path):
        return first
    if prepares:
        search = _Search(solver, problem, problem, rng, progress, math.inf, needs_level=False)
        return _with_path(search.solve, first, 0.0, -_margin_of_test(guard, problem, first))
    rows = _judging_rows(guard, problem)
    judge: Judge = NormalJudge(guard.level)
    if guard.aim is not None:
        judge = SafetyTestJudge(problem, guard.aim, len(first.variants))
    constant = _best_constant(problem, rows, judge)
    search = _Search(solver, problem, rows, rng, progress, constant, guard.level is not None)
    chosen = _choose_margin(search, guard, first, judge)
    if guard.aim is None or not path:
        return chosen.solution
    return _with_path(search.solve, chosen.solution, chosen.by, 0.0)


def _choose_margin(search: _Search, guard: MarginSpec, first: Solution, judge: Judge) -> _Attempt:
    """Return the attempt that is chosen; its solution has no variants if none is useful."""
    plain = search.attempt(first, judge)
    if isinstance(judge, NormalJudge) and guard.holds == "new_rows":
        if search.problem.stream is None:
            judge = replace(judge, bias=_bias(search, plain.upper))
        if plain.objective < search.limit:
            gain = search.limit - plain.objective  # over the best constant
            search = replace(search, limit=plain.objective + MAX_COST * gain)
    tried = search.run(plain, judge)
    useful = [each for each in tried if search.is_useful(each)]
    best = min(useful or tried, key=lambda each: (each.missed, each.objective))
    if isinstance(judge, NormalJudge) and judge.level is not None and (best.missed or not useful):
        blocked = [each for each in tried if each.missed and not search.is_useful(each)]
        last = (blocked or [best])[-1]
        return best._replace(solution=_refuse(search, tried, judge, f"'{last.name}'{last.rates}"))
    found = best.solution
    if best.missed or found.status not in USABLE_STATUSES:
        judged = "in the predicted safety test" if guard.aim else f"on {guard.holds} rows"
        reason = f"'{best.name}' is violated by {best.missed:.3g} {judged}"
        if not best.missed:  # only constraints tightened more than necessary could not be satisfied
            reason = "the constraints are satisfied, but the objective may not be the smallest"
        found = replace(found, status="iteration_limit", reason=reason)
    return best._replace(solution=found)


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
    solve: Callable[[Array, Solution], Solution],
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
    for step in steps:
        solution = solve(start + step / PATH_STEPS * change, found) if step else found
        statuses = {"solved"} if step < 0 else USABLE_STATUSES
        if not step or (solution.variants and solution.status in statuses):
            path.append(solution.variants)
    return replace(found, variants=path[0], bolder=tuple(path[1:]))


class _Attempt(NamedTuple):
    """A solution, its objective on the training set, and the values of its constraints.

    `plain` (J,) are the values of the pieces, `upper` (J,) with what the judge adds. `missed` is
    the largest of these, reduced by `MAX_IGNORED_SHORTFALL` and at least 0; `name` is the
    constraint that has it and `rates` lists its rates, if it has other pieces. `by` (J,) are
    the amounts by which constraints were tightened. `judged` are the rows and decisions judged.
    """

    missed: float
    objective: float
    name: str
    rates: str
    plain: Array
    upper: Array
    solution: Solution
    by: Array
    judged: JudgedRows


@dataclass(frozen=True)
class _Search:
    """Solves a problem with tightened constraints.

    Constraints are judged on `rows`, unless the algorithm chooses its model by other rows than
    training rows. A model is useful if its objective is below the limit.
    """

    solver: Solver
    problem: Problem
    rows: Problem
    rng: np.random.Generator
    progress: Progress
    limit: float
    needs_level: bool

    def run(self, first: _Attempt, judge: Judge) -> list[_Attempt]:
        """Tighten constraints until the judge is satisfied; return all attempts."""
        last = self.judge_again(first, judge)
        tried, step = [last], 1.0
        low, high = np.full(len(last.by), -np.inf), np.full(len(last.by), np.inf)
        while len(tried) < MAX_ROUNDS and step >= MIN_STEP and self.is_useful(tried[0]):
            missed = last.upper > MAX_IGNORED_SHORTFALL
            low, high = np.where(missed, last.by, low), np.where(missed, high, last.by)
            start, target = _next_step(last, low, high)
            if target is None or np.array_equal(target, last.by):
                break
            by = start + step * (target - start)
            solution = self.solve(by, last.solution)
            if solution.variants:
                tried.append(self.attempt(solution, judge, by))
            if solution.variants and self.is_useful(tried[-1]):
                last = tried[-1]
            else:
                step /= 2
        return tried

    def solve(self, by: Array, near: Solution) -> Solution:
        """Solve the problem with its constraints tightened by amounts (J,).

        The search may start from the solution `near`, which has variants. The returned one has none
        if the tightened constraints contradict each other.
        """
        tightened = replace(_tighten_problem(self.problem, by), near=near.main)
        if not _can_hold(tightened.constraints):
            return Solution({}, "infeasible")
        solution = self.solver.solution(tightened, self.rng, self.progress)
        if solution.judged is None:
            return solution
        rows = replace(solution.judged.rows, constraints=self.problem.constraints)
        return replace(solution, judged=solution.judged._replace(rows=rows))

    def attempt(self, solution: Solution, judge: Judge, by: Array | float = 0.0) -> _Attempt:
        """Judge the main variant of a solution of constraints tightened by `by`."""
        main, problem = solution.main, self.problem
        judged = solution.judged if self.rows is problem else None
        judged = judged or JudgedRows(self.rows, self.rows.decisions(main))
        objective = float(np.nan_to_num(problem.value(main), nan=np.inf))
        plain = PLAIN_JUDGE(*judged)
        by = np.broadcast_to(by, plain.shape)
        unjudged = _Attempt(math.inf, objective, "", "", plain, plain, solution, by, judged)
        return self.judge_again(unjudged, judge)

    def judge_again(self, attempt: _Attempt, judge: Judge) -> _Attempt:
        """Return the attempt as another judge sees it."""
        problem, upper = self.problem, judge(*attempt.judged)
        worst = int(np.argmax(upper))
        missed = max(float(upper[worst]) - MAX_IGNORED_SHORTFALL, 0.0)
        owners, name = problem.piece_owners, problem.piece_owners[worst]
        sliced = [leaf for leaf in ex.leaves(problem.pieces[worst]) if leaf.where.visible.atoms]
        others = owners.count(name) > len(sliced) > 0  # the pair of two groups needs no names
        rates = f" ({', '.join(map(ex.to_text, sliced))})" if others else ""
        return attempt._replace(missed=missed, name=name, rates=rates, upper=upper)

    def is_useful(self, attempt: _Attempt) -> bool:
        """Whether a model satisfies the tightened constraints and its objective is below the limit.

        A model that misses them has the smallest violation instead of the smallest objective, and
        is close to a constant decision. It is accepted only if no constant satisfies the judge and
        no level is required.
        """
        accepted = math.isinf(self.limit) and not self.needs_level
        satisfied = attempt.solution.status in USABLE_STATUSES or accepted
        return satisfied and attempt.objective < self.limit


def _refuse(search: _Search, tried: Sequence[_Attempt], judge: NormalJudge, worst: str) -> Solution:
    """Return a solution that says how many rows are needed for all constraints to hold.

    If a model found for more rows satisfies the judge with these rows, return it instead. `worst`
    is the constraint that the last attempt violated most.
    """
    problem = search.problem
    kind = "decision" if problem.label_range is None else "prediction"
    if not search.is_useful(tried[0]):
        return _no_solution(
            f"even without a margin, the model is no better than a constant {kind} that satisfies "
            f"the constraints on new rows with probability {judge.level:g}: use a looser limit"
        )
    useful, share = _with_more_rows(search, tried, judge)
    if useful and not search.judge_again(useful, judge).missed:
        return useful.solution
    where = "training" if search.rows is problem else "validation"
    wanted = f"on new rows with probability {judge.level:g}"
    if search.rows is problem and math.isfinite(search.limit):
        wanted += f" without losing over {MAX_COST:.0%} of the model's gain over a constant {kind}"
    rules, them = worst, "it"
    if len(problem.constraints) > 1:  # the worst need not be the one that cannot be satisfied
        rules, them = "all constraints", "them"
        wanted += f" ({worst} is violated most)"
    counts = search.rows.counts
    rows = search.rows.rates.sums.shape[1] if counts is None else round(counts.sum())
    more = f"{float(f'{rows / share**2:.2g}'):.0f}"
    if useful:
        return _no_solution(
            f"too few {where} rows for {rules} to hold {wanted}: at least about {more} are needed "
            f"instead of {rows}; use more rows, such as a larger training share, or a "
            "looser limit"
        )
    # the mean label counts although it may violate constraints
    plain = PLAIN_JUDGE if problem.label_range is None else lambda *_: np.zeros(1)
    if tried[0].objective >= _best_constant(problem, problem, plain):
        return _no_solution(
            f"with these features, no useful model satisfies {rules} on new rows: even on training "
            f"rows alone, one that satisfies {them} is no better than a constant {kind}"
        )
    return _no_solution(
        f"no margin makes {rules} hold {wanted}, and {more} {where} rows instead of {rows} would "
        "not be enough: use a looser limit, or another objective"
    )


def _with_more_rows(
    search: _Search, tried: Sequence[_Attempt], judge: NormalJudge
) -> tuple[_Attempt | None, float]:
    """Return the best useful model without shortfall for the fewest rows that allow one, if any.

    Standard errors and biases fall with the root of the number of rows: with 1 / share^2 times as
    many rows, they are `share` times as large. Such numbers of rows are lower bounds: a model also
    adapts less to more rows. Also return that share, or the smallest one tried.
    """

    def keep(tried: Sequence[_Attempt]) -> list[_Attempt]:
        return [each for each in tried if search.is_useful(each) and not each.missed]

    fewest, most = 0, len(SHARES)  # SHARES[k] is small enough for k >= most
    useful: _Attempt | None = None
    while fewest < most:
        k = (fewest + most) // 2 if useful else most - 1
        smaller = replace(judge, bias=judge.bias * SHARES[k], share=SHARES[k])
        again = [search.judge_again(each, smaller) for each in tried]
        kept = keep(again) or keep(search.run(again[0], smaller))
        if kept:
            useful, most = min(kept, key=lambda each: each.objective), k
        elif useful is None:
            break
        else:
            fewest = k + 1
    return useful, SHARES[min(most, len(SHARES) - 1)]


def _no_solution(reason: str) -> Solution:
    return Solution({}, "no_solution_found", reason)


def _next_step(attempt: _Attempt, low: Array, high: Array) -> tuple[Array, Array | None]:
    """Return from where and by how much to tighten pieces (J,) next.

    The amounts are None if the present ones are neither too small nor too large. A violated
    piece is tightened from its present value, because it may have slack. `low` and `high` are the
    last amounts that were too small and large enough; a step past them ends halfway.
    """
    by, missing = attempt.by, attempt.upper
    if attempt.missed == 0 and not by[missing < -MAX_SPARE_ROOM].any():
        return by, None
    start = np.where(missing > 0, np.maximum(by, -attempt.plain), by)
    more, less = start + missing + MAX_SPARE_ROOM / 2, np.maximum(by + missing, 0.0)
    # brackets may be out of date: other pieces were tightened by other amounts then
    more = np.where((start < high) & (high <= more), (start + high) / 2, more)
    less = np.where((less <= low) & (low < by), (by + low) / 2, less)
    return start, np.where(missing > 0, more, less)


def _best_constant(problem: Problem, rows: Problem, judge: Judge) -> float:
    """Return the smallest training objective of a constant decision without shortfall, else inf.

    Its rates of 0 and 1 are known to be the population's. The constant of numeric labels is their
    mean.
    """
    if isinstance(judge, NormalJudge):
        judge = replace(judge, prior=0.0, undefined=-UNDEFINED_SHORTFALL)
    trained, judged = (each.rates.sums.shape[1] for each in (problem, rows))
    found = [
        problem.value_of(np.full(trained, decision))
        for decision in ((0.0, 1.0) if problem.label_range is None else (mean_label(problem),))
        if judge(rows, np.full(judged, decision)).max() <= MAX_IGNORED_SHORTFALL
    ]
    return min((each for each in found if not math.isnan(each)), default=math.inf)


def _judging_rows(guard: MarginSpec, problem: Problem) -> Problem:
    """Return the rows on which constraints are judged, unless the algorithm names others."""
    if guard.holds != "validation":
        return problem
    if problem.validation is None:
        hint = "set split: {validation: 0.2} in the data set"
        message = "constraints have to hold on validation rows, but there are none"
        raise FaultError(Diagnostic("E410", message, hint))
    return problem.validation


def _bias(search: _Search, by: Array) -> Array:
    """Return the mean excess of violations (J,) on new rows over those where a model is judged.

    Models are fitted to one half of the rows and judged on the other, and the reverse, so that the
    noise of the halves cancels. The excess is taken to be inversely proportional to the square root
    of the number of rows: with half of 8,000 rows, it was 1.2 to 1.6 times as large, for mixtures,
    linear models and thresholds under a limit on the recall of a small group.
    Constraints are tightened by the positive amounts of `by`. These are halved while the tightened
    constraints contradict each other. Halves without a model, or without rows for some rate, are
    left out. A setting of `tune` that is chosen by rows alone is that of all rows, since the choice
    among few settings adapts little to them.
    """
    problem, found = search.problem, list[Array]()
    solver = search.solver.settled(problem)
    smaller = (_tighten_problem(problem, np.maximum(by, 0.0) / 2**k) for k in range(BIAS_STEPS))
    tight = next((each for each in smaller if _can_hold(each.constraints)), problem)
    for k in range(HALVINGS):
        half = folds_of(replace(problem, seed=problem.seed + k), 2)
        for own in (0, 1):
            fitted, new = (problem.on(np.flatnonzero(side)) for side in (half == own, half != own))
            if not (fitted.rates.totals.all() and new.rates.totals.all()):
                continue
            part = replace(fitted, constraints=tight.constraints)
            rng = np.random.default_rng(problem.seed)
            solution = solver.solution(part, rng, search.progress)
            if solution.variants:
                main = solution.main
                own_rows, own_decisions = solution.judged or (fitted, fitted.decisions(main))
                there = PLAIN_JUDGE(new, new.decisions(main))
                found.append((there - PLAIN_JUDGE(own_rows, own_decisions)) / math.sqrt(2))
    mean = np.mean(found, axis=0) if found else np.zeros(len(by))
    return np.asarray(np.maximum(mean, 0.0))


def _tighten_problem(problem: Problem, by: Array) -> Problem:
    """Return the problem with the pieces of its constraints tightened by amounts (J,)."""
    goals, amounts = [], iter(by.tolist())
    for goal in problem.constraints:
        pieces = [(piece, next(amounts)) for piece in goal.pieces]
        tight = tuple(ex.add(piece, ex.Constant(by)) if by else piece for piece, by in pieces)
        goals.append(replace(goal, pieces=tight))
    return replace(problem, constraints=tuple(goals))


def _can_hold(goals: Sequence[Goal]) -> bool:
    """Return whether some rates and ratios in their ranges satisfy all pieces linear in them."""
    found = [form for goal in goals for piece in goal.pieces if (form := ratio_sum(piece))]
    terms, constants = [form.terms() for form in found], [form.affine.constant for form in found]
    ranges = {key: span for each in terms for key, (_, span) in each.items()}
    if not ranges:
        return max(constants, default=0.0) <= 0
    rows = [[each[key][0] if key in each else 0.0 for key in ranges] for each in terms]
    ends, objective = [*ranges.values()], np.zeros(len(ranges))
    optimum = linprog(objective, rows, np.negative(constants), bounds=ends)
    return bool(optimum.status != INFEASIBLE_PROGRAM)
