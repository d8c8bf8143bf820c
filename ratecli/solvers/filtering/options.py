"""The filter algorithms and their options; modules of their own solve the problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Role, Solver
from ratecli.solvers.oracles.choice import ChancesOption, OracleOption, oracle_uses_groups


@dataclass(frozen=True)
class BalancedTree(Solver):
    """Keeps rows so that groups are balanced, by a proxy that reveals little about a row's group.

    The objective is `imbalance(by=column)` or another distance of shares from target shares; the
    constraints bound `disclosivity(by=column)`. The algorithm grows a tree of randomized splits,
    whose leaves are the proxy's values (Algorithm 4), and computes the chances of keeping rows by a
    quadratic program (Algorithm 1). The resulting filter uses neither the groups nor the columns
    that define them.

    Two leaves are enough for any filter. The kept rows are a mixture of the leaves, and so are the
    dropped rows. Neither reveals more about a group than the leaves do. So the split `nearest`
    at the root is the best randomized filter over the oracle's classifiers, up to `gap`. Deeper
    splits help only if products of classifiers are not in the oracle's class.

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
        any other oracle of `three_player`.
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

    version: ClassVar[int] = 4
    runs: ClassVar[str] = "ratecli.solvers.filtering.filters:solve_balanced_tree"
    hides_groups: ClassVar[bool] = True
    objectives: ClassVar[frozenset[str]] = frozenset({Shape.BALANCE})
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.DISCLOSURE})

    def __post_init__(self) -> None:
        if self.relaxed and self.kept:
            raise ValueError("'relaxed' weights cannot keep a minimum share of rows: set kept: 0")
        if oracle_uses_groups(self.oracle):
            raise ValueError("a filter does not know the groups: remove 'groups' from its 'plugin'")

    @property
    def idle(self) -> Mapping[str, str]:
        """Options without effect: `offset` only applies to the paper's split."""
        if self.split == "progress":
            return {}
        return {"offset": "'offset' only applies to 'split: progress'"}


@dataclass(frozen=True)
class GuessedGroup(Solver):
    """Keeps rows by the group that a classifier predicts (naive and QP proxies of section 5).

    The classifier is trained to predict the group from the features, or the combination of groups
    if there are several columns. A prediction therefore reveals as much about the group as the
    classifier's accuracy allows: constraints on disclosivity are measured but not enforced.

    Attributes
    ----------
    weights
        `naive`: keep equally many rows of each predicted group; `qp`: use the chances that balance
        the groups best (Algorithm 1).
    model
        A classifier that returns probabilities: `logistic`, the name of one of scikit-learn,
        `lightgbm`, `xgboost` or `catboost` (optional extras), or `package.module:Class` of a
        trusted package. Parameters follow the name: `{DecisionTreeClassifier: {max_depth: 20}}`.
    noise
        eta: probability that a prediction is replaced by a group sampled uniformly from all
        predicted groups (appendix A.1.1). The probabilities of keeping rows stay as they are. The
        effect on disclosivity and balance is computed in closed form.
    kept
        Minimum share of all rows that is kept, for `qp`.
    sampled
        Whether to add the variant `sampled`: a single sample, drawn by a hash of each row.
    missing
        What to do with training rows without a value in a column that defines groups: `refuse` them
        with an error before any trial, or `leave_out` these rows when the filter is fitted. The
        filter decides on them like on any row, and measured shares include them.
    """

    weights: Literal["naive", "qp"] = "qp"
    model: ChancesOption = "LogisticRegression"
    noise: Annotated[float, Ge(0), Le(1)] = 0.0
    kept: Annotated[float, Ge(0), Le(1)] = 0.0
    sampled: bool = False
    missing: Literal["refuse", "leave_out"] = "refuse"

    version: ClassVar[int] = 2
    runs: ClassVar[str] = "ratecli.solvers.filtering.filters:solve_guessed_group"
    role: ClassVar[Role] = "reads"
    hides_groups: ClassVar[bool] = True
    objectives: ClassVar[frozenset[str]] = frozenset({Shape.BALANCE})
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.DISCLOSURE})

    @property
    def idle(self) -> Mapping[str, str]:
        """Options without effect: naive weights depend only on the predictions."""
        if self.weights == "qp":
            return {}
        return {"kept": "'kept' only applies to 'weights: qp'"}
