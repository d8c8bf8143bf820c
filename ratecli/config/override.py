"""`--set path=value`: replaces nodes of the file by nodes parsed from the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ratecli.config.document import Document
from ratecli.config.nodes import ListNode, MapNode, ScalarNode, SourceText, YamlNode, plain_data
from ratecli.config.validation import describe_type
from ratecli.config.yaml import parse_yaml
from ratecli.errors import Diagnostic, FaultError, SourceLocation

STEP_PATTERN = re.compile(r"[^.=\s]+")


@dataclass(frozen=True)
class PathStep:
    """One part of a dotted path and its position in the override."""

    text: str
    start: int
    source: SourceText

    def place(self) -> SourceLocation:
        return self.source.place(self.start, self.start + len(self.text))

    def fault(self, message: str, hint: str | None = None) -> FaultError:
        return FaultError(Diagnostic("E107", message, hint, place=self.place()))

    def key(self) -> ScalarNode:
        end = self.start + len(self.text)
        return ScalarNode(self.source, self.start, end, self.text, self.text, "")


def apply_overrides(document: Document, overrides: Sequence[str]) -> Document:
    """Return the document with all overrides applied in order; raise FaultError with all E107."""
    faults: list[Diagnostic] = []
    for text in overrides:
        try:
            document = _apply_override(document, SourceText("--set", text))
        except FaultError as error:
            faults += (replace(fault, code="E107") for fault in error.faults)
    if faults:
        raise FaultError(faults)
    return document


def _apply_override(document: Document, source: SourceText) -> Document:
    path, equals, _ = source.text.partition("=")
    steps = [
        PathStep(found.group(), found.start(), source) for found in STEP_PATTERN.finditer(path)
    ]
    if not equals or ".".join(step.text for step in steps) != path.strip() or not steps:
        place = source.place(0, max(1, len(path)))
        message = "an override is written path=value"
        raise FaultError(Diagnostic("E107", message, "as in sweep.kappa=[0.8, 0.9]", place=place))
    root = _replace_node(document.root, steps, _override_value(source, len(path) + 1))
    assert isinstance(root, MapNode)
    return replace(document, root=root)


def _override_value(source: SourceText, start: int) -> YamlNode:
    """Parse the value as YAML.

    The path is replaced by spaces, so that offsets are those of the override.
    """
    if not source.text[start:].strip():
        return ScalarNode(source, start, start, None, "", "")
    blank = SourceText(source.file, " " * start + source.text[start:])
    try:
        return _move_to_source(parse_yaml(blank), source)
    except FaultError as error:
        faults = [_with_whole_excerpt(fault, source) for fault in error.faults]
        raise FaultError(faults) from None


def _with_whole_excerpt(fault: Diagnostic, source: SourceText) -> Diagnostic:
    if fault.place is None or fault.place.line > 1:
        return fault
    return fault.at(replace(fault.place, excerpt=source.line(0)))


def _move_to_source(node: YamlNode, source: SourceText) -> YamlNode:
    """Return the same nodes as ranges of another source."""
    if isinstance(node, MapNode):
        entries = {
            name: (replace(key, source=source), _move_to_source(value, source))
            for name, (key, value) in node.entries.items()
        }
        return replace(node, source=source, entries=entries)
    if isinstance(node, ListNode):
        items = tuple(_move_to_source(item, source) for item in node.items)
        return replace(node, source=source, items=items)
    return replace(node, source=source)


def _replace_node(node: YamlNode, steps: Sequence[PathStep], value: YamlNode) -> YamlNode:
    """Return a copy of the tree with `value` at the end of the path."""
    if not steps:
        return value
    step, *rest = steps
    if isinstance(node, ListNode):
        index = _list_index(node, step)
        items = list(node.items)
        items[index] = _replace_node(items[index], rest, value)
        return replace(node, items=tuple(items))
    if isinstance(node, ScalarNode) and node.value is None:
        node = MapNode(step.source, step.start, step.start, {}, flow=False)
    if not isinstance(node, MapNode):
        raise step.fault(f"nothing can be set inside {describe_type(plain_data(node))}")
    if step.text in node.entries:
        key, old = node.entries[step.text]
    else:
        key, old = step.key(), ScalarNode(step.source, step.start, step.start, None, "", "")
    key = key if rest else step.key()
    return replace(node, entries=node.entries | {step.text: (key, _replace_node(old, rest, value))})


def _list_index(node: ListNode, step: PathStep) -> int:
    if not step.text.isdecimal() or len(step.text) > 6 or int(step.text) >= len(node.items):
        last = len(node.items) - 1
        range_ = f"the list's entries are 0 to {last}" if last >= 0 else "the list is empty"
        raise step.fault(f"the list has no entry '{step.text}'", range_)
    return int(step.text)
