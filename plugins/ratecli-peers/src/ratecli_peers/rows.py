"""What adapters have in common: rows as other packages take them, fits, and solutions."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import Diagnostic, FaultError, exception_line
from ratecli.models.base import Array, Classifier
from ratecli.models.composed import GroupThreshold, MixtureClassifier
from ratecli.models.linear import Threshold, logistic
from ratecli.solvers.base import JudgedRows, Solution, trace_row
from ratecli.solvers.baselines.options import ThresholdSolver
from ratecli.solvers.baselines.post_shift import couple_group_cuts
from ratecli.solvers.baselines.thresholded import ScoredRows, score_rows
from ratecli.solvers.hull.master import MAX_EXCESS
from ratecli.solvers.oracles.estimators import dense_features
from ratecli.solvers.problem import Groups, Problem

CERTAIN = 1e9
"""A threshold that no score is beyond."""
GroupChances = Sequence[tuple[Array, Array]]
"""Thresholds on scores, and their chances, of each group."""


@dataclass(frozen=True)
class GroupRows:
    """The labelled rows of the groups that constraints compare.

    Attributes
    ----------
    rows
        (m,) their indices among the problem's rows.
    label
        (m,) their labels, 0 or 1.
    group
        (m,) their groups, 0 to G - 1.
    groups
        The groups as slices; those of `cells` (G,) are compared.
    """

    rows: NDArray[np.intp]
    label: NDArray[np.intp]
    group: NDArray[np.intp]
    groups: Groups
    cells: NDArray[np.intp]

    @classmethod
    def of(cls, problem: Problem, *, complete: bool = False) -> GroupRows:
        """Return the rows of a problem, without those that have no label or no group.

        Raises
        ------
        FaultError
            E308 if rows have different weights or groups overlap, and with `complete`, if a
            labelled row is in no group; E306 if no row has a label.
        """
        signs, weights = problem.labels()
        used = weights[signs != 0]
        if not np.allclose(used, used[0], rtol=1e-9):
            raise refused("rows have different weights")
        groups = Groups.of_problem(problem)
        members = groups.patterns.sum(axis=1)
        if (members > 1).any():
            raise refused("the groups of the constraints overlap")
        cells = np.flatnonzero(members == 1) if groups.slices else np.zeros(1, dtype=np.intp)
        inside = (signs != 0) & np.isin(groups.of, cells)
        if complete and inside.sum() < len(used):
            raise refused("some rows are in none of the groups of the constraints")
        rows = np.flatnonzero(inside)
        group = np.searchsorted(cells, groups.of[rows])
        return cls(rows, (signs[rows] > 0).astype(np.intp), group, groups, cells)

    @property
    def memberships(self) -> Array:
        """(m, S) which slices the rows are in, as 0 and 1."""
        return self.groups.patterns[self.groups.of[self.rows]].astype(float)

    def thresholds(self, scorer: Classifier, chances: GroupChances) -> MixtureClassifier:
        """Return the classifier with thresholds of each of the G groups, chosen by chances.

        Rows of other groups keep the threshold of the scorer.
        """
        every = [(np.zeros(1), np.ones(1)) for _ in self.groups.patterns]
        for cell, (cuts, shares) in zip(self.cells, chances, strict=True):
            order = np.argsort(cuts, kind="stable")
            bounded = np.clip(np.asarray(cuts, dtype=float), -CERTAIN, CERTAIN)
            every[cell] = bounded[order], np.asarray(shares, dtype=float)[order]
        joint, shares = couple_group_cuts(every)
        slices, patterns = self.groups.slices, self.groups.patterns
        members = [GroupThreshold(scorer, slices, patterns, cuts) for cuts in joint]
        return MixtureClassifier.of(members, shares)

    def decisions(self, scores: Array, chances: GroupChances) -> Array:
        """Return the chance (m,) of a positive decision on rows with scores (m,)."""
        decided = np.zeros(len(scores))
        for g, (cuts, shares) in enumerate(chances):
            own = self.group == g
            decided[own] = (scores[own, None] > cuts) @ shares
        return decided


@dataclass(frozen=True)
class ScoredGroups:
    """A model, and its scores of the rows by which thresholds of groups are chosen.

    Attributes
    ----------
    scored
        The model and all scores.
    rows
        The rows of groups.
    """

    scored: ScoredRows
    rows: GroupRows

    @classmethod
    def of(
        cls, solver: ThresholdSolver, problem: Problem, *, complete: bool = False
    ) -> ScoredGroups:
        """Fit the model of an option; raise as `score_rows` and `GroupRows.of` do."""
        scored = score_rows(solver, problem)
        return cls(scored, GroupRows.of(scored.problem, complete=complete))

    @property
    def classifier(self) -> Classifier:
        return self.scored.classifier

    @property
    def scores(self) -> Array:
        """(m,) scores of the rows of groups."""
        return self.scored.scores[self.rows.rows]

    @property
    def chances(self) -> Array:
        """(m,) scores as chances of a positive label; 0 becomes 0.5.

        The score of a linear model passes through the logistic function, that of other models is a
        chance minus 0.5.
        """
        scores = self.scores
        linear = isinstance(self.classifier, Threshold)
        return logistic(scores) if linear else np.clip(scores + 0.5, 0.0, 1.0)

    def cuts(self, chances: Array) -> Array:
        """Return thresholds on scores from thresholds on `chances`."""
        if not isinstance(self.classifier, Threshold):
            return np.asarray(chances, dtype=float) - 0.5
        inner = np.clip(chances, 0.0, 1.0)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(inner) - np.log1p(-inner))

    def violation(self, decisions: Array) -> float:
        """Return the violation of the worst constraint by decisions (m,)."""
        problem = self.scored.problem
        return problem.worst_violation(problem.measured(self._every(decisions)))

    def judged(self, decisions: Array) -> JudgedRows | None:
        """Return the rows with decisions (m,), None if they are training rows of the model."""
        return self.scored.judged(self._every(decisions))

    def _every(self, decisions: Array) -> Array:
        every = (self.scored.scores > 0).astype(float)
        every[self.rows.rows] = decisions
        return every


def refused(why: str) -> FaultError:
    """Return an E308 that says why the rows or goals cannot be used."""
    return FaultError(Diagnostic("E308", f"the algorithm cannot be used: {why}"))


@contextmanager
def package_errors(package: str) -> Iterator[None]:
    """Run code of a package: silent, and with its exceptions as E501.

    Raises
    ------
    FaultError
        E501 with the package's message.
    """
    level = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    except FaultError:
        raise
    except Exception as error:  # packages raise anything
        message = f"{package} failed: {exception_line(error)}"
        raise FaultError(Diagnostic("E501", message)) from error
    finally:
        logging.disable(level)


def dense(problem: Problem, rows: NDArray[np.intp]) -> Array:
    """Return the features (m, d) of some rows as a dense array."""
    return dense_features(problem.X[rows])


def seed_of(rng: np.random.Generator) -> int:
    """Return a random seed for a package, 0 to 2**31 - 1."""
    return int(rng.integers(2**31))


def solution(
    problem: Problem,
    classifier: Classifier,
    begun: float,
    package: str,
    judged: JudgedRows | None = None,
    **more: Any,
) -> Solution:
    """Return the solution with a classifier, judged on training rows or on rows it has not seen."""
    rows, decided = judged or (problem, problem.decisions(classifier))
    value, violation = rows.value_of(decided), rows.worst_violation(rows.measured(decided))
    row = trace_row(1, value, violation, begun, **more)
    random = isinstance(classifier, MixtureClassifier)
    variants = {"stochastic" if random else "deterministic": classifier}
    if violation <= MAX_EXCESS:
        return Solution(variants, trace=(row,), judged=judged)
    reason = f"{package} leaves a constraint violated by {violation:.3g}"
    return Solution(variants, "iteration_limit", reason, trace=(row,), judged=judged)


def plain_solution(classifier: Classifier) -> Solution:
    """Return the solution without constraints: the model itself."""
    return Solution({"deterministic": classifier})
