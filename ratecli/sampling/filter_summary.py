"""Summaries of filters for plots: the groups behind each proxy value, and the groups that are kept.

Groups are defined by columns in the goals (`imbalance(by=job)`). Summaries are stored as JSON in
`TrialResult.info` and are not part of a trial's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ratecli.errors import Diagnostic
from ratecli.ledger.records import FILTERS_KEY
from ratecli.models.base import Classifier
from ratecli.models.proxies import ProxyFilter
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import JOINT_RATE
from ratecli.rates.matrix import MIN_PROXY_SHARE, Predictions
from ratecli.rates.sample import Floats, Sample
from ratecli.rates.syntax import Condition

SUMMARY_DIGITS = 10
"""Digits to which shares are rounded."""

MIN_KEPT_SHARE = 0.2
"""A filter that keeps a smaller share of the training rows gives a warning."""

GroupConditions = dict[str, dict[str, Condition]]
"""For each column, the names of its groups, in the order of its values, with their conditions."""


def summarize_filters(
    goals: Iterable[Goal],
    sample: Sample,
    splits: Iterable[str],
    variants: Mapping[str, Classifier],
    answers: Mapping[str, Predictions],
) -> dict[str, Any]:
    """Return the summary of every variant that is a filter, by name; empty if there is none.

    `answers` are the predictions of the variants on all rows. For a proxy with L values and a
    column with K groups, over the rows of a split that belong to one of the groups:

    - `keep` (L,): the chance that a row with a value is kept, the same on every split;
    - `groups` (K,): the names of the groups; `base` (K,): their shares;
    - `size` (L,): the share of each value; `posterior` (L, K): the share of each group among the
      rows with a value, None for a value without rows;
    - `after` (K,): the expected shares of the groups among the kept rows, None if no rows are kept.
    """
    by_column, splits = joint_rate_groups(goals), tuple(splits)
    found = {
        name: {
            "keep": _round_values(variant.keep),
            "columns": {
                column: {
                    "groups": list(groups),
                    "splits": _summary_by_split(groups, sample, splits, answers[name]),
                }
                for column, groups in by_column.items()
            },
        }
        for name, variant in variants.items()
        if isinstance(variant, ProxyFilter) and by_column
    }
    return {FILTERS_KEY: found} if found else {}


def few_kept_warning(
    kept: float, way: str, name: str = "the filter", where: str = ""
) -> list[Diagnostic]:
    """Return a W412 if a filter keeps a share `kept` below `MIN_KEPT_SHARE` of the training rows.

    `way` says how to set the least share, and `where` in which trials.
    """
    if not kept < MIN_KEPT_SHARE:
        return []
    message = f"{name} keeps only {100 * kept:.2g} % of the training rows{where}"
    hint = f"{way} keeps more rows, in groups that may be less balanced"
    return [Diagnostic("W412", message, hint)]


def joint_rate_groups(goals: Iterable[Goal]) -> GroupConditions:
    """Return the groups in `joint_rate` terms of the goals that have one condition on a column."""
    found: GroupConditions = {}
    for leaf in ex.leaves(*(goal.expression for goal in goals)):
        if leaf.rate == JOINT_RATE and len(leaf.where.atoms) == 1:
            (condition,) = leaf.where.atoms
            found.setdefault(condition.column, {})[_group_name(condition)] = condition
    return found


def _group_name(condition: Condition) -> str:
    """Return the value that defines the group if there is just one, else the whole condition."""
    if condition.op != "=" or len(condition.values) != 1:
        return str(condition)
    (value,) = condition.values
    return str(value)


def _summary_by_split(
    groups: Mapping[str, Condition], sample: Sample, splits: Iterable[str], predictions: Predictions
) -> dict[str, Any]:
    """Summarize each split that has a row of any of the groups."""
    members = np.stack(
        [sample.rows(ex.Slice.of((), [each])) for each in groups.values()], axis=1
    ).astype(float)
    known = members.any(axis=1)
    found = {}
    for split in splits:
        rows = known & sample.rows(ex.ALL_ROWS, split)
        weight = sample.weight[rows]
        if weight.sum() > 0:
            share = weight / weight.sum()
            found[split] = _count_groups(
                members[rows], share, predictions.proxy[rows], predictions.decisions[rows]
            )
    return found


def _count_groups(members: Floats, share: Floats, proxy: Floats, kept: Floats) -> dict[str, Any]:
    """Summarize rows in groups (n, K), with weights `share` (n,) that add up to 1.

    `proxy` is (n, L), `kept` is (n,).
    """
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
