"""Lines of an experiment that is in no file, and what of the user's each line holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import Any

from ratecli.errors import Diagnostic, FaultError

TEXT_ON_NEXT_LINE = -1
ESCAPED_BREAKS = {code: f"\\u{code:04x}" for code in (0x7F, 0x85, 0x2028, 0x2029, 0xFEFF)}
"""What YAML takes for the end of a line, or not at all, and JSON leaves as it is."""


@dataclass
class YamlWriter:
    """YAML as it grows; `places` say what the user calls each line, and how far it is moved in (`TEXT_ON_NEXT_LINE`: the
    text is on the next line).

    `names` are what the user calls constraints, by their names in the experiment.
    """

    names: Mapping[str, str]
    lines: list[str] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)

    def line(self, text: str, place: str = "") -> None:
        self.lines.append(text)
        self.places.append((place, 0))

    def key(self, name: str, value: Mapping[str, Any], place: str) -> None:
        """A mapping on one line, if it holds anything."""
        if value:
            self.line(f"{name}: {to_json_line(value, place)}", place)

    def rule(self, name: str, text: object, place: str) -> None:
        """A text of the language as it is, but on one line; raises E103 for what is no text."""
        if not isinstance(text, str):
            message = f"{place} must be a text such as 'error', not {text!r}"
            raise FaultError(Diagnostic("E103", message))
        indent = len(name) - len(name.lstrip()) + 2
        self.lines.append(f"{name}: |-")
        self.places.append((place, TEXT_ON_NEXT_LINE))
        self.lines.append(" " * indent + " ".join(text.splitlines()).strip())
        self.places.append((place, indent))

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Places of faults raised inside are in what the user wrote."""
        try:
            yield
        except FaultError as error:
            raise FaultError(map(self.placed, error.faults)) from None

    def told(self, text: str) -> str:
        """With constraints called as the user calls them."""
        for name, called in self.names.items():
            text = text.replace(f"'{name}'", f"'{called}'")
        return text

    def placed(self, fault: Diagnostic) -> Diagnostic:
        fault, found = replace(fault, message=self.told(fault.message)), fault.place
        if found is None or not 1 <= found.line <= len(self.places):
            return fault
        place, indent = self.places[found.line - 1]
        if not place:
            return replace(fault, place=None)
        here = replace(found, file=place, line=1)
        if indent == TEXT_ON_NEXT_LINE:
            text = self.lines[found.line].strip()
            return fault.at(replace(here, column=1, width=len(text), excerpt=text))
        column = max(1, found.column - indent)
        return fault.at(replace(here, column=column, excerpt=found.excerpt[indent:]))


def to_json_line(value: object, place: str) -> str:
    """On one line; numbers of NumPy as they are. Raises E103 for what a file could not say either."""
    try:
        return json.dumps(value, default=to_plain_value, ensure_ascii=False).translate(
            ESCAPED_BREAKS
        )
    except (TypeError, ValueError) as error:
        raise FaultError(Diagnostic("E103", f"{place}: {error}")) from None


def to_plain_value(value: Any) -> Any:
    """What JSON has for a value of NumPy or a path; raises TypeError for anything else."""
    if isinstance(value, PathLike):
        return fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is neither number, text, list nor mapping")
