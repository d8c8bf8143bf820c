"""Whether printed text says the same: numbers to the digits that are shown, times whatever they are.

`...` on a line of its own stands for any lines, within a line for any text.
"""

from __future__ import annotations

import re

NUMBER = r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
TIME = r"\d+(?:\.\d+)? ?(?:ms|s|min|h)\b(?: \d+ s\b)?"
PIECE = re.compile(
    rf"(?P<dots>\.\.\.)|(?P<time>(?<![\w.]){TIME})|(?P<number>(?<![\w.]){NUMBER}(?![\w]))"
    r"|(?P<rule>-{2,}:?)|(?P<space>\s+)"
)
ANY = "..."
ROUNDING = 1e-5
"""Smaller numbers are what is left of a 0."""
ARITHMETIC = 1e-9
"""Relative difference that another processor may make."""


def same(shown: list[str], printed: list[str]) -> bool:
    """Whether the lines that are shown are those printed."""
    shown, printed = _stripped(shown), _stripped(printed)
    if not shown:
        return not printed
    if shown[0].strip() == ANY:
        return any(same(shown[1:], printed[k:]) for k in range(len(printed) + 1))
    return bool(printed) and same_line(shown[0], printed[0]) and same(shown[1:], printed[1:])


def same_line(shown: str, printed: str) -> bool:
    """Whether one line says the same as another."""
    pattern, numbers = _pattern(shown.rstrip())
    found = re.fullmatch(pattern, printed.rstrip())
    return found is not None and all(map(_near, numbers, found.groups()))


def _stripped(lines: list[str]) -> list[str]:
    return [line for line in lines if line.strip()]


def _pattern(line: str) -> tuple[str, list[str]]:
    """A pattern with a group for each number, and the numbers."""
    made, numbers, at = "", [], 0
    for piece in PIECE.finditer(line):
        made += re.escape(line[at : piece.start()])
        at = piece.end()
        match piece.lastgroup:
            case "dots":
                made += ".*?"
            case "time":
                made += TIME
            case "number":
                made += f"({NUMBER})"
                numbers.append(piece[0])
            case "rule":
                made += "-+:?"
            case _:
                made += r"\s+"
    return made + re.escape(line[at:]), numbers


def _near(shown: str, printed: str) -> bool:
    """Whether numbers are equal, or have decimals and differ by at most one in the last digit shown.

    Differences of rounding are ignored.
    """
    if shown == printed or max(abs(float(shown)), abs(float(printed))) < ROUNDING:
        return True
    mantissa, _, exponent = shown.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    if not decimals:
        return False
    unit = 10.0 ** (int(exponent or 0) - decimals)
    allowed = max(1.01 * unit, ARITHMETIC * abs(float(shown)))
    return abs(float(shown) - float(printed)) <= allowed
