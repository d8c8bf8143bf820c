"""Plan which confidence bounds a safety test of a goal needs, and record the resulting tree.

The quantities in a tree are bounded by confidence limits, which interval arithmetic propagates to
the root. All limits of a tree hold simultaneously with probability at least 1 minus the sum of
their deltas (Boole), and if they do, the upper end of the root is at least its true value. Only the
sides that the upper end of the root needs are bounded, each distinct one once.

With the method `pieces`, a goal is a maximum of trees, and each tree gets the whole delta for its
own bounds. This is sound although all limits hold simultaneously with a smaller probability: the
goal's true value is that of one tree, the largest. The largest upper end is below the true value
only if the upper end of that tree is, which has probability at most delta. This is the
intersection-union test (Berger 1982, "Multiparameter hypothesis testing and acceptance sampling",
Technometrics 24, theorem 1): if a goal is violated, so is one of its trees, and the goal passes
only if that tree passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ratecli.certify.base import Bound, BoundedSample
from ratecli.certify.bounds import BOUNDS, choose_bound
from ratecli.certify.forms import FormRows, MeasuredRows, disjoint_groups, independent_parts
from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine
from ratecli.rates.analysis import Goal, compare_in_pairs
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.functions import Interval
from ratecli.rates.matrix import RateMatrix
from ratecli.rates.rate_function import CONSTANT, RateFunction, Row

RATIO_DIGITS = 12
"""Forms are multiples of one quantity if their coefficient ratios agree to this many digits."""

TIE = 1e-9
"""Coefficients that differ by at most this part are equally large."""

SafetyMethod = Literal["leaves", "forms", "pieces"]
"""How confidence bounds are combined.

`leaves`
    Bound every rate of a goal, as in the tutorial of the Seldonian Toolkit: the intervals are
    propagated up the tree, and delta is divided among all sides that the tree needs.
`forms`
    Like `leaves`, but an affine combination of rates is bounded as a whole where that is sound:
    rates of disjoint groups (a difference of two means), or means over the same rows.
`pieces`
    Like `forms`, and each part of a maximum that must be at most 0 is tested at the whole delta.
    All of them must pass. If the goal is violated, so is one of its parts, which passes by mistake
    with a probability of at most delta (intersection-union test, Berger 1982).
