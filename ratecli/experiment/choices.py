"""Which algorithm to choose: the table of the docs, `explain`, E308 and `init`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
CHOICES = {name: (row["use"], row["limits"]) for name, row in _TABLE.items()}
"""What each algorithm is chosen for, as the end of a sentence, and its limits.

Those that serve most purposes come first.
"""


def in_order_of_choice(algorithms: Iterable[str]) -> list[str]:
    """Sort algorithms as in `CHOICES`, those of other packages last."""
    order = list(CHOICES)
    return sorted(algorithms, key=lambda name: order.index(name) if name in order else len(order))


def use_and_limits_of(algorithm: str) -> str:
    """Return what an algorithm is chosen for, and its limits."""
    limits = f" ({CHOICES[algorithm][1]})" if algorithm in CHOICES else ""
    return use_of(algorithm) + limits


def use_of(algorithm: str) -> str:
    """Return what an algorithm is chosen for."""
    return CHOICES[algorithm][0] if algorithm in CHOICES else f"see `ratecli show {algorithm}`"
