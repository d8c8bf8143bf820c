"""Formatting of names and counts in the notes that `ratecli init` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def format_counts(rows: Mapping[Any, int]) -> str:
    return ", ".join(f"{quoted(name)} ({format_rows(count)})" for name, count in rows.items())


def format_rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


def quoted(value: Any) -> str:
    """Quote a column or value for a message, on one line."""
    return json.dumps(str(value), ensure_ascii=False)
