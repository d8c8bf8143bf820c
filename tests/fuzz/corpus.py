"""What mutations start from: shipped experiments, starter files, small files of all kinds, rules."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "cli")]

from broken_files import BROKEN, TABLES  # noqa: E402  it is among the tests of commands
from marked import marked  # noqa: E402

__all__ = ["TABLES", "files", "rules", "words"]
LONGEST = 8


@cache
def files() -> tuple[str, ...]:
    """Return texts of YAML files with short sweeps, so that a file is read in milliseconds."""
    places = [*sorted((ROOT / "experiments").rglob("*.yaml"))]
    places += sorted((ROOT / "ratecli" / "experiment" / "starters").rglob("*.yaml"))
    shipped = [_brief(path.read_text("utf-8")) for path in places]
    small = [text for broken in BROKEN if len(text := marked(broken.text)[0]) < 2000]
    return (*shipped, *dict.fromkeys(small))


def _brief(text: str) -> str:
    """Return the same file with at most `LONGEST` values a sweep and few generated rows."""

    def shorter(space: re.Match[str]) -> str:
        return f"{space[1]}{min(int(space[2]), LONGEST)})"

    text = text.replace("source: clicks,", "source: clicks, rows: 3000,")
    return re.sub(r"((?:lin|log)space\([^)]*, *)(\d+)\)", shorter, text)


@cache
def rules() -> tuple[str, ...]:
    """Return the rules of all these files."""
    found: dict[str, None] = {}
    for text in files():
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError:
            continue
        if isinstance(data, dict):
            parts = [data.get(key) for key in ("constraints", "metrics", "groups")]
            inner = [rule for part in parts if isinstance(part, dict) for rule in part.values()]
            texts = [each for each in (data.get("objective"), *inner) if isinstance(each, str)]
            found |= dict.fromkeys(each for each in texts if len(each) < 1000)
    return tuple(found)


@cache
def words() -> tuple[str, ...]:
    """Return names and numbers that occur in the files."""
    found = (word for text in files() for word in re.findall(r"[\w.%@]+", text))
    return tuple(dict.fromkeys(found))
