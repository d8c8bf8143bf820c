"""What mutations start from: the shipped experiments, starter files, small files of every kind, rules."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))

from broken_files import BROKEN, TABLES, marked  # noqa: E402  it stands with the command's tests

__all__ = ["TABLES", "files", "rules", "words"]

LONGEST = 8


@cache
def files() -> tuple[str, ...]:
    """Texts of YAML files, long sweeps cut: a file is to be read in milliseconds."""
    places = [*sorted((ROOT / "experiments").rglob("*.yaml"))]
    places += sorted((ROOT / "ratecli" / "config" / "starters").rglob("*.yaml"))
    shipped = [_brief(path.read_text("utf-8")) for path in places]
    small = [text for broken in BROKEN if len(text := marked(broken.text)[0]) < 2000]
    return (*shipped, *dict.fromkeys(small))


def _brief(text: str) -> str:
    """The same file with spaces of at most `LONGEST` values and few generated rows; comments stay."""
    text = text.replace("source: clicks,", "source: clicks, rows: 3000,")
    for name in ("linspace", "logspace"):
        head, *rest = text.split(f"{name}(")
        cut = [_short(part) for part in rest]
        text = f"{name}(".join([head, *cut])
    return text


def _short(part: str) -> str:
    inside, _, after = part.partition(")")
    *ends, count = inside.split(",")
    if count.strip().isdecimal():
        inside = ",".join([*ends, f" {min(int(count), LONGEST)}"])
    return f"{inside}){after}"


@cache
def rules() -> tuple[str, ...]:
    """The rules of all these files."""
    found: dict[str, None] = {}
    for text in files():
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError:
            continue
        for part in _rules(data):
            found[part] = None
    return tuple(found)


def _rules(data: object) -> list[str]:
    if not isinstance(data, dict):
        return []
    texts = [data.get("objective")]
    for key in ("constraints", "metrics", "groups"):
        part = data.get(key)
        texts += list(part.values()) if isinstance(part, dict) else []
    return [text for text in texts if isinstance(text, str) and len(text) < 1000]


@cache
def words() -> tuple[str, ...]:
    """Names and numbers that occur in the files."""
    import re  # noqa: PLC0415

    found = (word for text in files() for word in re.findall(r"[\w.%@]+", text))
    return tuple(dict.fromkeys(found))
