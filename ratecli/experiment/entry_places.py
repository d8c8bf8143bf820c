"""Where in an entry of `datasets:` a fault stands. The data room knows columns and files, no lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ratecli.config.document import Document, Loc
from ratecli.errors import Diagnostic

KEYS_BY_CODE = {
    "E201": ("source",),
    "E210": ("source",),
    "E401": ("source",),
    "E402": ("source",),
    "E403": ("sha256", "source"),
    "E404": ("path", "vectors"),
    "E405": ("path", "vectors"),
    "E406": ("positive", "label_range", "label"),
    "E409": ("source",),
    "E410": ("split",),
}
"""What a code is about; the first of these options that the entry has is shown."""

QUOTED_TEXT = re.compile(r"'([^']*)'")


@dataclass(frozen=True)
class DatasetEntryPlaces:
    """The places of one entry; `options` is what it says."""

    document: Document
    name: str
    options: Mapping[str, Any]

    def placed(self, fault: Diagnostic) -> Diagnostic:
        """The fault at the option that it is about, else at the entry's name."""
        if fault.place is not None:
            return fault
        outer: Loc = ("datasets", self.name)
        loc = next(self._found(fault), ())
        key = not loc or fault.code == "E101"
        return fault.at(self.document.place((*outer, *loc), key=key))

    def _found(self, fault: Diagnostic) -> Iterator[Loc]:
        yield from ((key,) for key in KEYS_BY_CODE.get(fault.code, ()) if key in self.options)
        quoted = QUOTED_TEXT.findall(fault.message)
        yield from ((key,) for key in quoted if key in self.options and not self._many(key))
        for key, value in self.options.items():
            if value in quoted:
                yield (key,)
            yield from ((key, k) for k, each in enumerate(self._many(key)) if each in quoted)

    def _many(self, key: str) -> list[Any]:
        value = self.options[key]
        return value if isinstance(value, list) else []
