"""File names for what a report leaves."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any


def unique_file_name(wish: str, taken: Container[str] = ()) -> str:
    """A name without an ending that stays in its folder and is not taken yet."""
    clean = re.sub(r"[^A-Za-z0-9._=+-]+", "-", wish).lstrip(".") or "unnamed"
    found, count = clean, 1
    while found in taken:
        count += 1
        found = f"{clean}-{count}"
    return found


def plot_file_name(asked: Sequence[Mapping[str, Any]], position: int) -> str:
    """That of one of the plots that are asked for; two plots never share one."""
    names: list[str] = []
    for plot in asked[: position + 1]:
        axes = [plot[axis] for axis in ("x", "y") if axis in plot]
        wish = plot.get("file") or "-".join([plot.get("kind", "tradeoff"), *axes])
        names.append(unique_file_name(wish, names))
    return names[-1]
