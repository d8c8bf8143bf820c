"""Rates of a split by name, as in `error@safety`, where there are rows of it at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ratecli.config.document import Document, Loc
from ratecli.errors import Fault
from ratecli.experiment.cases import Case
from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression, Measured
from ratecli.rates.sample import Sample

Asked = tuple[Loc, Measured]
"""A rate of a split by name, and where its text stands."""
HINT = "give a data set such rows by its split, or take another split"


def found_rows(sample: Sample, cases: Sequence[Case]) -> dict[Asked, bool]:
    """Whether these rows have some of each split that a metric names, of the data sets of its slice.

    Rows of the slice may still lack: that is what a warning says of groups. Goals are of training rows.
    """
    return {
        (loc, leaf): bool(sample.rows(leaf.where.everyone, leaf.split).any())
        for case in cases
        for loc, tree in case.texts()
        if loc[0] == "metrics"
        for leaf in _of_splits(tree)
    }


def rowless(document: Document, found: Mapping[Asked, bool]) -> Iterator[Fault]:
    """An E208 for each rate of a split that no data set in question has rows of: it would be no number."""
    for (loc, leaf), there in found.items():
        if not there:
            of = (
                " of " + " and ".join(map("'{}'".format, leaf.where.datasets))
                if leaf.where.datasets
                else ""
            )
            message = f"'{ex.text(leaf)}' has no value: there are no {leaf.split} rows{of}"
            hint = "state a test under `safety`" if leaf.split == "safety" else HINT
            yield Fault("E208", message, hint, place=document.place(loc, leaf.span))


def _of_splits(node: Expression) -> Iterator[Measured]:
    """The rates of an expression that name a split, and those that `of(...)` measures."""
    yield from (part for part in ex.measured(node) if part.split is not None)
    for part in ex.walk(node):
        if isinstance(part, ex.Of):
            yield from _of_splits(part.metric)
