"""The columns that say which trials a row is about and how they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ratecli.ledger.view import MEASURED, Ledger
from ratecli.report.groups import Group
from ratecli.report.outcomes import ANSWERED
from ratecli.report.sheet import Cell, Column, plain

UNKNOWN = "-"
"""The variant of an algorithm that gave no numbers."""
TONES = ("", "part", "bad")
"""Of statuses, the worse the later."""


def identity(ledger: Ledger) -> list[str]:
    """Names that together tell every group from the others."""
    return ["algorithm", "variant", *ledger.sweep]


def column(ledger: Ledger, name: str) -> Column:
    if name == "seed":
        return Column(name, numeric=True)
    values = [trial.point[name] for trial in ledger.plan if name in trial.point]
    return Column(
        name, numeric=bool(values) and all(plain(each).key is not None for each in values)
    )


def key_cell(group: Group, name: str) -> Cell:
    if name == "algorithm":
        return Cell(group.label)
    if name == "variant":
        return Cell(group.variant or UNKNOWN)
    return plain(group.seed if name == "seed" else group.point.get(name))


def ordered(found: Sequence[Group], names: Sequence[str]) -> list[Group]:
    """By the first of the names, then the next; each in the order of the plan."""
    ranks: list[dict[str, int]] = [{} for _ in names]

    def rank(group: Group) -> list[int]:
        texts = (key_cell(group, name).text for name in names)
        return [seen.setdefault(text, len(seen)) for seen, text in zip(ranks, texts, strict=True)]

    return sorted(found, key=rank)


def by_status(counts: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """Status, how often, and its tone; what went well first."""
    names = sorted(counts, key=lambda status: (status != "ok", TONES.index(_tone(status)), status))
    return [(name, counts[name], _tone(name)) for name in names]


def status_cell(counts: Mapping[str, int]) -> Cell:
    """`ok 4, error 1`."""
    found = by_status(counts)
    text = ", ".join(f"{name} {count}" for name, count, _ in found)
    return Cell(text, tone=max((tone for _, _, tone in found), key=TONES.index, default=""))


def _tone(status: str) -> str:
    """That there is none is an answer too, not a failure."""
    return "" if status in MEASURED else "part" if status in ANSWERED else "bad"
