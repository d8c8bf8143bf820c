"""Slices: the rows that a rate speaks of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ratecli.rates import syntax
from ratecli.rates.syntax import Condition


@dataclass(frozen=True)
class Slice:
    """The rows a rate speaks of: of these data sets (all, if none is named), under these conditions."""

    datasets: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, datasets: Iterable[str], conditions: Iterable[Condition]) -> Slice:
        """In canonical order, nothing twice."""
        unique = {str(condition): condition for condition in conditions}
        return cls(tuple(sorted(set(datasets))), tuple(unique[text] for text in sorted(unique)))

    @property
    def visible(self) -> Slice:
        """What can be told of a row from its columns: from which data set it was drawn cannot."""
        return Slice((), self.conditions)

    @property
    def everyone(self) -> Slice:
        """All rows of the same data sets."""
        return Slice(self.datasets)

    def items(self) -> tuple[syntax.SliceItem, ...]:
        return (*map(syntax.SliceName, self.datasets), *self.conditions)

    def __str__(self) -> str:
        return ", ".join(map(str, self.items())) or "all rows"


ALL_ROWS = Slice()
