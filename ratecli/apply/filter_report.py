"""The report about a filter and the rows it kept, as a table and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.ledger.records import FILTERS_KEY, PlannedTrial, TrialResult

GroupColumns = Mapping[str, pd.Series]
"""The group of each row, by column."""
GroupShares = Mapping[str, Mapping[str, float]]
"""The share of each group, by column."""
SPLIT_TITLES = {"train": "training rows", "test": "held-out rows"}
FILE_DIGITS = 10
"""Decimal places of numbers in the JSON file."""


@dataclass(frozen=True)
class ExpectedSplit:
    """What a filter is expected to do with the rows of a split.

    Attributes
    ----------
    rows
        Number of rows.
    kept
        Share of the rows expected to be kept.
    disclosivity
        Maximum change in the probability of a group caused by the filter's output for a row.
    before, after
        Shares of the groups among these rows, and among the rows expected to be kept (None if
        none).
    """

    rows: int
    kept: float
    disclosivity: float
    before: GroupShares
    after: GroupShares | None


@dataclass(frozen=True)
class FilterReport:
    """A filter and its effect on the rows of a table.

    Attributes
    ----------
    limit
        The allowed disclosivity.
    features
        The columns that the filter uses.
    parts
        The expected effect on each split that has rows.
    rows, kept
        Number of rows in the table, and number of rows kept.
    sample
        Shares of the groups among the kept rows.
    """

    limit: float
    features: tuple[str, ...]
    parts: Mapping[str, ExpectedSplit]
    rows: int
    kept: int
    sample: GroupShares

    def as_json(self, asked: Mapping[str, Any]) -> str:
        """Return the report as JSON text, with the entries of `asked` (the request) first."""
        parts = {
            name: {
                "rows": part.rows,
                "kept": _round_share(part.kept),
                "disclosivity": _round_share(part.disclosivity),
                "before": _shares_as_json(part.before),
                "after": part.after and _shares_as_json(part.after),
            }
            for name, part in self.parts.items()
        }
        sample = {"rows": self.kept, "kept": _round_share(self.kept / self.rows)}
        content = {
            **asked,
            "limit": self.limit,
            "features": list(self.features),
            "expected": parts,
            "sample": sample | _shares_as_json(self.sample),
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    def table(self) -> list[list[str]]:
        """Return header and rows of the report's table.

        The rows are each group's share, the imbalance, the share kept, and the disclosivity.
        """
        heads, columns = [""], list[list[str]]()
        for name, part in self.parts.items():
            heads += [SPLIT_TITLES[name] if len(self.parts) > 1 else "all rows", "expected"]
            columns.append([*_share_cells(part.before), "", ""])
            after = [""] * len(columns[-1][:-2]) if part.after is None else _share_cells(part.after)
            columns.append([*after, f"{part.kept:.4f}", f"{part.disclosivity:.4f}"])
        heads.append("drawn")
        columns.append([*_share_cells(self.sample), f"{self.kept / self.rows:.4f}", ""])
        names = [f"{name} = {group}" for name, groups in self.sample.items() for group in groups]
        firsts = [*names, "imbalance", "kept", f"disclosivity, at most {self.limit:g}"]
        return [heads, *(list(row) for row in zip(firsts, *columns, strict=True))]


def filter_report_of(
    planned: PlannedTrial,
    result: TrialResult,
    limit: float,
    groups: GroupColumns,
    kept: NDArray[np.bool_],
) -> FilterReport:
    """Report on the main variant of a filter's trial; `kept` (n,) marks the rows it kept."""
    variant = next(iter(result.models))
    columns = result.info[FILTERS_KEY][variant]["columns"]
    numbers = {
        (value.split, value.metric): value.value
        for value in result.values
        if value.variant == variant
    }
    parts = {
        split: ExpectedSplit(
            rows=rows,
            kept=numbers[split, planned.metrics["kept"]],
            disclosivity=numbers[split, planned.metrics["disclosivity"]],
            before={name: _shares(found, split, "base") for name, found in columns.items()},
            after=None
            if any(found["splits"][split]["after"] is None for found in columns.values())
            else {name: _shares(found, split, "after") for name, found in columns.items()},
        )
        for split, rows in result.info["rows"].items()
    }
    drawn = {
        name: {group: float((groups[name][kept] == group).mean()) for group in found["groups"]}
        for name, found in columns.items()
    }
    features = tuple(block["column"] for block in json.loads(result.encoding)["blocks"])
    return FilterReport(limit, features, parts, len(kept), int(kept.sum()), drawn)


def _shares(found: Mapping[str, Any], split: str, which: str) -> dict[str, float]:
    return dict(zip(found["groups"], found["splits"][split][which], strict=True))


def imbalance(shares: GroupShares) -> float:
    """Return the Euclidean distance of all shares, over all columns, from equal shares."""
    return math.sqrt(
        sum((share - 1 / len(each)) ** 2 for each in shares.values() for share in each.values())
    )


def _shares_as_json(shares: GroupShares) -> dict[str, Any]:
    listed = {
        name: {g: _round_share(share) for g, share in each.items()} for name, each in shares.items()
    }
    return {"imbalance": _round_share(imbalance(shares)), "shares": listed}


def _share_cells(shares: GroupShares) -> list[str]:
    every = [share for each in shares.values() for share in each.values()]
    return [f"{value:.4f}" for value in (*every, imbalance(shares))]


def _round_share(value: float) -> float:
    return round(value, FILE_DIGITS)
