"""What is told of a filter and of the rows that it kept, to people and as a file."""

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
"""By column the group of each row, a word."""
GroupShares = Mapping[str, Mapping[str, float]]
"""By column the share of each of its groups."""
SPLIT_TITLES = {"train": "training rows", "test": "held-out rows"}
FILE_DIGITS = 10
"""Of a number in the file."""


@dataclass(frozen=True)
class ExpectedSplit:
    """What a filter is expected to do with the rows of a split.

    Attributes
    ----------
    rows
        How many there are.
    kept
        The share of them that is expected to be kept.
    disclosivity
        By how much what it says of a row shifts the chance of a group at most.
    before, after
        Shares among these rows, and among those that are expected to be kept: None if none are.
    """

    rows: int
    kept: float
    disclosivity: float
    before: GroupShares
    after: GroupShares | None


@dataclass(frozen=True)
class FilterReport:
    """A filter on the rows of a table.

    Attributes
    ----------
    limit
        What was asked of its disclosivity.
    features
        The columns that it looks at.
    parts
        What it is expected to do on each split that has rows.
    rows, kept
        How many there are, and how many of them were drawn to be kept.
    sample
        Shares among those.
    """

    limit: float
    features: tuple[str, ...]
    parts: Mapping[str, ExpectedSplit]
    rows: int
    kept: int
    sample: GroupShares

    def as_json(self, asked: Mapping[str, Any]) -> str:
        """A file's text, what was `asked` for first."""
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
        """Heads and rows: each group's share, imbalance, the share kept, and disclosivity."""
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
    """Of the main variant of a filter's trial, and of rows of which it `kept` some, (n,), in `groups`."""
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
    """The distance from equal shares, of several columns that of all their shares together."""
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
