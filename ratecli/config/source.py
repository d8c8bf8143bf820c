"""A text that values were read from, and the places in it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from ratecli.errors import SourceLocation


@dataclass(frozen=True)
class SourceText:
    """A file, or the text of one `--set` override; offsets count characters."""

    file: str
    text: str

    @cached_property
    def _lines(self) -> list[str]:
        # splitlines and YAML agree on line breaks once control characters are refused
        return [*self.text.splitlines(keepends=True), ""]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(line) for line in self._lines[:-1])]

    @cached_property
    def _texts(self) -> list[str]:
        # kept, so that thousands of faults on one long line share its text
        return [line.rstrip("\r\n\x85\u2028\u2029") for line in self._lines]

    def line(self, number: int) -> str:
        """The text of a line, counted from 0, without its break."""
        return self._texts[number]

    def offset(self, line: int, column: int) -> int:
        return self._starts[line] + column

    def line_of(self, offset: int) -> int:
        return bisect_right(self._starts, offset) - 1

    def place(self, start: int, end: int) -> SourceLocation:
        """The stretch from `start` to `end`, cut where its first line ends; never empty."""
        number = self.line_of(start)
        excerpt, column = self.line(number), start - self._starts[number]
        width = max(1, min(end - start, len(excerpt) - column))
        return SourceLocation(self.file, number + 1, column + 1, width, excerpt)

    @property
    def last(self) -> int:
        """The offset just behind the last character that is not blank."""
        return len(self.text.rstrip())
