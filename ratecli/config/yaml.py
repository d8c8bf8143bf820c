"""A strict YAML reader: PyYAML's safe parser with YAML 1.2 scalars.

Every node keeps its position in the source. Only text, numbers, true, false, null, lists and
mappings with text keys are accepted. Depth and the number of nodes, with aliases expanded, are
limited while events are read, before any recursion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import yaml
from yaml.reader import Reader

from ratecli.config.nodes import (
    ListNode,
    MapNode,
    PlainScalar,
    ScalarNode,
    SourceText,
    YamlNode,
    resolve_scalar,
)
from ratecli.errors import Diagnostic, FaultError


class SyntaxAdvice(NamedTuple):
    """The explanation of a PyYAML error; `opening` reports it where the construct began."""

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
    """Return an E001 that explains a parser error to the author of the file."""
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


MAX_BYTES = 1_000_000
MAX_DEPTH = 50
MAX_NODES = 20_000
TAG_PATTERN = re.compile(r"!\S*")
INVALID_CHARACTERS = re.compile(r"[\0\ud800-\udfff]")
"""Characters that escapes in double quotes can produce but that cannot be printed or stored."""
PROPERTIES_PATTERN = re.compile(r"(?:[&!]\S*\s+)+")


def read_source(path: Path) -> SourceText:
    """Return the text of a file; raise E005 if it cannot be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        _raise_unreadable(path, "is a folder, not a file", "name one of the files in it")
    except FileNotFoundError:
        _raise_unreadable(path, "does not exist")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        _raise_unreadable(path, f"cannot be read: {getattr(error, 'strerror', None) or error}")
    if len(raw) > MAX_BYTES:
        _raise_unreadable(path, "is larger than 1 MB; an experiment is one page")
    try:
        return SourceText(str(path), raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        good = raw[: error.start].decode("utf-8-sig", "replace")
        source = SourceText(str(path), good + "\ufffd")
        _raise_at(source, "E005", "the file is not UTF-8 text", "save it as UTF-8", len(good))


def parse_yaml(source: SourceText) -> YamlNode:
    """Return the single document of a source as nodes; raise E001 to E005."""
    unprintable = Reader.NON_PRINTABLE.search(source.text)
    if unprintable:
        message = f"the file holds the control character {unprintable.group()!a}"
        _raise_at(source, "E005", message, "remove it", unprintable.start())
    events = yaml.parse(source.text, Loader=yaml.SafeLoader)
    try:
        return _Composer(source, events).document()
    except yaml.MarkedYAMLError as error:
        raise FaultError(syntax_diagnostic(source, error)) from None


def _raise_unreadable(path: Path, trouble: str, way_out: str | None = None) -> NoReturn:
    raise FaultError(Diagnostic("E005", f"'{path}' {trouble}", way_out)) from None


def _raise_at(
    source: SourceText, code: str, message: str, hint: str | None, start: int
) -> NoReturn:
    raise FaultError(
        Diagnostic(code, message, hint, place=source.place(start, start + 1))
    ) from None


class _Composer:
    """Turns parser events into nodes and collects violations of the strict rules."""

    def __init__(self, source: SourceText, events: Iterator[yaml.Event]) -> None:
        self.source = source
        self.events = events
        self.faults: list[Diagnostic] = []
        self.anchors: dict[str, YamlNode | None] = {}  # None while the node is being read
        self.nodes = 0

    def document(self) -> YamlNode:
        next(self.events)  # stream start
        opening = next(self.events)
        if isinstance(opening, yaml.StreamEndEvent):
            self._stop("E004", "the file is empty", None, 0, 1)
        self._no_tag_directive(opening)
        root = self._node(next(self.events), 0)
        next(self.events)  # document end
        following = next(self.events)
        if not isinstance(following, yaml.StreamEndEvent):
            hint = "remove the line '---', or write two files"
            self._note("E004", "a second document begins here", hint, following)
        if self.faults:
            raise FaultError(self.faults)
        return root

    def _no_tag_directive(self, opening: yaml.Event) -> None:
        if getattr(opening, "tags", None):
            self._note("E004", "tag directives are not allowed", "remove the line", opening)

    def _node(self, event: yaml.Event, depth: int) -> YamlNode:
        if depth > MAX_DEPTH:
            message = f"values are nested more than {MAX_DEPTH} deep"
            self._stop("E003", message, None, *_event_span(event))
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, depth)
        assert isinstance(event, yaml.NodeEvent)
        self._grow(1, event)
        if getattr(event, "tag", None) is not None:
            self._refuse_tag(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        node = self._content(event, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _refuse_tag(self, event: yaml.NodeEvent) -> None:
        found = TAG_PATTERN.search(self.source.text, _event_span(event)[0])
        assert found is not None
        hint = "remove it; put text that begins with '!' in quotes"
        message = f"the YAML tag '{found.group()[:60]}' is not allowed"
        self._note("E004", message, hint, YamlNode(self.source, *found.span()))

    def _content(self, event: yaml.NodeEvent, depth: int) -> YamlNode:
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(event, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(event, depth)
        assert isinstance(event, yaml.ScalarEvent)
        return self._scalar(event)

    def _alias(self, event: yaml.AliasEvent, depth: int) -> YamlNode:
        start, end = _event_span(event)
        if event.anchor not in self.anchors:
            hint = "put the value in quotes if its '*' is meant as text"
            self._stop("E001", f"no anchor '&{event.anchor}' stands before this", hint, start, end)
        node = self.anchors[event.anchor]
        if node is None:
            self._stop("E003", f"'*{event.anchor}' contains itself", None, start, end)
        if depth + node.height > MAX_DEPTH:
            self._stop("E003", f"aliases nest values more than {MAX_DEPTH} deep", None, start, end)
        self._grow(node.size, event)
        return node

    def _grow(self, nodes: int, event: yaml.Event) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            message = f"the file holds more than {MAX_NODES} values, aliases expanded"
            self._stop("E003", message, None, *_event_span(event))

    def _scalar(self, event: yaml.ScalarEvent) -> ScalarNode:
        start, end = self._stretch(event, event)
        quoted = bool(event.style)
        value: PlainScalar = event.value
        if INVALID_CHARACTERS.search(event.value):
            hint = "write the character itself, not an escape"
            self._note("E005", "the text holds an escape that is no character", hint, event)
        if not quoted:
            try:
                value = resolve_scalar(event.value)
            except OverflowError:
                hint = "write it with an exponent (1e30), or in quotes if it is text"
                self._note("E104", "whole numbers end at 64 bits", hint, event)
        return ScalarNode(self.source, start, end, value, event.value, event.style or "")

    def _sequence(self, event: yaml.SequenceStartEvent, depth: int) -> ListNode:
        items: list[YamlNode] = []
        while not isinstance(following := next(self.events), yaml.SequenceEndEvent):
            if event.flow_style and items:
                self._not_torn(items[-1])
            items.append(self._node(following, depth + 1))
        size, height = _nodes_size(items)
        return ListNode(
            self.source,
            *self._stretch(event, following),
            tuple(items),
            bool(event.flow_style),
            size=size,
            height=height,
        )

    def _mapping(self, event: yaml.MappingStartEvent, depth: int) -> MapNode:
        entries: dict[str, tuple[ScalarNode, YamlNode]] = {}
        latest: YamlNode | None = None
        while not isinstance(following := next(self.events), yaml.MappingEndEvent):
            if event.flow_style and latest is not None:
                self._not_torn(latest)
            key = self._node(following, depth + 1)
            latest = self._node(next(self.events), depth + 1)
            if isinstance(key, ScalarNode) and self._good_key(key, entries):
                entries[str(key.value)] = (key, latest)
            elif not isinstance(key, ScalarNode):
                self._note("E004", "a key must be text", "quote values that hold { } or [ ]", key)
        size, height = _nodes_size([value for _, value in entries.values()])
        return MapNode(
            self.source,
            *self._stretch(event, following),
            entries,
            bool(event.flow_style),
            size=size,
            height=height,
        )

    def _stretch(self, opening: yaml.NodeEvent, closing: yaml.Event) -> tuple[int, int]:
        """Return the start and end of the value itself, without an anchor before it."""
        start, end = _event_span(opening)[0], _event_span(closing)[1]
        if opening.anchor is None:
            return start, end
        properties = PROPERTIES_PATTERN.match(self.source.text, start, end)
        return (properties.end() if properties else end), end

    def _good_key(self, key: ScalarNode, entries: dict[str, tuple[ScalarNode, YamlNode]]) -> bool:
        if not isinstance(key.value, str):
            shown = key.text or "an empty one"
            hint = f"put it in quotes: '{key.text}'" if key.text else "write a name before the ':'"
            self._note("E004", f"a key must be text, not {shown}", hint, key)
        elif key.value == "<<" and not key.style:
            self._note("E004", "merge keys ('<<') are not allowed", "write the keys out", key)
        elif key.value in entries:
            first = entries[key.value][0]
            line = first.source.line_of(first.start) + 1
            hint = f"the first one is in line {line}; remove one of them"
            self._note("E002", f"the key '{key.value}' stands twice", hint, key)
        else:
            return True
        return False

    def _not_torn(self, node: YamlNode) -> None:
        """Stop at an unquoted value with an open parenthesis, which YAML ended at a comma.

        An example is `linspace(1` in {kappa: linspace(1, 2, 3)}.
        """
        if isinstance(node, ScalarNode) and not node.style:
            text = node.text
            if text.count("(") > text.count(")"):
                hint = "inside { } and [ ] a comma ends a value: put the whole value in quotes"
                message = f"the comma after '{text}' cuts this value in two"
                self._stop("E001", message, hint, node.start, node.end)

    def _note(self, code: str, message: str, hint: str | None, at: yaml.Event | YamlNode) -> None:
        start, end = (at.start, at.end) if isinstance(at, YamlNode) else _event_span(at)
        self.faults.append(Diagnostic(code, message, hint, place=self.source.place(start, end)))

    def _stop(self, code: str, message: str, hint: str | None, start: int, end: int) -> NoReturn:
        fault = Diagnostic(code, message, hint, place=self.source.place(start, end))
        raise FaultError([*self.faults, fault])


def _event_span(event: yaml.Event) -> tuple[int, int]:
    assert event.start_mark is not None
    assert event.end_mark is not None
    return event.start_mark.index, event.end_mark.index


def _nodes_size(nodes: Sequence[YamlNode]) -> tuple[int, int]:
    size = 1 + sum(node.size for node in nodes)
    return size, 1 + max((node.height for node in nodes), default=0)
