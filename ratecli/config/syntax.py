"""What YAML's own parser complains about, in plain words and at the place to mend."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import yaml

from ratecli.config.source import SourceText
from ratecli.errors import Diagnostic


class SyntaxAdvice(NamedTuple):
    """What a problem of PyYAML means; `opening` puts the fault where the construct began."""

    problem: str
    message: str
    help: str | None
    opening: bool = False


QUOTE_HINT = "put the whole value in quotes: 'like this'"
SYNTAX_ADVICE = tuple(
    SyntaxAdvice(*row)
    for row in (
        (r"character '\\t' that", "a tab stands where YAML wants spaces", "replace tabs by spaces"),
        (
            r"character '(.)' that",
            "a value cannot begin with '{0}' unless it is quoted",
            QUOTE_HINT,
        ),
        (
            r"mapping values are not",
            "a second ':' stands where no key can be",
            "put quotes around a value that holds ': '; begin a new key on its own line",
        ),
        (
            r"sequence entries are not",
            "a list entry cannot stand here",
            "begin the list on a new line below its key",
        ),
        (
            r"could not find expected ':'",
            "this line is no 'key: value'",
            "write 'key: value', with a space after the colon, or indent a continued value",
            True,
        ),
        (
            r"expected ',' or '([\]}])', but got '\['",
            "a '[' inside an unquoted value, between {{ }} or [ ], confuses YAML",
            "inside {{ }} and [ ], put a rule with brackets in quotes: 'tpr[women] >= 0.8'",
        ),
        (
            r"expected ',' or '([\]}])', but got '<(?:stream|block) end>'",
            "this bracket is never closed",
            "close it with '{0}'",
            True,
        ),
        (
            r"expected ',' or '([\]}])', but got '[:?]'",
            "this bracket is not closed before the next key",
            "close it with '{0}', or separate its entries with commas",
            True,
        ),
        (
            r"expected ',' or '([\]}])', but got '(.+)'",
            "between these brackets a ',' or the closing '{0}' should come here",
            "separate the entries with commas; quote values that hold brackets or quotes",
        ),
        (
            r"unexpected end of stream",
            "this quoted text never ends",
            "add the closing quote",
            True,
        ),
        (
            r"unknown escape character '(.+)'",
            "'\\{0}' means nothing in double quotes",
            "use single quotes, where a backslash is a backslash",
        ),
        (
            r"escape sequence of (\d+) hex",
            "this escape wants {0} hexadecimal digits",
            "use single quotes, where a backslash is a backslash",
        ),
        (
            r"expected chomping or indentation",
            "after '|' or '>' the text begins on the next line",
            QUOTE_HINT,
            True,
        ),
        (
            r"expected a comment or a line break",
            "something stands where the line should end",
            QUOTE_HINT,
        ),
        (
            r"expected <block end>, but found '<scalar>'",
            "text follows a quoted value or a bracket that had already ended",
            "quote the whole value, not a part of it",
        ),
        (
            r"expected <block end>, but found '(?:-|<block sequence start>)'",
            "this list entry is not indented like its neighbours",
            "entries of one list begin in the same column",
        ),
        (
            r"expected <block end>, but found '(?:<block mapping start>|\?)'",
            "this line is not indented like its neighbours",
            "keys that belong together begin in the same column",
        ),
        (r"expected <block end>, but found ':'", "a key is missing before this ':'", QUOTE_HINT),
        (
            r"expected <block end>, but found '([\]}},])'",
            "'{0}' stands here without an opening bracket",
            "remove it, or quote the value",
        ),
        (
            r"expected the node content, but found '(.+)'",
            "a value is missing before '{0}'",
            "remove the '{0}', or put the value in quotes",
        ),
        (
            r"expected '<document start>', but found",
            "this does not belong to what stands above it",
            "keys that belong together begin in the same column",
        ),
        (
            r"expected alphabetic or numeric",
            "'*' and '&' mean something else to YAML",
            QUOTE_HINT,
            True,
        ),
    )
)

MISSING_SPACE_PATTERN = re.compile(r"\s*(?:- +)?[A-Za-z_][\w.-]*(:)(?=[^\s:/\\])")
MISSING_SPACE_PROBLEMS = (
    "mapping values are not",
    "could not find expected ':'",
    "but found '<scalar>'",
    "but found '<block mapping start>'",
)


def syntax_diagnostic(source: SourceText, error: yaml.MarkedYAMLError) -> Diagnostic:
    """The E001 that says what a parser's error means to the writer of the file."""
    problem = str(error.problem)
    problem_mark = error.problem_mark or error.context_mark
    marks = [mark for mark in (error.context_mark, problem_mark) if mark is not None]
    colon = _missing_space(source, problem, [mark.line for mark in marks])
    if colon is not None:
        message = "a space is missing after this ':'"
        return Diagnostic(
            "E001", message, "write 'key: value'", place=source.place(colon, colon + 1)
        )
    for advice in SYNTAX_ADVICE:
        if found := re.search(advice.problem, problem):
            mark = marks[0 if advice.opening else -1]
            words = [text.format(*found.groups()) for text in (advice.message, advice.help or "")]
            return _diagnostic_at(source, mark, words[0], words[1] or None)
    return _diagnostic_at(source, marks[-1], f"YAML cannot be read here: {problem}", None)


def _diagnostic_at(
    source: SourceText, mark: yaml.Mark, message: str, hint: str | None
) -> Diagnostic:
    start = min(mark.index, source.last)
    return Diagnostic("E001", message, hint, place=source.place(start, start + 1))


def _missing_space(source: SourceText, problem: str, lines: list[int]) -> int | None:
    if not any(text in problem for text in MISSING_SPACE_PROBLEMS):
        return None
    for number in _with_line_above(source, lines):
        if found := MISSING_SPACE_PATTERN.match(source.line(number)):
            return source.offset(number, found.start(1))
    return None


def _with_line_above(source: SourceText, lines: list[int]) -> Iterator[int]:
    for number in reversed(lines):
        yield number
        above = number - 1
        while above >= 0 and not source.line(above).strip():
            above -= 1
        if above >= 0:
            yield above
