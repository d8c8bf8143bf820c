"""The file that `ratecli init` writes."""

from __future__ import annotations

from pathlib import Path


def starter() -> str:
    """A commented experiment that runs offline."""
    return Path(__file__).with_name("starter.yaml").read_text(encoding="utf-8")
