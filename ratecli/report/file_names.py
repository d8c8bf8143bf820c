"""File names of report outputs."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any


def unique_file_name(wish: str, taken: Container[str] = ()) -> str:
    """Return a safe file name without suffix that is not in `taken`."""
    clean = re.sub(r"[^A-Za-z0-9._=+-]+", "-", wish).lstrip(".") or "unnamed"
    found, count = clean, 1
    while found in taken:
        count += 1
        found = f"{clean}-{count}"
    return found


def plot_file_name(asked: Sequence[Mapping[str, Any]], position: int) -> str:
    """Return the file name of one of the requested plots; no two plots share a name."""
    names: list[str] = []
    for plot in asked[: position + 1]:
        axes = [plot[axis] for axis in ("x", "y") if axis in plot]
        wish = plot.get("file") or "-".join([plot.get("kind", "tradeoff"), *axes])
        names.append(unique_file_name(wish, names))
    return names[-1]
