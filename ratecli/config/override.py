"""`--set path=value`: nodes of the file replaced by nodes that stand on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ratecli.config.complaint import kind
from ratecli.config.document import Document
from ratecli.config.nodes import ListNode, MapNode, Node, ScalarNode, plain
from ratecli.config.source import Source
from ratecli.config.yaml import compose
from ratecli.errors import Fault, FaultError, Place

STEP = re.compile(r"[^.=\s]+")


@dataclass(frozen=True)
class Step:
    """One part of a dotted path and where it stands in the override."""

    text: str
    start: int
    source: Source

    def place(self) -> Place:
        return self.source.place(self.start, self.start + len(self.text))

    def fault(self, message: str, hint: str | None = None) -> FaultError:
        return FaultError(Fault("E107", message, hint, place=self.place()))

    def key(self) -> ScalarNode:
        end = self.start + len(self.text)
        return ScalarNode(self.source, self.start, end, self.text, self.text, "")


def overridden(document: Document, overrides: Sequence[str]) -> Document:
    """The document with every override applied in turn; FaultError with all E107s."""
    faults: list[Fault] = []
    for text in overrides:
        try:
            document = _apply(document, Source("--set", text))
        except FaultError as error:
            faults += (replace(fault, code="E107") for fault in error.faults)
    if faults:
        raise FaultError(faults)
    return document


def _apply(document: Document, source: Source) -> Document:
    path, equals, _ = source.text.partition("=")
    steps = [Step(found.group(), found.start(), source) for found in STEP.finditer(path)]
    if not equals or ".".join(step.text for step in steps) != path.strip() or not steps:
        place = source.place(0, max(1, len(path)))
        message = "an override is written path=value"
        raise FaultError(Fault("E107", message, "as in sweep.kappa=[0.8, 0.9]", place=place))
    root = _replaced(document.root, steps, _value(source, len(path) + 1))
    assert isinstance(root, MapNode)
    return replace(document, root=root)


def _value(source: Source, start: int) -> Node:
    """The value as YAML; blanks stand for the path, so that offsets are those of the override."""
    if not source.text[start:].strip():
        return ScalarNode(source, start, start, None, "", "")
    blank = Source(source.file, " " * start + source.text[start:])
    try:
        return _moved(compose(blank), source)
    except FaultError as error:
        faults = [_shown_whole(fault, source) for fault in error.faults]
        raise FaultError(faults) from None


def _shown_whole(fault: Fault, source: Source) -> Fault:
    if fault.place is None or fault.place.line > 1:
        return fault
    return fault.at(replace(fault.place, excerpt=source.line(0)))


def _moved(node: Node, source: Source) -> Node:
    """The same nodes, as stretches of another source."""
    if isinstance(node, MapNode):
        entries = {
            name: (replace(key, source=source), _moved(value, source))
            for name, (key, value) in node.entries.items()
        }
        return replace(node, source=source, entries=entries)
    if isinstance(node, ListNode):
        items = tuple(_moved(item, source) for item in node.items)
        return replace(node, source=source, items=items)
    return replace(node, source=source)


def _replaced(node: Node, steps: Sequence[Step], value: Node) -> Node:
    """A copy of the tree with `value` at the end of the path."""
    if not steps:
        return value
    step, *rest = steps
    if isinstance(node, ListNode):
        index = _index(node, step)
        items = list(node.items)
        items[index] = _replaced(items[index], rest, value)
        return replace(node, items=tuple(items))
    if isinstance(node, ScalarNode) and node.value is None:
        node = MapNode(step.source, step.start, step.start, {}, flow=False)
    if not isinstance(node, MapNode):
        raise step.fault(f"nothing can be set inside {kind(plain(node))}")
    if step.text in node.entries:
        key, old = node.entries[step.text]
    else:
        key, old = step.key(), ScalarNode(step.source, step.start, step.start, None, "", "")
    key = key if rest else step.key()
    return replace(node, entries=node.entries | {step.text: (key, _replaced(old, rest, value))})


def _index(node: ListNode, step: Step) -> int:
    if not step.text.isdecimal() or len(step.text) > 6 or int(step.text) >= len(node.items):
        last = len(node.items) - 1
        range_ = f"the list's entries are 0 to {last}" if last >= 0 else "the list is empty"
        raise step.fault(f"the list has no entry '{step.text}'", range_)
    return int(step.text)
