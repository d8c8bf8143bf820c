"""The columns that say which trials a row is about and how they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.report.groups import SeedGroup
from ratecli.report.outcomes import CONCLUSIVE
from ratecli.report.sheet import SheetCell, SheetColumn, value_cell

UNKNOWN = "-"
"""The variant of an algorithm that gave no numbers."""
TONES = ("", "part", "bad")
"""Of statuses, the worse the later."""


def identity_columns(ledger: Ledger) -> list[str]:
    """Names that together tell every group from the others."""
    return ["algorithm", "variant", *ledger.sweep]


def identity_column(ledger: Ledger, name: str) -> SheetColumn:
    if name == "seed":
        return SheetColumn(name, numeric=True)
    values = [trial.point[name] for trial in ledger.plan if name in trial.point]
    return SheetColumn(
        name, numeric=bool(values) and all(value_cell(each).key is not None for each in values)
    )


def key_cell(group: SeedGroup, name: str) -> SheetCell:
    if name == "algorithm":
        return SheetCell(group.label)
    if name == "variant":
        return SheetCell(group.variant or UNKNOWN)
    return value_cell(group.seed if name == "seed" else group.point.get(name))


def sort_groups(found: Sequence[SeedGroup], names: Sequence[str]) -> list[SeedGroup]:
    """By the first of the names, then the next; each in the order of the plan."""
    ranks: list[dict[str, int]] = [{} for _ in names]

    def rank(group: SeedGroup) -> list[int]:
        texts = (key_cell(group, name).text for name in names)
        return [seen.setdefault(text, len(seen)) for seen, text in zip(ranks, texts, strict=True)]

    return sorted(found, key=rank)


def count_by_status(counts: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """Status, how often, and its tone; what went well first."""
    names = sorted(counts, key=lambda status: (status != "ok", TONES.index(_tone(status)), status))
    return [(name, counts[name], _tone(name)) for name in names]


def status_cell(counts: Mapping[str, int]) -> SheetCell:
    """`ok 4, error 1`."""
    found = count_by_status(counts)
    text = ", ".join(f"{name} {count}" for name, count, _ in found)
    return SheetCell(text, tone=max((tone for _, _, tone in found), key=TONES.index, default=""))


def _tone(status: str) -> str:
    """That there is none is an answer too, not a failure."""
    return "" if status in MEASURED_STATUSES else "part" if status in CONCLUSIVE else "bad"
