"""What can be refused before any rule is read: names that hide the language's own."""

from __future__ import annotations

from collections.abc import Iterator

from ratecli.config.document import Document, Loc
from ratecli.config.experiment import Experiment
from ratecli.errors import Diagnostic
from ratecli.rates.metrics import BUILTIN_NAMES


def check_swept_names(experiment: Experiment, document: Document) -> Iterator[Diagnostic]:
    """E106 for a swept name that is a metric or function: rules would take the number for it."""
    for loc in _swept_name_locs(experiment):
        if loc[-1] in BUILTIN_NAMES:
            message = f"'{loc[-1]}' is a metric or function of the language and cannot be swept"
            yield Diagnostic(
                "E106", message, "sweep another name", place=document.place(loc, key=True)
            )


def _swept_name_locs(experiment: Experiment) -> Iterator[Loc]:
    yield from (("sweep", name) for name in experiment.sweep.names)
    for index, entry in enumerate(experiment.algorithms):
        names = entry.sweep.names if entry.sweep else ()
        yield from (("algorithms", index, entry.name, "sweep", name) for name in names)
