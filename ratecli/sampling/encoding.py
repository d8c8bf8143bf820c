"""How the rows of a trial became what its classifiers see: what it takes to show them new rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ratecli.datasets.columns import ColumnKind
from ratecli.datasets.encode import Encoder

COLUMN_KINDS: tuple[ColumnKind, ...] = ("number", "text")


@dataclass(frozen=True)
class Encoding:
    """What a trial keeps of its rows.

    Attributes
    ----------
    encoder
        What the training rows said.
    others
        The columns that are no features, and what each holds: classifiers may look at slices of them.
    levels
        How often each row stands (`sampling.levels`).
    """

    encoder: Encoder
    others: Mapping[str, ColumnKind]
    levels: int = 1

    @classmethod
    def of(cls, encoder: Encoder, columns: Mapping[str, Any], levels: int) -> Encoding:
        """`columns` are (n,) arrays, of objects where they hold text."""
        features = encoder.kinds
        others = {
            name: COLUMN_KINDS[columns[name].dtype.kind == "O"]
            for name in columns
            if name not in features
        }
        return cls(encoder, others, levels)

    def text(self) -> str:
        """As JSON, which `from_json` reads again."""
        content = self.encoder.as_json() | {"others": dict(self.others), "levels": self.levels}
        return json.dumps(content)

    @classmethod
    def from_json(cls, content: object) -> Encoding:
        """Raises ReadyMadeError where features came ready-made, ValueError for what is none; more than
        is asked for does not matter.
        """
        encoder = Encoder.from_json(content)
        match content:
            case {"others": dict(others), "levels": int(levels)} if levels >= 1:
                pass
            case _:
                raise ValueError("it does not say which columns and levels rows have")
        if any(kind not in COLUMN_KINDS for kind in others.values()):
            raise ValueError("it has a column of neither numbers nor text")
        return cls(encoder, cast("Mapping[str, ColumnKind]", others), levels)

    def kind(self, column: str) -> ColumnKind | None:
        """What a column held in training; None where nobody knows."""
        return self.encoder.kinds.get(column) or self.others.get(column)
