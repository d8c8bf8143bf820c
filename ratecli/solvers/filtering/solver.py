"""Filters by a tree of randomized splits that says little of anybody's group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from ratecli.models.base import Classifier
from ratecli.models.proxies import ProxyFilter, SampledFilter
from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.filtering.aim import FilterTarget
from ratecli.solvers.filtering.split import ProgressSplitter, SplitOptions, nearest_split
from ratecli.solvers.filtering.tree import FilterTreeBuilder, GrowthOptions, Splitter
from ratecli.solvers.oracles.choice import OracleOption, make_oracle, oracle_uses_groups
from ratecli.solvers.problem import Problem


@dataclass(frozen=True)
class BalancedTree(Solver):
    """Keeps rows so that groups are balanced, by a proxy of which no value says much of a row's group.

    The objective is `imbalance(by=column)` or another distance of shares from given ones, the constraints
    bound `disclosivity(by=column)`. A tree of randomized splits is grown; its leaves are the proxy's
    values (Algorithm 4), the chances of keeping come from a quadratic program (Algorithm 1). Neither the
    groups nor the columns that tell them are looked at when a row is kept.

    All that a filter by leaves does can be done by two: what is kept is a mixture of the leaves, and so is
    what is dropped, and neither says more of a group than they do. So the split `nearest` at the root is the
    best filter of all randomized ones over the oracle's classifiers, but for the `gap`; deeper splits are
    of use as far as products of classifiers are new ones.

    Attributes
    ----------
    split
        `nearest`: the split after which the hull of the leaves is nearest to the target, of all mixtures
        of the oracle's classifiers: a convex program, solved by column generation to a duality gap.
        `progress`: the paper's linear objective (Algorithm 3), the same way.
    offset
        Of `progress`, what a step towards the target has to bring: `zero`; `literal`, the paper's f(gamma)
        (Lemma 4, its sign corrected), at which there is almost never a split; `both`, whichever then
        comes nearer.
    relaxed
        Whether the weights of leaves need not add up to 1 while the tree grows (section 5).
    gamma
        A split must bring the distance from the target to at most 1 - gamma times what it was.
    depth
        Most splits above a leaf.
    stop
        The imbalance at which the tree is good enough.
    kept
        Least share of all rows that the filter keeps. With 0 there is no limit, and of the rows that are
        kept in the end there may be few.
    child
        Least share of all rows in a leaf. Where groups are balanced on some data sets only, of their rows.
    order
        `best`: of all leaves that one is split where it helps most; `first`: the oldest where it is enough.
    oracle
        What finds classifiers for splits: `plugin`, which fits chances of the groups once,
        `regression` (the paper's paired regression), faster and often a little less good, or any other
        oracle of `mixture`.
    gap
        By how much another answer of the oracle must promise to come nearer.
    calls
        Most answers for one split.
    sampled
        Whether a variant `sampled` is added: one sample, drawn by a hash of each row.
    missing
        Training rows without a value of a column that tells groups: `refuse` them before any trial, or
        `leave_out`, where the filter is found without them. It decides on them as on any row, and shares
        that are measured count them among all. With several columns those are left out that lack any.
    """

    split: Literal["nearest", "progress"] = "nearest"
    offset: Literal["zero", "literal", "both"] = "zero"
    relaxed: bool = False
    gamma: Annotated[float, Ge(0), Lt(1)] = 0.01
    depth: Annotated[int, Ge(0)] = 20
    stop: Annotated[float, Ge(0)] = 0.0
    kept: Annotated[float, Ge(0), Le(1)] = 0.005
    child: Annotated[float, Ge(0), Lt(1)] = 0.001
    order: Literal["best", "first"] = "best"
    oracle: OracleOption = "plugin"
    gap: Annotated[float, Gt(0)] = 1e-3
    calls: Annotated[int, Ge(1)] = 60
    sampled: bool = False
    missing: Literal["refuse", "leave_out"] = "refuse"

    hides_groups: ClassVar[bool] = True
    objectives: ClassVar[frozenset[str]] = frozenset({Shape.BALANCE})
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.DISCLOSURE})

    def __post_init__(self) -> None:
        if self.relaxed and self.kept:
            raise ValueError("with 'relaxed' weights there is no least share to keep: say kept: 0")
        if oracle_uses_groups(self.oracle):
            raise ValueError("a filter is not told the groups: leave out 'groups' of its 'plugin'")

    @property
    def idle(self) -> Mapping[str, str]:
        """Progress is what the paper's split is after."""
        if self.split == "progress":
            return {}
        return {"offset": "'offset' is of 'split: progress', and this is nearest"}

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        aim = FilterTarget.of(problem, leave_out=self.missing == "leave_out")
        terms = SplitOptions(self.relaxed, self.kept, self.child, self.gap, self.calls)
        growth = FilterTreeBuilder(
            aim,
            GrowthOptions(self.gamma, self.depth, self.stop, self.order),
            terms,
            self._splitter(aim, terms),
            lambda ground: make_oracle(self.oracle, ground, problem.l2, rng),
        )
        for said in growth.grow():
            progress(said)
        return Solution(
            filter_variants(growth.filter(), rng, sampled=self.sampled), trace=tuple(growth.trace)
        )

    def _splitter(self, aim: FilterTarget, terms: SplitOptions) -> Splitter:
        if self.split == "progress":
            return ProgressSplitter(aim, terms, self.offset, self.gamma)
        return partial(nearest_split, aim, terms)


def filter_variants(
    found: ProxyFilter, rng: np.random.Generator, *, sampled: bool
) -> dict[str, Classifier]:
    """The filter by its chances, and one sample by it if that is asked for."""
    both: dict[str, Classifier] = {"expected": found}
    if sampled:
        both["sampled"] = SampledFilter(found.proxy, found.keep, salt=int(rng.integers(2**31)))
    return both
