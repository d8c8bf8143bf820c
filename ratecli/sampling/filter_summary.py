"""Who the values of a filter's proxy are, and whom it keeps: what plots of filters show.

Groups are told by columns that the goals name (`imbalance(by=job)`); what is counted goes into
`TrialResult.info` as JSON, beside the trial's numbers, and is no part of its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ratecli.ledger.records import FILTERS_KEY
from ratecli.models.base import Classifier
from ratecli.models.proxies import ProxyFilter
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import JOINT_RATE
from ratecli.rates.matrix import MIN_PROXY_SHARE, Predictions
from ratecli.rates.sample import Floats, Sample
from ratecli.rates.syntax import Condition, number_text

SUMMARY_DIGITS = 10
"""That are kept of a share."""

GroupConditions = dict[str, dict[str, Condition]]
"""By column the names of its groups, in the order of its values, and what tells each."""


def census(
    goals: Iterable[Goal],
    sample: Sample,
    splits: Iterable[str],
    variants: Mapping[str, Classifier],
    answers: Mapping[str, Predictions],
) -> dict[str, Any]:
    """What is told of every variant that is a filter, by its name; nothing of other classifiers.

    `answers` are what the variants say of all rows. Of L values of a proxy and K groups of a column,
    on the rows of a split that have a group there:

    - `keep` (L,): the chance that a value is kept, the same on every split;
    - `groups` (K,): their names; `base` (K,): their shares among these rows;
    - `size` (L,): the share of each value; `posterior` (L, K): the share of each group among the rows of
      which it is said, None where it is said of none;
    - `after` (K,): the shares of the groups among the rows that are expected to be kept, None where
      none are.
    """
    named, splits = joint_rate_groups(goals), tuple(splits)
    found = {
        name: {
            "keep": _round_values(variant.keep),
            "columns": {
                column: {"groups": list(told), "splits": _summary_by_split(told, sample, splits, answers[name])}
                for column, told in named.items()
            },
        }
        for name, variant in variants.items()
        if isinstance(variant, ProxyFilter) and named
    }  # fmt: skip
    return {FILTERS_KEY: found} if found else {}


def joint_rate_groups(goals: Iterable[Goal]) -> GroupConditions:
    """The groups of which goals speak by `joint_rate`, each told by one condition on a column."""
    found: GroupConditions = {}
    for leaf in ex.leaves(*(goal.expression for goal in goals)):
        if leaf.rate == JOINT_RATE and len(leaf.where.conditions) == 1:
            (condition,) = leaf.where.conditions
            found.setdefault(condition.column, {})[_group_name(condition)] = condition
    return found


def _group_name(condition: Condition) -> str:
    """The value that tells the group, if it is one, else the whole condition."""
    if condition.op != "=" or len(condition.values) != 1:
        return str(condition)
    (value,) = condition.values
    return value if isinstance(value, str) else number_text(value)


def _summary_by_split(
    told: Mapping[str, Condition], sample: Sample, splits: Iterable[str], said: Predictions
) -> dict[str, Any]:
    """What is counted on each split that has a row of any of the groups."""
    members = np.stack(
        [sample.rows(ex.Slice.of((), [each])) for each in told.values()], axis=1
    ).astype(float)
    known = members.any(axis=1)
    found = {}
    for split in splits:
        rows = known & sample.rows(ex.ALL_ROWS, split)
        weight = sample.weight[rows]
        if weight.sum() > 0:
            share = weight / weight.sum()
            found[split] = _count_groups(
                members[rows], share, said.proxy[rows], said.decisions[rows]
            )
    return found


def _count_groups(members: Floats, share: Floats, proxy: Floats, kept: Floats) -> dict[str, Any]:
    """Of rows with weights (n,) that add up to 1, in groups (n, K): `proxy` (n, L), `kept` (n,)."""
    size = share @ proxy
    both = (proxy * share[:, None]).T @ members
    chosen = share * kept
    return {
        "base": _round_values(share @ members),
        "size": _round_values(size),
        "posterior": [
            _round_values(row / mass) if mass > MIN_PROXY_SHARE else None
            for row, mass in zip(both, size, strict=True)
        ],
        "after": _round_values(chosen @ members / chosen.sum()) if chosen.sum() > 0 else None,
    }


def _round_values(values: Floats) -> list[float]:
    return [round(float(value), SUMMARY_DIGITS) for value in values]
