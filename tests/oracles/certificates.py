"""Goals, and what they count of given rows, for safety tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratecli.certify.safety_test import Promise
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal, rule_goal
from ratecli.rates.matrix import RateMatrix, rate_matrix
from ratecli.rates.parser import parse_rule
from ratecli.rates.resolve import Scope, differences, violation
from ratecli.rates.sample import Sample

GROUPS = frozenset({"g", "h"})


@dataclass(frozen=True)
class Test:
    """Rules, and their rates on rows."""

    __test__ = False

    goals: tuple[Goal, ...]
    rates: RateMatrix

    def promise(self, delta: float = 0.05, **options: object) -> Promise:
        deltas = {goal.name: delta for goal in self.goals}
        return Promise(deltas, self.rates.members.shape[1], **options)


def rules(
    texts: Mapping[str, str] | str,
    columns: Mapping[str, NDArray[np.object_]],
    label: Array | None = None,
    weight: Array | None = None,
    deployed: Array | None = None,
) -> Test:
    """The rules of a file on arrays; a single rule is called `goal`."""
    n = len(next(iter(columns.values())))
    label = np.zeros(n) if label is None else label
    weight = np.ones(n) if weight is None else weight
    sample = Sample(columns, label, np.full(n, "d"), np.full(n, "safety"), weight, deployed)
    scope = Scope(
        values=lambda name: sorted(set(columns[name].tolist())), columns=frozenset(columns)
    )
    goals = []
    for name, text in ({"goal": texts} if isinstance(texts, str) else texts).items():
        parts = differences(parse_rule(text), scope)
        goals.append(rule_goal(name, text, parts, violation(parts)))
    leaves = ex.leaves(*(node for goal in goals for node in (goal.expression, *goal.pieces)))
    return Test(tuple(goals), rate_matrix(leaves, sample, "safety"))


def words(text: str) -> NDArray[np.object_]:
    """Letters as values of a column."""
    return np.array(list(text), dtype=object)
