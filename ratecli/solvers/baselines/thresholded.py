"""The algorithm `thresholded`, and the scores by which thresholds on a model are chosen."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import CostSensitiveClassifier
from ratecli.models.linear import Threshold
from ratecli.models.output_cache import take_rows
from ratecli.solvers.base import JudgedRows, Progress, Solution, trace_row
from ratecli.solvers.baselines.label_model import fit_model
from ratecli.solvers.baselines.options import Thresholded, ThresholdSolver
from ratecli.solvers.curve import RateCurve
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.hull.infeasible import unmet_status
from ratecli.solvers.oracles.choice import model_name
from ratecli.solvers.oracles.unseen import Indices, UnseenScores
from ratecli.solvers.problem import Problem

ROUNDING = 1e-12
"""Rounding error of a sum of a few exact rates."""


@dataclass(frozen=True)
class ScoredRows:
    """A classifier, and scores of rows by which its thresholds are chosen.

    Attributes
    ----------
    classifier
        The classifier, fitted.
    problem
        The problem on the rows by which thresholds are chosen.
    scores
        (n,) their scores: positive decisions are above 0 at the classifier's own threshold.
    suboptimal
        Why the classifier is not optimal, "" if it is.
    seen
        Whether the rows are training rows of the model that scored them.
    """

    classifier: Classifier
    problem: Problem
    scores: Array
    suboptimal: str
    seen: bool

    def judged(self, decisions: Array) -> JudgedRows | None:
        """Return the rows with decisions (n,) on them, None if the rows are seen."""
        return None if self.seen else JudgedRows(self.problem, decisions)


def score_rows(options: ThresholdSolver, problem: Problem) -> ScoredRows:
    """Fit the model that the options name, and score rows as they say.

    Raises
    ------
    FaultError
        E306 if no row has a label, E501 if the model cannot be fitted, E410 if there are too few
        rows to hold some out.
    """
    unseen = UnseenScores.of(options.scores, problem)

    def fit(rows: Indices) -> tuple[Classifier, str]:
        return fit_model(options, problem if len(rows) == whole else problem.on(rows))

    def score(fitted: tuple[Classifier, str], rows: Indices) -> Array:
        return fitted[0].score(take_rows(problem.X, rows))

    whole = problem.rates.sums.shape[1]
    (classifier, suboptimal), scores = unseen.fit_and_score(fit, score)
    judged = problem if len(unseen.scored) == whole else problem.on(unseen.scored)
    return ScoredRows(classifier, judged, scores, suboptimal, unseen.seen)


def shift_threshold(classifier: Classifier, by: float) -> Classifier:
    """Return the classifier with its threshold raised by an amount of score."""
    if isinstance(classifier, Threshold):
        return replace(classifier, bias=classifier.bias - by)
    assert isinstance(classifier, CostSensitiveClassifier)
    return replace(classifier, cut=classifier.cut + by)


def solve_thresholded(
    options: Thresholded,
    problem: Problem,
    rng: np.random.Generator,  # noqa: ARG001
    progress: Progress,
) -> Solution:
    """Return the plain classifier with the best threshold that satisfies the chosen constraints."""
    begun, named = time.perf_counter(), {goal.name: goal for goal in problem.constraints}
    chosen = problem.constraints if options.meets is None else (named[options.meets],)
    goals = () if options.free else chosen
    scored = score_rows(options, problem)
    progress(f"{model_name(options.model)} model ready")
    rows = scored.problem
    curve = RateCurve.of(scored.scores, keep_zero=True)
    thresholds, rates = curve.thresholds, curve.rates(rows.rates)
    judged = replace(rows, constraints=goals)
    program = RateProgram.of(judged)
    missed = program.missed(rates, ROUNDING)
    feasible = missed == 0
    if not feasible.any():
        worst = judged.nearest_miss(rates)
        reason = f"no threshold satisfies all constraints: the best violates {worst}"
        return Solution({}, *unmet_status(judged, reason))
    values, known = program.value(program.objective, rates), program.cost(rates)
    is_best = feasible & (known <= known[feasible].min() + ROUNDING)
    best = int(np.where(is_best, np.abs(thresholds), np.inf).argmin())
    shift = float(thresholds[best])
    classifier = shift_threshold(scored.classifier, shift)
    violation = rows.worst_violation(rates[:, best])
    row = trace_row(1, float(values[best]), violation, begun, shift=-shift)
    status = "iteration_limit" if scored.suboptimal else "solved"
    return Solution(
        {"deterministic": classifier},
        status,
        scored.suboptimal,
        trace=(row,),
        judged=scored.judged((scored.scores > shift).astype(float)),
    )
