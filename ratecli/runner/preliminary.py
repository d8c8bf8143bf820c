"""What can be refused before any rule is read: names that hide the language's own, too many trials."""

from __future__ import annotations

from collections.abc import Iterator

from ratecli.faults import Fault
from ratecli.rates.metrics import LANGUAGE
from ratecli.spec.document import Document, Loc
from ratecli.spec.experiment import Experiment
from ratecli.spec.sweep import points

MAX_TRIALS = 100_000


def preliminary_faults(experiment: Experiment, document: Document) -> list[Fault]:
    return [*_hidden(experiment, document), *_size(experiment, document)]


def _hidden(experiment: Experiment, document: Document) -> Iterator[Fault]:
    """E106 for a swept name that is a metric or function: rules would take the number for it."""
    for loc in _swept(experiment):
        if loc[-1] in LANGUAGE:
            message = f"'{loc[-1]}' is a metric or function of the language and cannot be swept"
            yield Fault("E106", message, "sweep another name", place=document.place(loc, key=True))


def _swept(experiment: Experiment) -> Iterator[Loc]:
    yield from (("sweep", name) for name in experiment.sweep.names)
    for index, entry in enumerate(experiment.algorithms):
        names = entry.sweep.names if entry.sweep else ()
        yield from (("algorithms", index, entry.name, "sweep", name) for name in names)


def _size(experiment: Experiment, document: Document) -> Iterator[Fault]:
    """E105 where points times seeds are more trials than anyone meant."""
    cases = sum(len(points(experiment.sweep, entry.sweep)) for entry in experiment.algorithms)
    trials = cases * len(experiment.seeds)
    if trials > MAX_TRIALS:
        message = f"sweep points and seeds make {trials} trials, more than {MAX_TRIALS}"
        loc = ("sweep",) if cases > len(experiment.algorithms) else ("seeds",)
        hint = "sweep fewer values, or split the experiment"
        yield Fault("E105", message, hint, place=document.place(loc, key=True))
