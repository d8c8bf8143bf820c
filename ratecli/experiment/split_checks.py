"""Rates of a split by name, as in `error@safety`, where there are rows of it at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ratecli.config.document import Document, Loc
from ratecli.errors import Diagnostic
from ratecli.experiment.cases import Case
from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression, MeasuredNode
from ratecli.rates.sample import Sample

SplitRate = tuple[Loc, MeasuredNode]
"""A rate of a split by name, and where its text stands."""
SPLIT_HINT = "give a data set such rows by its split, or take another split"


def find_split_rows(sample: Sample, cases: Sequence[Case]) -> dict[SplitRate, bool]:
    """Whether these rows have some of each split that a metric names, of the data sets of its slice.

    Rows of the slice may still lack: that is what a warning says of groups. Goals are of training rows.
    """
    return {
        (loc, leaf): bool(sample.rows(leaf.where.everyone, leaf.split).any())
        for case in cases
        for loc, tree in case.texts()
        if loc[0] == "metrics"
        for leaf in _split_rates(tree)
    }


def check_split_rates(document: Document, found: Mapping[SplitRate, bool]) -> Iterator[Diagnostic]:
    """An E208 for each rate of a split that no data set in question has rows of: it would be no number."""
    for (loc, leaf), there in found.items():
        if not there:
            of = (
                " of " + " and ".join(map("'{}'".format, leaf.where.datasets))
                if leaf.where.datasets
                else ""
            )
            message = f"'{ex.to_text(leaf)}' has no value: there are no {leaf.split} rows{of}"
            hint = "state a test under `safety`" if leaf.split == "safety" else SPLIT_HINT
            yield Diagnostic("E208", message, hint, place=document.place(loc, leaf.span))


def _split_rates(node: Expression) -> Iterator[MeasuredNode]:
    """The rates of an expression that name a split, and those that `of(...)` measures."""
    yield from (part for part in ex.measured_nodes(node) if part.split is not None)
    for part in ex.walk(node):
        if isinstance(part, ex.AlgorithmMetric):
            yield from _split_rates(part.metric)
