"""Scores of rows by models that have not seen them: in folds, or on a share that is held out.

A flexible model's scores of its own training rows are too good: a recall that is set by them is
missed on new rows (.07 on Adult, for a recall of .8). Whatever is chosen by scores is therefore
chosen by those of `UnseenScores`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.matrix import sign_patterns
from ratecli.solvers.problem import Problem

Indices = NDArray[np.intp]
TUNING_FOLDS = 5
"""Number of folds by which settings are compared."""
Model = TypeVar("Model")


@dataclass(frozen=True)
class UnseenScores:
    """Which rows a model is fitted to, which rows get scores, and by models of which rows.

    Attributes
    ----------
    fitted
        The rows of the model itself.
    scored
        (s,) the rows with scores, ascending.
    parts
        The rows to fit a model to, and the rows (of `scored`, each in one part) that it scores.
    seen
        Whether rows are scored by a model that was fitted to them.
    """

    fitted: Indices
    scored: Indices
    parts: tuple[tuple[Indices, Indices], ...]
    seen: bool = False

    @classmethod
    def of(cls, option: Any, problem: Problem) -> UnseenScores:
        """Return the rows that an option `scores` names (see `choice.Scores`).

        `in_sample` or None: all rows, by the model itself; `{folds: K}`: all rows, each by a model
        of the other K - 1 folds; `{held_out: S}`: a share S of the rows, which the model is not
        fitted to. Folds and shares are random, but the same for all algorithms of a trial's seed.

        Raises
        ------
        FaultError
            E410 if there are fewer rows than folds, or a rate has no rows among those held out.
        """
        match option:
            case {"folds": count}:
                return cls.in_folds(folds_of(problem, int(count)))
            case {"held_out": share}:
                fitted, held = hold_out(problem, float(share))
                return cls(fitted, held, ((fitted, held),))
        rows = np.arange(problem.rates.sums.shape[1])
        return cls(rows, rows, ((rows, rows),), seen=True)

    @classmethod
    def in_folds(cls, fold: Indices, rows: Indices | None = None) -> UnseenScores:
        """Return rows (n,), by default 0 to n - 1, that are in the folds `fold` (n,)."""
        rows = np.arange(len(fold)) if rows is None else rows
        parts = ((rows[fold != k], rows[fold == k]) for k in np.unique(fold))
        return cls(rows, rows, tuple(parts))

    def scores(
        self, fit: Callable[[Indices], Model], score: Callable[[Model, Indices], Array]
    ) -> Array:
        """Return scores (s, ...): in each part, `score(fit(rows to fit to), rows to score)`."""
        found = np.zeros(len(self.scored))
        for k, (fitted, scored) in enumerate(self.parts):
            own = np.asarray(score(fit(fitted), scored))
            if not k:
                found = np.empty((len(self.scored), *own.shape[1:]))
            found[np.searchsorted(self.scored, scored)] = own
        return found

    def fit_and_score(
        self, fit: Callable[[Indices], Model], score: Callable[[Model, Indices], Array]
    ) -> tuple[Model, Array]:
        """Return the model of the rows `fitted`, and the scores (s, ...) as `scores` does."""
        model = fit(self.fitted)
        if len(self.parts) == 1:  # the only part is scored by the model itself
            return model, score(model, self.scored)
        return model, self.scores(fit, score)


def folds_of(problem: Problem, count: int) -> Indices:
    """Return the fold (n,) of each row, 0 to count - 1; rows of each kind are spread evenly.

    Raises
    ------
    FaultError
        E410 if there are fewer rows than folds.
    """
    if (rows := problem.rates.sums.shape[1]) < count:
        raise FaultError(Diagnostic("E410", f"{rows} rows cannot make {count} folds"))
    return _stratified_ranks(_row_patterns(problem), problem.seed) % count


def folds_by_label(problem: Problem, count: int) -> Indices:
    """Return folds like `folds_of`, but spread labels evenly: they do not depend on goals."""
    signs, _ = problem.labels()
    return _stratified_ranks((signs + 1).astype(np.intp), problem.seed) % count


def hold_out(problem: Problem, share: float) -> tuple[Indices, Indices]:
    """Return the rows to fit to and those held out: a random share of each kind.

    Raises
    ------
    FaultError
        E410 if a rate of the problem has no rows among the latter.
    """
    ranks = _stratified_ranks(_row_patterns(problem), problem.seed)
    out = np.floor((ranks + 1) * share) > np.floor(ranks * share)
    fitted, held = np.flatnonzero(~out), np.flatnonzero(out)
    rates = problem.rates.on(held)
    for leaf, total in zip(rates.leaves, rates.totals, strict=True):
        if not total:
            message = f"the held-out rows have none that '{ex.to_text(leaf)}' averages over"
            hint = "hold out a larger share, or use scores: in_sample"
            raise FaultError(Diagnostic("E410", message, hint))
    return fitted, held


def _row_patterns(problem: Problem) -> Indices:
    """Return the kind (n,) of each row: the sign with which it counts in each rate."""
    return sign_patterns(problem.rates.sums)[0]


def _stratified_ranks(kind: Indices, seed: int) -> Indices:
    """Return the rank (n,) of each row among those of its kind, in random order, from 0."""
    order = np.random.default_rng(seed).permutation(len(kind))
    order = order[np.argsort(kind[order], kind="stable")]
    counts = np.bincount(kind)
    ranks = np.empty(len(kind), dtype=np.intp)
    ranks[order] = np.arange(len(kind)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks
