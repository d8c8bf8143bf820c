"""Formatting of names and counts in starter files and in the notes that `ratecli init` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_COUNTS = 12
"""Number of values with their rows that are listed."""


def format_counts(rows: Mapping[Any, int]) -> str:
    """List the first values with their numbers of rows, and say how many were left out."""
    some = list(rows.items())[:MAX_COUNTS]
    shown = [f"{quoted(name)} ({format_rows(count)})" for name, count in some]
    more = len(rows) - len(some)
    return ", ".join(shown + [f"and {more} more"] * bool(more))


def format_rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


def quoted(value: Any) -> str:
    """Quote a column or value for a message, on one line."""
    return json.dumps(str(value), ensure_ascii=False)
