"""Rows that a model has not seen: folds, and a share held out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.errors import Diagnostic, FaultError
from ratecli.rates import expression as ex
from ratecli.rates.matrix import sign_patterns
from ratecli.solvers.problem import Problem


def folds_of(problem: Problem, count: int) -> NDArray[np.intp]:
    """Return the fold (n,) of each row, 0 to count - 1; rows of each kind are spread evenly.

    Raises
    ------
    FaultError
        E410 if there are fewer rows than folds.
    """
    if (rows := problem.rates.sums.shape[1]) < count:
        raise FaultError(Diagnostic("E410", f"{rows} rows cannot make {count} folds"))
    return _stratified_ranks(_row_patterns(problem), problem.seed) % count


def folds_by_label(problem: Problem, count: int) -> NDArray[np.intp]:
    """Return folds like `folds_of`, but spread labels evenly: they do not depend on goals."""
    signs, _ = problem.labels()
    return _stratified_ranks((signs + 1).astype(np.intp), problem.seed) % count


def hold_out(problem: Problem, share: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
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


def _row_patterns(problem: Problem) -> NDArray[np.intp]:
    """Return the kind (n,) of each row: the sign with which it counts in each rate."""
    return sign_patterns(sparse.csc_array(problem.rates.sums))[0]


def _stratified_ranks(kind: NDArray[np.intp], seed: int) -> NDArray[np.intp]:
    """Return the rank (n,) of each row among those of its kind, in random order, from 0."""
    order = np.random.default_rng(seed).permutation(len(kind))
    order = order[np.argsort(kind[order], kind="stable")]
    counts = np.bincount(kind)
    ranks = np.empty(len(kind), dtype=np.intp)
    ranks[order] = np.arange(len(kind)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks
