"""File names for what a report leaves."""

from __future__ import annotations

import re
from collections.abc import Container


def file_name(wish: str, taken: Container[str] = ()) -> str:
    """A name without an ending that stays in its folder and is not taken yet."""
    clean = re.sub(r"[^A-Za-z0-9._=+-]+", "-", wish).lstrip(".") or "unnamed"
    found, count = clean, 1
    while found in taken:
        count += 1
        found = f"{clean}-{count}"
    return found
