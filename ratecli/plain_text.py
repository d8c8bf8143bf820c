"""Text from files made harmless to a terminal."""

from __future__ import annotations

import json
import unicodedata

UNPRINTABLE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of what moves a cursor, colours, or turns the direction of a line."""


def terminal_safe(text: str) -> str:
    """Text from files as a terminal may have it: no escape codes, no marks of direction."""
    return "".join("\ufffd" if _is_unprintable(character) else character for character in text)


def _is_unprintable(character: str) -> bool:
    return unicodedata.category(character) in UNPRINTABLE_CATEGORIES and character not in "\n\t"


def terminal_safe_json(value: object) -> str:
    """Indented, in Unicode but for what a terminal would take for orders."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(
        json.dumps(character)[1:-1] if _is_unprintable(character) else character
        for character in text
    )
