"""The `balanced_tree` algorithm: filters that reveal little about a row's group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.oracles.choice import OracleOption, make_oracle, oracle_uses_groups

if TYPE_CHECKING:
    from ratecli.models.base import Classifier
    from ratecli.models.proxies import ProxyFilter
    from ratecli.solvers.filtering.aim import FilterTarget
    from ratecli.solvers.filtering.split import SplitOptions
    from ratecli.solvers.filtering.tree import Splitter
    from ratecli.solvers.problem import Problem


@dataclass(frozen=True)
class BalancedTree(Solver):
    """Keeps rows so that groups are balanced, by a proxy that reveals little about a row's group.

    The objective is `imbalance(by=column)` or another distance of shares from target shares; the
    constraints bound `disclosivity(by=column)`. The algorithm grows a tree of randomized splits,
    whose leaves are the proxy's values (Algorithm 4), and computes the chances of keeping rows by a
    quadratic program (Algorithm 1). The resulting filter uses neither the groups nor the columns
    that define them.

    Any filter that uses the leaves is equivalent to one with two leaves: the kept rows are a
    mixture of the leaves, and so are the dropped ones, and neither reveals more about a group than
    the leaves do. So the split `nearest` at the root is the best of all randomized filters over the
    oracle's classifiers, up to `gap`; deeper splits help only as far as products of classifiers are
    not in the oracle's class.

    Attributes
    ----------
    split
        `nearest`: the split that brings the hull of the leaves nearest to the target, among all
        mixtures of the oracle's classifiers; a convex program, solved by column generation to a
        duality gap. `progress`: the paper's linear objective (Algorithm 3), maximized in the same
        way.
    offset
        For `progress`, the required gain of a step towards the target: `zero`; `literal`, the
        paper's f(gamma) (Lemma 4 with its sign corrected), which almost no split achieves; `both`,
        the one that then comes nearer.
    relaxed
        Whether the weights of leaves need not sum to 1 while the tree grows (section 5).
    gamma
        A split must reduce the distance from the target to at most 1 - gamma times its previous
        value.
    depth
        Maximum number of splits above a leaf.
    stop
        The imbalance at which the tree stops growing.
    kept
        Minimum share of all rows that the filter keeps. With 0 there is no limit, and the filter
        may keep very few rows.
    child
        Minimum share of all rows in a leaf. If groups are balanced on some data sets only, the
        share is of their rows.
    order
        Which leaf to split next: `best`, the one that helps most; `first`, the oldest one that
        helps enough.
    oracle
        Finds classifiers for splits: `plugin`, which fits probabilities of the groups once;
        `regression` (the paper's paired regression), which is faster and often slightly worse; or
        any other oracle of `mixture`.
    gap
        Column generation stops when another answer of the oracle promises to reduce the distance by
        no more than this.
    calls
        Maximum number of oracle answers per split.
    sampled
        Whether to add the variant `sampled`: a single sample, drawn by a hash of each row.
    missing
        What to do with training rows without a value in a column that defines groups: `refuse` them
        with an error before any trial, or `leave_out` these rows when the filter is fitted. The
        filter decides on them like on any row, and measured shares include them. With several
        columns, rows that lack any of them are left out.
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
        """Options without effect: `offset` only applies to the paper's split."""
        if self.split == "progress":
            return {}
        return {"offset": "'offset' is of 'split: progress', and this is nearest"}

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli.solvers.filtering.aim import FilterTarget
        from ratecli.solvers.filtering.split import SplitOptions
        from ratecli.solvers.filtering.tree import FilterTreeBuilder, GrowthOptions

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
        from ratecli.solvers.filtering.split import ProgressSplitter, nearest_split

        if self.split == "progress":
            return ProgressSplitter(aim, terms, self.offset, self.gamma)
        return partial(nearest_split, aim, terms)


def filter_variants(
    found: ProxyFilter, rng: np.random.Generator, *, sampled: bool
) -> dict[str, Classifier]:
    """Return the filter as `expected` and, if `sampled`, a single sample by it as `sampled`."""
    from ratecli.models.proxies import SampledFilter

    both: dict[str, Classifier] = {"expected": found}
    if sampled:
        both["sampled"] = SampledFilter(found.proxy, found.keep, salt=int(rng.integers(2**31)))
    return both
