"""`--set path=value`: replaces nodes of the file by nodes parsed from the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ratecli.config.document import Document
from ratecli.config.validation import describe_type
from ratecli.config.yaml import (
    SourceText,
    map_entries,
    node_range,
    parse_yaml,
    plain_data,
    source_of,
)
from ratecli.errors import Diagnostic, FaultError

STEP_PATTERN = re.compile(r"[^.=\s]+")


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
    path, equals, value = source.text.partition("=")
    steps = [source.scalar(*match.span()) for match in STEP_PATTERN.finditer(path)]
    if not equals or ".".join(step.value for step in steps) != path.strip() or not steps:
        message, hint = "an override is written path=value", "as in sweep.kappa=[0.8, 0.9]"
        raise FaultError(source.error("E107", message, hint, 0, len(path)))
    start = len(path) + 1
    new = parse_yaml(source, start) if value.strip() else source.scalar(start, start)
    root = _replaced(document.root, steps, new)
    assert isinstance(root, MappingNode)
    return replace(document, root=root)


def _replaced(node: Node, steps: Sequence[ScalarNode], value: Node) -> Node:
    """Return a copy of the tree with `value` at the end of the path."""
    if not steps:
        return value
    step, *rest = steps
    if isinstance(node, SequenceNode):
        items = list(node.value)
        index = _list_index(len(items), step)
        items[index] = _replaced(items[index], rest, value)
        return SequenceNode(node.tag, items, node.start_mark, node.end_mark, node.flow_style)
    mark = step.start_mark
    if isinstance(node, ScalarNode) and plain_data(node) is None:
        node = MappingNode("", [], mark, mark, flow_style=False)
    if not isinstance(node, MappingNode):
        raise _error(step, f"nothing can be set inside {describe_type(plain_data(node))}")
    entries = map_entries(node)
    key, old = entries.get(step.value, (step, ScalarNode("", "", mark, mark)))
    entry = (key if rest else step, _replaced(old, rest, value))
    pairs = list((entries | {step.value: entry}).values())
    return MappingNode(node.tag, pairs, node.start_mark, node.end_mark, node.flow_style)


def _list_index(count: int, step: ScalarNode) -> int:
    text = step.value
    if not text.isdecimal() or len(text) > 6 or int(text) >= count:
        entries = f"the list's entries are 0 to {count - 1}" if count else "the list is empty"
        raise _error(step, f"the list has no entry '{text}'", entries)
    return int(text)


def _error(step: ScalarNode, message: str, hint: str | None = None) -> FaultError:
    return FaultError(source_of(step).error("E107", message, hint, *node_range(step)))
