"""Why no model holds on new rows, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ratecli.rates import expression as ex
from ratecli.rates.parser import parse_constraint
from ratecli.rates.syntax import NumberLiteral
from ratecli.solvers.judges import MAX_IGNORED_SHORTFALL, Attempt, NormalJudge
from ratecli.solvers.problem import Problem

LOWER_LEVELS = (0.8, 0.7, 0.6)
"""Levels that a refusal proposes if one of them can be reached."""
MIN_SHARE = 0.1
"""A refusal proposes to merge groups with a smaller share of the rows."""
MORE_ROWS = np.geomspace(1.1, 100, 100)
"""Multiples of the rows for which the values of constraints are predicted."""
FEWEST, MOST = (0.6, 1.3, 1.2), (0.4, 1.7, 1.42)
"""With how many more rows a constraint holds: the power of that number by which the bias falls, and
the multiples of the standard error that another sample needs, the second for two-sided limits.

With the two-sided ones, 25 and 28 of 30 refused cases were answered with the proposed numbers of
rows.
"""
SPARE_ERRORS = 1.0
"""By how much a proposed limit is looser than needed here, in what the judge adds for noise.

With 1, the proposed limit could be held in 8 of 8 sets of 4,000 rows; with 0.5, in 3.
"""


def worst_piece(problem: Problem, attempt: Attempt) -> tuple[int, str]:
    """Return the piece with the largest shortfall, and its constraint with the rates in it."""
    worst = int(np.argmax(attempt.upper))
    owners, name = problem.piece_owners, problem.piece_owners[worst]
    sliced = [leaf for leaf in ex.leaves(problem.pieces[worst]) if leaf.where.visible.atoms]
    others = owners.count(name) > len(sliced) > 0  # the pair of two groups needs no names
    rates = f" ({', '.join(map(ex.to_text, sliced))})" if others else ""
    return worst, f"'{name}'{rates}"


def what_would_help(
    problem: Problem, judge: NormalJudge, useful: Sequence[Attempt], *, where: str
) -> Iterator[str]:
    """Yield changes with which one of the useful attempts would pass, those of the rules first.

    `where` says which rows are judged.
    """
    if where == "validation":  # more of them do not lower the bias
        useful = [replace(each, plain=each.unseen) for each in useful]
    nearest = min(useful, key=lambda each: each.missed)
    yield _looser_limit(problem, nearest)
    for level in LOWER_LEVELS:
        uppers = [replace(judge, level=level, bias=each.bias)(*each.judged) for each in useful]
        if level < (judge.level or 0) and min(map(np.max, uppers)) <= MAX_IGNORED_SHORTFALL:
            yield f"`level: {level:g}` in the file"
            break
    yield from small_group(problem, nearest)
    rows = nearest.judged.rows
    count = rows.rates.sums.shape[1] if rows.counts is None else round(rows.counts.sum())
    ends = [min(_more_rows(each, *end) for each in useful) for end in (FEWEST, MOST)]
    if np.isfinite(ends).all():
        low, high = (f"{float(f'{count * end:.2g}'):.0f}" for end in ends)
        yield f"about {low} to {high} {where} rows instead of {count}"
    else:
        yield f"more {where} rows than {count} (how many cannot be said)"


def _looser_limit(problem: Problem, attempt: Attempt) -> str:
    """Return the limit with which an attempt would pass, in the units of the constraint."""
    worst, _ = worst_piece(problem, attempt)
    (goal,) = (each for each in problem.constraints if each.name == problem.piece_owners[worst])
    rows = attempt.judged.rows
    rates = rows.measured(attempt.judged.decisions)
    found = rows.function(problem.pieces[worst], goal.expression).values(rates)
    by = attempt.missed + SPARE_ERRORS * float(attempt.errors[worst])
    if found[0] * found[1] > 0:  # the piece has a denominator fewer
        by *= found[1] / found[0]
    rule = parse_constraint(goal.text)
    numbers = [each.value for each in rule.operands if isinstance(each, NumberLiteral)]
    if len(numbers) != 1 or len(rule.operands) != 2:
        return f"a limit that is looser by {by:.2g}"
    upper = (rule.ops[0] == "<=") == isinstance(rule.operands[1], NumberLiteral)
    limit = numbers[0] + by if upper else numbers[0] - by
    return f"a limit of {limit:.3g} instead of {numbers[0]:g}"


def small_group(problem: Problem, attempt: Attempt) -> Iterator[str]:
    """Yield the advice to merge the smallest group of the worst piece if it is small."""
    worst, _ = worst_piece(problem, attempt)
    texts = {str(leaf.where.visible) for leaf in ex.leaves(problem.pieces[worst])}
    sizes = {text: int(problem.slices[text].sum()) for text in texts if text in problem.slices}
    text = min(sizes, key=lambda each: sizes[each], default="")
    if text and sizes[text] < MIN_SHARE * problem.rates.sums.shape[1]:
        yield f"a group that is larger than '{text}' ({sizes[text]} rows)"


def _more_rows(attempt: Attempt, power: float, noise: float, both_noise: float) -> float:
    """Return the smallest multiple of the rows with which an attempt would pass, else infinity.

    Standard errors fall with the root of the number of rows, and are multiplied by `noise`. A
    two-sided difference is assumed to lie in the middle of its limits; its standard error is
    multiplied by `both_noise`.
    """
    bias = np.maximum(attempt.unseen + attempt.bias - attempt.plain, 0.0)
    x, factor = MORE_ROWS[:, None], np.full(len(bias), noise)
    center = attempt.plain + bias * x**-power
    for i, j, both in attempt.judged.rows.opposites:
        center[:, [i, j]], factor[[i, j]] = both / 2, both_noise
    upper = center + factor * attempt.errors * x**-0.5
    passed = np.flatnonzero(upper.max(axis=1) <= MAX_IGNORED_SHORTFALL)
    return float(MORE_ROWS[passed[0]]) if len(passed) else np.inf