"""


@dataclass(frozen=True)
class SafetyTestSpec:
    """The safety test that a candidate has to pass.

    Attributes
    ----------
    delta
        Error probability for each constraint, by its name, in (0, 1).
    bound
        The name of a confidence bound (`certify.bounds.BOUNDS`), or `auto`.
    method
        How bounds are combined: `leaves`, `forms` or `pieces`.
    rows
        The number of rows of the test, over all data sets.
    at_random
        Whether the rows are a simple random sample; no bound is exact otherwise. After
        stratification, groups (or pooled data sets) have the same shares among the test rows as
        among the candidate rows, so that means over several groups have the same error on both. The
        last rows of a file are representative only if the file is in random order.
    joint
        If a user may choose among the models that passed, the number of algorithms that are tested
        on the same rows, among which delta has been divided; else 0.
    """

    delta: Mapping[str, float]
    rows: int
    bound: str = "auto"
    method: SafetyMethod = "pieces"
    at_random: bool = True
    joint: int = 0


@dataclass(frozen=True)
class OneSidedBound:
    """A one-sided bound on a quantity for one tree: upper (sign 1) or lower (sign -1)."""

    quantity: int
    sign: int
    delta: float
    tree: int = 0


@dataclass(frozen=True)
class GoalTestPlan:
    """The confidence bounds that a safety test of a goal needs, and how to combine them.

    Attributes
    ----------
    quantities
        What is bounded: affine combinations of rates with constant 0.
    trees
        P expressions; the goal holds if all of them are at most 0. There is one tree, except with
        the method `pieces`.
    bounds
        B one-sided bounds. The deltas of one tree's bounds add up to at most the constraint's
        delta.
    rows
        Affine parts of the trees as functions of the quantities, by their `row_key`.
    needs_end
        Whether the bound needs a known end of the range of measurements.
    """

    goal: Goal
    quantities: tuple[Affine, ...]
    trees: tuple[Expression, ...]
    bounds: tuple[OneSidedBound, ...]
    rows: Mapping[RowKey, Row] = field(repr=False)
    needs_end: bool = True

    def parts(self, rates: RateMatrix, label_range: Interval) -> tuple[tuple[FormRows, ...], ...]:
        """Return the independent parts of every quantity on given rows.

        Raises the same errors as `forms.independent_parts`.
        """
        signs = self._signs
        return tuple(
            tuple(
                part.one_sided(signs[k] if self.needs_end else ())
                for part in independent_parts(form, rates, label_range)
            )
            for k, form in enumerate(self.quantities)
        )

    def samples(self, rows: MeasuredRows) -> list[list[BoundedSample]]:
        """Return the sample of every part of every quantity."""
        quantities = self.parts(rows.rates, rows.label_range)
        return [[part.measured(rows.measurements) for part in parts] for parts in quantities]

    def choose_bounds(self, name: str, samples: Sequence[Sequence[BoundedSample]]) -> list[Bound]:
        """Return the bound of every quantity that `choose_bound` chooses for its needed sides."""
        return [choose_bound(name, *each) for each in zip(samples, self._signs, strict=True)]

    def function(self, node: Expression) -> RateFunction:
        """Return a node as a function of the quantities.

        Raises KeyError for a node with other affine parts than the trees.
        """
        found, leaves = compile_by_rates(node)
        rows = tuple(self.rows[row_key(row, leaves)] for row in found.rows)
        return replace(found, rows=rows, inputs=len(self.quantities))

    def intervals(self, tree: int, limits: Array) -> list[Interval]:
        """Return the interval of each quantity for a tree; an end without a limit is its range's.

        `limits` (B,) are the confidence limits of `bounds`, each upper or lower by its sign.
        """
        ends = [[low, high] for low, high in self._ranges]
        for b, bound in self._by_tree[tree]:
            ends[bound.quantity][bound.sign > 0] = float(limits[b])
        return [(low, high) for low, high in ends]

    def upper(
        self, limits: Array, nodes: Sequence[tuple[int, RateFunction]] = ()
    ) -> tuple[Array, Array]:
        """Return the upper end of each tree (P,) and its slopes in the limits (P, B).

        Or those of other `nodes`, each with its tree.
        """
        nodes = nodes or self._roots
        ends, slopes = np.zeros(len(nodes)), np.zeros((len(nodes), len(limits)))
        for p, (tree, function) in enumerate(nodes):
            ends[p], by_end = function.upper(self.intervals(tree, limits))
            for b, bound in self._by_tree[tree]:
                slopes[p, b] = by_end[bound.quantity, int(bound.sign > 0)]
        return ends, slopes

    def needed_bounds(self) -> Iterator[OneSidedBound]:
        """Yield the bounds that upper ends of trees depend on, sharing the delta of their tree."""
        for tree, function in self._roots:
            ends = function.needed_ends(self._ranges)
            own = [each for _, each in self._by_tree[tree] if (each.quantity, each.sign) in ends]
            yield from (replace(bound, delta=bound.delta / len(own)) for bound in own)

    @cached_property
    def _signs(self) -> list[set[int]]:
        """The signs of the bounds that each quantity needs."""
        signs = [set[int]() for _ in self.quantities]
        for each in self.bounds:
            signs[each.quantity].add(each.sign)
        return signs

    @cached_property
    def _roots(self) -> Sequence[tuple[int, RateFunction]]:
        return [(tree, self.function(node)) for tree, node in enumerate(self.trees)]

    @cached_property
    def _by_tree(self) -> Sequence[Sequence[tuple[int, OneSidedBound]]]:
        """The bounds of each tree, with their indices."""
        numbered = list(enumerate(self.bounds))
        return [[each for each in numbered if each[1].tree == p] for p in range(len(self.trees))]

    @cached_property
    def _ranges(self) -> Sequence[Interval]:
        return [form.range() for form in self.quantities]


def plan_goal_test(
    goal: Goal, safety: SafetyTestSpec, rates: RateMatrix, candidate: RateMatrix | None = None
) -> GoalTestPlan:
    """Return the bounds that a goal needs, dividing the delta of each tree equally among them.

    Parameters
    ----------
    rates
        Rates on the tested rows (or similar rows), which determine which rates have a joint bound.
    candidate
        Rates on at least as many other rows, which must agree. Two groups may have a share r of all
        rows in common although they have none in common among the n tested rows. If such groups are
        treated as disjoint, a violated goal passes with a probability of at most (1 + r)^n delta,
        because the likelihood of the rows is at most that factor times the likelihood of n rows of
        disjoint groups with these rates. The probability that m other rows show no common row
        either is (1 - r)^m, and the product is at most delta if m >= n.

    Raises
    ------
    FaultError
        E308 if the goal contains a metric without a known bound; E411 for weighted rows.
    """
    for part in ex.walk(goal.expression):
        if isinstance(part, ex.RankingMeasure | ex.Disclosure | ex.AlgorithmMetric):
            message = f"no confidence bound is known for '{ex.to_text(part)}' in '{goal.name}'"
            help_ = "use rates, or turn the test off: 'safety: false'"
            raise FaultError(Diagnostic("E308", message, help_, part.span))
    parts = goal.pieces if safety.method == "pieces" else [compare_in_pairs(goal.expression)]
    trees = tuple(dict.fromkeys(parts))
    known = [rates] if candidate is None else [rates, candidate]
    quantities = _Quantities(safety.method, known)
    delta = safety.delta[goal.name]
    every = tuple(
        OneSidedBound(k, sign, delta, p)
        for p, tree in enumerate(trees)
        for k in sorted(quantities.collect(tree))
        for sign in (1, -1)
    )
    needed = safety.bound not in BOUNDS or BOUNDS[safety.bound].needs != "none"
    whole = GoalTestPlan(goal, tuple(quantities.forms), trees, every, quantities.rows, needed)
    return replace(whole, bounds=tuple(whole.needed_bounds()))


RowKey = frozenset[tuple[Leaf | None, float]]
"""The coefficients of rates, and the constant as that of None."""


def compile_by_rates(node: Expression) -> tuple[RateFunction, list[Leaf]]:
    """Return a tree as a function of its rates, in which each affine part is one row."""
    leaves = ex.leaves(node)
    return RateFunction.of([node], {leaf: k for k, leaf in enumerate(leaves)}), leaves


def row_key(row: Row, leaves: Sequence[Leaf]) -> RowKey:
    """Return what equal rows have in common, whatever the numbers of their rates."""
    return frozenset((leaves[k] if k >= 0 else None, c) for k, c in row.items() if c)


@dataclass
class _Quantities:
    """Collects the quantities of trees, and the affine parts that they bound.

    Rates or affine forms (by the method) are quantities if they have a joint bound by each of the
    `rates`.
    """

    method: SafetyMethod
    rates: Sequence[RateMatrix]
    forms: list[Affine] = field(default_factory=list)
    rows: dict[RowKey, Row] = field(default_factory=dict)
    _known: dict[frozenset[tuple[Leaf, float]], int] = field(default_factory=dict)

    def collect(self, tree: Expression) -> set[int]:
        """Add the quantities of a tree, and return their indices."""
        function, leaves = compile_by_rates(tree)
        found = set[int]()
        for row in function.rows:
            own = {leaves[k]: c for k, c in row.items() if k >= 0 and c}
            parts = [own] if self._is_whole(Affine(own)) else [{x: c} for x, c in own.items()]
            bounded = dict(map(self._add, filter(None, parts)))
            found |= bounded.keys()
            constant = {CONSTANT: row[CONSTANT]} if row.get(CONSTANT) else {}
            self.rows[row_key(row, leaves)] = bounded | constant
        return found

    def _is_whole(self, form: Affine) -> bool:
        if self.method == "leaves":
            return len(form.coefficients) <= 1
        return all(disjoint_groups(form, rates) is not None for rates in self.rates)

    def _add(self, coefficients: Mapping[Leaf, float]) -> tuple[int, float]:
        """Return the index of a form's quantity, and its factor; multiples of a form share one."""
        largest = (1 - TIE) * max(map(abs, coefficients.values()))
        first = max((leaf for leaf, c in coefficients.items() if abs(c) >= largest), key=str)
        unit = coefficients[first]
        key = frozenset(
            (leaf, float(f"{value / unit:.{RATIO_DIGITS}g}"))
            for leaf, value in coefficients.items()
        )
        if key not in self._known:
            self._known[key] = len(self.forms)
            self.forms.append(Affine(dict(coefficients) if len(key) > 1 else {first: 1.0}))
        k = self._known[key]
        return k, unit / self.forms[k].coefficients[first]


