"""Partition of rows into the groups that the slices of goals distinguish."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratecli.rates import expression as ex
from ratecli.solvers.problem import Problem

HASH_BOUND = 2**62


@dataclass(frozen=True)
class Groups:
    """The cells into which the slices of the goals' rates partition the rows.

    Only slices of rates that depend on decisions count. The data set that a row comes from does not
    define a group.

    Attributes
    ----------
    slices
        S conditions as text, in alphabetical order.
    patterns
        (C, S) which slices the rows of each group are in.
    of
        (n,) the group of each row, 0 to C - 1.
    """

    slices: tuple[str, ...]
    patterns: NDArray[np.bool_]
    of: NDArray[np.intp]

    @classmethod
    def of_problem(cls, problem: Problem) -> Groups:
        """Return the groups of a problem's rows."""
        pieces = [p for goal in (problem.objective, *problem.constraints) for p in goal.pieces]
        moving = (leaf for leaf in ex.leaves(*pieces) if leaf.rate.yes != leaf.rate.no)
        texts = sorted({str(leaf.where.visible) for leaf in moving if leaf.where.conditions})
        n = problem.X.shape[0]
        members = np.array([problem.slices[text] for text in texts], dtype=bool).reshape(-1, n).T
        return cls.by(tuple(texts), members)

    @classmethod
    def by(cls, slices: tuple[str, ...], members: NDArray[np.bool_]) -> Groups:
        """Return the cells of memberships (n, S)."""
        words = np.random.default_rng(0).integers(-HASH_BOUND, HASH_BOUND, size=len(slices))
        # Integer sums modulo 2^64 are exact, so equal patterns have equal sums.
        _, first, of = np.unique(members @ words, return_index=True, return_inverse=True)
        return cls(slices, members[first], of)
