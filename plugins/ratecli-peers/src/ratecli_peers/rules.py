"""Constraints as the rules about groups that other packages know."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal

from ratecli.errors import Diagnostic, FaultError
from ratecli.rates.affine import Affine
from ratecli.rates.analysis import MAX_PIECES, Goal, Shape, affine_pieces, count_affine_pieces
from ratecli.rates.expression import Leaf
from ratecli.solvers.base import Role

if TYPE_CHECKING:
    from ratecli.solvers.problem import Problem

Kind = Literal["difference", "ratio", "floor"]
SAME_DIFFERENCE = {
    "negative_rate": "positive_rate",
    "fnr": "tpr",
    "tnr": "fpr",
    "accuracy": "error",
}
"""Rates whose differences between groups are those of another rate."""
PARITIES = {
    "positive_rate": "demographic_parity",
    "tpr": "true_positive_rate_parity",
    "fpr": "false_positive_rate_parity",
    "error": "error_rate_parity",
}
"""The packages' name of equality of a rate."""
EQUALIZED_ODDS = "equalized_odds"
LEAST_RATE = 1e-3
"""Smaller rates do not count when a ratio is tightened."""
WORDS: Mapping[Kind, str] = {"difference": "difference", "ratio": "ratio", "floor": "lower limit"}


@dataclass(frozen=True)
class GroupRule:
    """A limit on a rate of groups.

    Attributes
    ----------
    kind
        `difference`: that of any two groups is at most `bound`. `ratio`: the smaller rate is at
        least `bound` times the larger one. `floor`: each group's rate is at least `bound`.
    rate
        Name of the rate, or `equalized_odds` for differences of `tpr` and of `fpr`.
    groups
        The groups' conditions as text, ascending.
    """

    kind: Kind
    rate: str
    bound: float
    groups: tuple[str, ...]

    @property
    def parity(self) -> str:
        """The packages' name of the rule."""
        return PARITIES.get(self.rate, self.rate)

    def joined(self, other: GroupRule) -> GroupRule:
        """Return the rule for the groups of another one, too, with the stricter limit."""
        strictest = min if self.kind == "difference" else max
        groups = tuple(sorted({*self.groups, *other.groups}))
        return replace(self, bound=strictest(self.bound, other.bound), groups=groups)


Largest = Callable[[Iterable[Leaf]], float]
"""Returns an estimate of the largest of some rates."""


def group_rules(goals: Sequence[Goal], largest: Largest | None = None) -> list[GroupRule]:
    """Return the rules that constraints consist of, one for each kind and rate.

    A comparison in one direction (`positive_rate[a] >= 0.8 * positive_rate[b]`) counts as the same
    limit in both: the packages know no other. With `largest`, constraints may be tightened: see
    `tightened_rules`.

    Raises
    ------
    ValueError
        If a constraint is no such rule, or has different limits for different groups.
    """
    found: dict[tuple[Kind, str], GroupRule] = {}
    for goal in goals:
        if goal.shape is not Shape.AFFINE or count_affine_pieces(goal) > MAX_PIECES:
            raise ValueError(f"'{goal.name}' does not compare a rate of groups")
        for form in affine_pieces(goal):
            rule = _rule_of(form, largest)
            if rule is None:
                what = "a difference, a ratio or a lower limit of one rate of groups"
                raise ValueError(f"'{goal.name}' is not {what}")
            known = found.setdefault((rule.kind, rule.rate), rule)
            if not (largest or math.isclose(known.bound, rule.bound, abs_tol=1e-12)):
                raise ValueError(f"'{goal.name}' has another limit than another comparison")
            found[rule.kind, rule.rate] = known.joined(rule)
    return list(found.values())


def _rule_of(form: Affine, largest: Largest | None) -> GroupRule | None:
    """Return the rule that an affine form is at most 0, None if it is none."""
    leaves, factors = [*form.coefficients], [*form.coefficients.values()]
    names = {leaf.rate.name for leaf in leaves}
    wheres = tuple(sorted(str(leaf.where.visible) for leaf in leaves if leaf.where.conditions))
    if len(names) != 1 or len({*wheres}) < len(leaves) or any(leaf.split for leaf in leaves):
        return None
    (name,) = names
    if len(leaves) == 1 and factors[0] < 0 < form.constant:
        return GroupRule("floor", name, form.constant / -factors[0], wheres)
    if len(leaves) != 2 or min(factors) > 0 or max(factors) < 0:
        return None
    high, low = max(factors), -min(factors)
    if math.isclose(high, low) and (form.constant <= 0 or largest):
        name = SAME_DIFFERENCE.get(name, name)
        return GroupRule("difference", name, -form.constant / high, wheres)
    if high < low and not form.constant:
        return GroupRule("ratio", name, high / low, wheres)
    if high < low and largest:
        added = form.constant / low / max(largest(leaves), LEAST_RATE)
        return GroupRule("ratio", name, high / low + added, wheres)
    return None


