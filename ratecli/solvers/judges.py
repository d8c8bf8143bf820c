"""Estimates of how much decisions will violate constraints, on new rows or in a safety test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from ratecli.models.base import Array
from ratecli.rates.analysis import Goal
from ratecli.rates.matrix import PRIOR_ROWS, Measurements
from ratecli.rates.rate_function import PieceParts
from ratecli.solvers.base import JudgedRows, Solution
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.options import PASS_KEY
from ratecli.solvers.seldonian.prediction import predict_safety_test
from ratecli.solvers.seldonian.score_models import DecisionOutputs, score_model_of

EXTRA_NOISE = 1.15
"""Standard deviation of violations on new rows, as a multiple of their standard errors.

It was 0.8 to 1.25 where the bias was estimated in folds: this estimate has noise of its own.
"""
MAX_DEVIATES = 40.0
"""Largest multiple of a standard error that is added; the normal probability beyond is 0."""
DRAWS = 8192
"""Number of draws of the errors of all rates."""
MIN_TAIL_DRAWS = 80
"""Smallest number of draws beyond the level: the deviates then have an error of about 2 %."""
FAR = 6.0
"""Distance from 0, in standard errors, from which on a piece is certain to hold."""
MAX_IGNORED_SHORTFALL = 1e-5
"""Largest shortfall that counts as none."""
UNDEFINED_SHORTFALL = 1.0
"""What an undefined constraint counts as: the largest violation that a single rate can have."""


@dataclass(frozen=True)
class Attempt:
    """Constraints tightened by amounts `by` (J,), and what that leads to.

    Attributes
    ----------
    plain
        (J,) values of the pieces on the rows by which the model was chosen.
    unseen
        (J,) their values on the judged rows.
    bias
        (J,) what the judge adds to these values apart from standard errors.
    upper
        (J,) the values with all that the judge adds.
    objective
        Objective on the training rows, by models that have not seen them if there are folds.
    judged
        The judged rows, with decisions on them.
    solution
        The solution of all rows; None if training was repeated in folds.
    """

    by: Array
    plain: Array
    unseen: Array
    bias: Array
    upper: Array
    objective: float
    judged: JudgedRows
    solution: Solution | None = None

    @property
    def errors(self) -> Array:
        """What the judge adds for noise (J,)."""
        return self.upper - self.bias - self.unseen

    @property
    def missed(self) -> float:
        """The largest shortfall, reduced by `MAX_IGNORED_SHORTFALL` and at least 0."""
        return max(float(self.upper.max()) - MAX_IGNORED_SHORTFALL, 0.0)


class Judge(Protocol):
    """Says by how much decisions violate constraints."""

    def __call__(self, rows: Problem, decisions: Array) -> Array:
        """Return the violation (J,) of each piece by decisions (n,) on rows, with its margin."""


class SafetyTestJudge:
    """Judges by the predicted result of a safety test, which must pass with probability `aim`.

    Each piece of the constraints is tested as a separate constraint. Unless the test's method is
    `pieces`, the pieces share their constraint's delta equally. A joint guarantee divides it among
    `variants`.
    """

    def __init__(self, problem: Problem, aim: float, variants: int = 1) -> None:
        spec, alone, delta = problem.safety_test, list[Goal](), dict[str, float]()
        assert spec is not None
        for goal in problem.constraints:
            for piece in goal.pieces:
                name, shared = str(len(alone)), spec.method != "pieces"
                alone.append(replace(goal, name=name, expression=piece, pieces=(piece,)))
                delta[name] = spec.delta[goal.name] / (len(goal.pieces) if shared else 1)
                delta[name] /= variants if spec.joint else 1
        self._test, self._aim, self._alone = replace(spec, delta=delta), aim, tuple(alone)

    def __call__(self, rows: Problem, decisions: Array) -> Array:
        parts = replace(rows, constraints=self._alone, safety_test=self._test)
        outputs: Measurements = DecisionOutputs(decisions)
        if rows.label_range is not None:
            outputs = score_model_of(rows).outputs(decisions)
        prediction = predict_safety_test(parts, self._test, outputs, {PASS_KEY: self._aim})
        upper = prediction.upper(outputs)
        starts = [prediction.owners.index(goal.name) for goal in self._alone]
        ends = np.where(np.isfinite(upper), upper, UNDEFINED_SHORTFALL)
        return np.asarray(np.maximum.reduceat(ends, starts))


@dataclass(frozen=True)
class NormalJudge:
    """Judges by violations plus a bias (J,) and a multiple of standard errors (delta method).

    Rates are taken to be jointly normal, so that what pieces have in common counts once. `prior` is
    as `PRIOR_ROWS`.
    """

    level: float | None = None
    bias: Array | float = 0.0
    prior: float = PRIOR_ROWS
    undefined: float = UNDEFINED_SHORTFALL

    def __call__(self, rows: Problem, decisions: Array) -> Array:
        rates = rows.measured(decisions)
        plain = rows.piece_values(rates)
        biased = np.asarray(plain + self.bias)
        if self.level is not None:
            parts = PieceParts(rows.pieces, rows.rates.index())
            low, slopes = parts.at(rates, biased)
            slopes = np.where(np.isnan(low)[:, None], 0.0, slopes)
            prior = self.prior if rows.label_range is None else 0.0
            known = rows.rates.covariance(rows.measurements(decisions), rows.counts, prior)
            covariance = EXTRA_NOISE**2 * known
            errors = np.sqrt(np.maximum(((slopes @ covariance) * slopes).sum(axis=1), 0.0))
            high = low + _deviates(low, errors, slopes, covariance, self.level) * errors
            biased = parts.total(high)
        return np.asarray(np.nan_to_num(biased, nan=self.undefined))


PLAIN_JUDGE = NormalJudge()


def _deviates(
    violations: Array, errors: Array, slopes: Array, covariance: Array, level: float
) -> float:
    """Return by how many standard errors, at least, each piece must lie below 0.

    All pieces (J,) then hold with the probability `level`, if rates have normal errors with the
    `covariance` (K, K) and `slopes` (J, K) are the gradients of the pieces. A piece that is further
    below 0 counts with its own distance; if all are, the nearest may come nearer. The probability
    is that of `DRAWS` errors. With a single uncertain piece, or a level too close to 1 for so many
    draws, the probabilities of violating single pieces are added up instead (Bonferroni).
    """
    room = np.full(len(errors), np.inf)
    np.divide(-violations, errors, out=room, where=errors > 0)
    near, allowed = np.flatnonzero(room < FAR), 1 - level
    if len(near) > 1 and allowed * DRAWS >= MIN_TAIL_DRAWS:
        spread, axes = np.linalg.eigh(covariance)
        drawn = np.random.default_rng(0).normal(size=(DRAWS, len(spread)))
        drawn = drawn * np.sqrt(np.maximum(spread, 0.0)) @ axes.T
        drawn = drawn @ slopes[near].T / errors[near]
        counted = (drawn > room[near]) | (near == room.argmin())
        worst = np.where(counted, drawn, -np.inf).max(axis=1)
        return float(np.quantile(worst, level, method="higher"))
    chances = ndtr(-room)
    if chances.sum() <= allowed:
        return float(-ndtri(allowed - (chances.sum() - chances.max())))

    def excess(c: float) -> float:
        return float(ndtr(-np.fmax(room, c)).sum()) - allowed

    return float(brentq(excess, 0.0, MAX_DEVIATES))
