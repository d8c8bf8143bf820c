"""The parts of a page that are run or compared: fenced blocks, tables and pictures, with what is said of them.

What is said stands in a comment before a part:

    <!-- slow: trains for a minute -->        run by `make test-slow` only
    <!-- not run: needs a second machine -->  never run
    <!-- instead: COMMAND -->                 what the tests run in its place
    <!-- needs: mirror -->                    skipped without a mirror of the data, or without these modules
    <!-- exits: 2 -->                         the command ends with this code
    <!-- from: results/x/summary.md -->       a table, text or picture of this file; `table: 2` is the second
                                              table in it, `where: REGEX` keeps rows that fit
and for a whole page, in the same form: `page slow`; `page needs`; `page apart`, whose
commands are processes of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
"""Packages and files that have tests of their own."""
GENERATED = "<!-- Written by docs/generate.py"
SAID = re.compile(
    r"^<!-- (page )?(slow|not run|instead|exits|from|table|where|needs|apart): (.*?) -->$"
)
FENCE = re.compile(r"^```([a-z]*)(.*)$")
PICTURE = re.compile(r"^!\[[^\]]*\]\(([^)]+)\)")


@dataclass
class Part:
    """Lines `start` to `end` (exclusive, from 0) of a page.

    `kind` is a fence's language, `table` or `picture`; `lines` are those inside a fence, or the part's own.
    """

    kind: str
    start: int
    end: int
    lines: list[str]
    said: dict[str, str] = field(default_factory=dict)

    @property
    def picture(self) -> str:
        found = PICTURE.match(self.lines[0])
        assert found is not None
        return found[1]


@dataclass
class Page:
    """A Markdown file, its parts in order, and what is said of the whole of it."""

    path: Path
    lines: list[str]
    parts: list[Part]
    said: dict[str, str]

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))


def read(path: Path) -> Page:
    """The page of a file. Raises ValueError for a comment before nothing, or a fence that is not closed."""
    lines = path.read_text("utf-8").split("\n")
    parts: list[Part] = []
    whole: dict[str, str] = {}
    waiting: dict[str, str] = {}
    at = 0
    while at < len(lines):
        said, part = SAID.match(lines[at]), _part(lines, at)
        if said:
            (whole if said[1] else waiting)[said[2]] = said[3]
        elif lines[at].startswith("<!-- page "):
            message = f"{path}:{at + 1}: not a comment of the form <!-- page KEY: reason -->"
            raise ValueError(message)
        elif part is not None:
            part.said, waiting = waiting, {}
            parts.append(part)
            at = part.end
            continue
        elif lines[at].strip() and waiting:
            message = f"{path}:{at + 1}: {waiting} is said of no block, table or picture"
            raise ValueError(message)
        at += 1
    return Page(path, lines, parts, whole)


def _part(lines: list[str], at: int) -> Part | None:
    if fence := FENCE.match(lines[at]):
        end = next((k for k in range(at + 1, len(lines)) if lines[k] == "```"), None)
        if end is None:
            message = f"line {at + 1}: a fence that is not closed"
            raise ValueError(message)
        return Part(fence[1], at, end + 1, lines[at + 1 : end])
    if lines[at].startswith("|"):
        end = next((k for k in range(at, len(lines)) if not lines[k].startswith("|")), len(lines))
        return Part("table", at, end, lines[at:end])
    if PICTURE.match(lines[at]):
        return Part("picture", at, at + 1, [lines[at]])
    return None


def all_pages() -> list[Page]:
    """README and all pages of the documents that people write, sorted by path."""
    readme = [ROOT / "README.md"]
    found = sorted(path for path in DOCS.rglob("*.md") if EXAMPLES not in path.parents)
    found = [path for path in found if not path.read_text("utf-8").startswith(GENERATED)]
    return [read(path) for path in (*readme, *found)]
