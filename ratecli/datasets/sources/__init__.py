"""The built-in data sets, one module each.

A module holds the `Source` (addresses, hashes) and its preparations; the docstring has the notes
that `ratecli show` prints. NumPy and the like come from `ratecli.datasets.lazy`, or are imported in
the functions that need them, so that `ratecli ls datasets` stays fast.
"""

from __future__ import annotations

from ratecli.datasets.source import Source
from ratecli.datasets.sources import (
    a9a,
    adult,
    bank,
    clicks,
    communities,
    compas,
    gpa,
    law,
    loans,
    wiki,
)

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        adult.SOURCE,
        a9a.SOURCE,
        compas.SOURCE,
        bank.SOURCE,
        communities.SOURCE,
        law.SOURCE,
        gpa.SOURCE,
        wiki.CORPUS,
        wiki.STAND_IN,
        wiki.MADLIBS,
        loans.SOURCE,
        clicks.SOURCE,
    )
}
"""The built-in sources by name, in the order of `ratecli ls datasets`."""