TreeRecord = dict[str, Any]


def json_number(value: float) -> float | str:
    """Return a finite number as it is and any other as its name, since JSON cannot express it."""
    return float(value) if math.isfinite(value) else str(float(value))


def record_tree(plan: GoalTestPlan, limits: Array, quantities: Sequence[TreeRecord]) -> TreeRecord:
    """Return the record of a tested goal from which reports draw its tree.

    Several trees are recorded as parts of a maximum. Each node has its interval at the confidence
    limits (B,). `quantities` are the value of each quantity on the tested rows ("estimate"), the
    number of rows of each of its parts ("rows"), and the name of its confidence bound ("bound").
    """

    def record(tree: int, function: RateFunction) -> TreeRecord:
        intervals = plan.intervals(tree, limits)
        ends = [(low.value, high.value) for low, high in function.ends(intervals)]

        def quantity(k: int) -> TreeRecord:
            """Return the record of a quantity, with the delta of each end that has a bound."""
            deltas = list[float | None]([None, None])
            for bound in plan.bounds:
                if (bound.tree, bound.quantity) == (tree, k):
                    deltas[bound.sign > 0] = bound.delta
            text = ex.to_text(plan.quantities[k].expression())
            return _record(text, intervals[k]) | quantities[k] | {"delta": deltas}

        def step(number: int) -> TreeRecord:
            if number >= len(function.rows):
                name, inside = function.steps[number - len(function.rows)]
                return _record(ex.SIGNS.get(name, name), ends[number], *map(step, inside))
            row = function.rows[number]
            children = [quantity(k) for k in row if k >= 0]
            if list(row.values()) == [1.0] and children:
                return children[0]
            forms = (plan.quantities[k] * factor for k, factor in row.items() if k >= 0)
            form = sum(forms, Affine({}, row.get(CONSTANT, 0.0)))
            return _record(ex.to_text(form.expression()), ends[number], *children)

        return step(int(function.roots[0]))

    nodes = [record(tree, plan.function(node)) for tree, node in enumerate(plan.trees)]
    if len(nodes) == 1:
        return nodes[0]
    low, high = np.array([node["interval"] for node in nodes], dtype=float).max(axis=0)
    return _record("max", (low, high), *nodes)


def _record(text: str, interval: Interval, *children: TreeRecord) -> TreeRecord:
    return {"text": text, "interval": list(map(json_number, interval)), "children": list(children)}