def one_rule(goals: Sequence[Goal]) -> GroupRule:
    """Return the only rule that constraints consist of; equal limits of tpr and fpr are one.

    Raises
    ------
    ValueError
        As `group_rules` does, or if there are several rules.
    """
    return _only(group_rules(goals))


def _only(rules: Sequence[GroupRule], *, tightened: bool = False) -> GroupRule:
    if len(rules) == 1:
        return rules[0]
    kinds = {(rule.kind, rule.groups, tightened or round(rule.bound, 12)) for rule in rules}
    if {rule.rate for rule in rules} == {"tpr", "fpr"} and len(kinds) == 1:
        return replace(rules[0].joined(rules[1]), rate=EQUALIZED_ODDS)
    raise ValueError(f"it takes one rule about groups, not {len(rules)} at a time")


def tightened_rules(problem: Problem) -> list[GroupRule]:
    """Return the rules of a problem whose constraints may be tightened by constant amounts.

    Packages have one limit for all groups: the strictest counts. A ratio tightened by s, `a >= k *
    b + s`, becomes one of `k + s / b`. There, b is the larger of the two rates by the last solution
    (`Problem.near`), before there is one by random decisions with the share of positive labels.

    Raises
    ------
    FaultError
        E308 if a limit is below 0 or above 1.
    """

    @cache
    def rates() -> Mapping[Leaf, float]:
        if problem.near is not None:
            decisions = problem.decisions(problem.near)
        else:
            signs, weights = problem.labels()
            decisions = 0.0 * signs + weights[signs > 0].sum()
        return dict(zip(problem.rates.leaves, problem.measured(decisions).tolist(), strict=True))

    rules = group_rules(problem.constraints, lambda each: max(map(rates().__getitem__, each)))
    for rule in rules:
        if not 0 <= rule.bound <= 1:
            message = f"no package takes {rule.bound:.3g} as limit of a {WORDS[rule.kind]}"
            raise FaultError(Diagnostic("E308", message))
    return rules


def tightened_rule(problem: Problem) -> GroupRule:
    """Return the only rule of a problem, as `one_rule` does; raise as `tightened_rules` does."""
    return _only(tightened_rules(problem), tightened=True)


class AboutGroups:
    """Base of algorithms whose constraints are rules about groups: two if `two_groups`."""

    constraints: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})
    two_groups: ClassVar[bool] = False

    @classmethod
    def refusal(cls, objective: Goal | None, constraints: Sequence[Goal]) -> str:  # noqa: ARG003
        """Return why goals are not supported, "" if they are."""
        try:
            rules = group_rules(constraints)
        except ValueError as error:
            return str(error)
        count = len({group for rule in rules for group in rule.groups})
        if rules and cls.two_groups and count != 2:
            return f"it compares two groups, not {count}"
        return ""


class GroupsOnly(AboutGroups):
    """Base of algorithms that take only the groups from the constraints."""

    role: ClassVar[Role] = "reads"
    objectives: ClassVar[frozenset[str]] = frozenset(Shape)


class KnownRules(AboutGroups):
    """Base of algorithms that minimize plain error under a rule about groups, or `several`.

    `accepts` lists the rules, as kind and rate, that the package knows.
    """

    objectives: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})
    accepts: ClassVar[tuple[tuple[Kind, str], ...]] = ()
    several: ClassVar[bool] = False

    @classmethod
    def refusal(cls, objective: Goal | None, constraints: Sequence[Goal]) -> str:
        """Return why goals are not supported, "" if they are."""
        if objective is not None and not _is_error(objective):
            return "it minimizes only error"
        why = super().refusal(objective, constraints)
        if why or not constraints:
            return why
        try:
            rules = group_rules(constraints) if cls.several else [one_rule(constraints)]
        except ValueError as error:
            return str(error)
        return next(filter(None, (unknown_rule(rule, cls.accepts) for rule in rules)), "")


def _is_error(goal: Goal) -> bool:
    (form,) = affine_pieces(goal)
    signs = {"error": 1, "accuracy": -1}
    return len(form.coefficients) == 1 and all(
        signs.get(leaf.rate.name, 0) * factor > 0 and not leaf.where.conditions
        for leaf, factor in form.coefficients.items()
    )


def unknown_rule(rule: GroupRule, accepts: Sequence[tuple[Kind, str]]) -> str:
    """Return that a rule is none of those accepted, "" if it is one."""
    if (rule.kind, rule.rate) in accepts:
        return ""
    by_kind: dict[Kind, list[str]] = {}
    for kind, rate in accepts:
        by_kind.setdefault(kind, []).append(rate)
    listed = [f"{WORDS[kind]}s of {', '.join(rates)}" for kind, rates in by_kind.items()]
    return f"it takes {'; '.join(listed)}; not a {WORDS[rule.kind]} of {rule.rate}"
