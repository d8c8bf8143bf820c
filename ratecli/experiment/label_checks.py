"""Labels of two classes and labels that are numbers: what goes with which.

A number is estimated, and goals speak of the estimate's errors (mse, mean_error). Every other rate counts
decisions, and there are none to be right or wrong about. Which kind the labels of a data set are is known
from the file alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratecli.config.document import Document
from ratecli.config.experiment import Experiment
from ratecli.datasets import registry
from ratecli.errors import Diagnostic, FaultError, SourceLocation
from ratecli.experiment.cases import Case
from ratecli.experiment.options import solver_class
from ratecli.experiment.reading import ExperimentReader
from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression, Leaf, MeasuredNode
from ratecli.rates.table import RATES
from ratecli.solvers.registry import loadable_solvers

NUMERIC_ERROR_RATES = frozenset({"error", "squared_error"})
"""The measurements that a label that is a number has (`rates.table.Measurement`)."""

NUMERIC_LABEL_METRICS = " and ".join(
    name for name, rate in RATES.items() if rate.of in NUMERIC_ERROR_RATES
)


@dataclass(frozen=True)
class LabelKinds:
    """Which data sets have labels that are numbers."""

    numbers: Mapping[str, bool]

    @classmethod
    def of(cls, entries: Mapping[str, Mapping[str, Any]]) -> LabelKinds:
        """From the entries of `datasets:`, by name."""
        found = {name: registry.label_range(entry) for name, entry in entries.items()}
        return cls({name: each is not None for name, each in found.items()})

    def with_defaults(self, experiment: Experiment, document: Document) -> Experiment:
        """Where all labels are numbers, an objective or metrics that are not written speak of mse."""
        if not all(self.numbers.values()):
            return experiment
        new = {"objective": "mse", "metrics": {"mse": "mse"}}
        absent = {key: value for key, value in new.items() if key not in document.data}
        return experiment.model_copy(update=absent)

    def check(self, reading: ExperimentReader, cases: Sequence[Case]) -> None:
        """Whether goals, metrics, algorithms and data sets go with the labels.

        Raises
        ------
        FaultError
            E411 where labels of both kinds are one table, E306 where a rate needs classes, E308 where an
            algorithm does, or needs numbers, E104 where decisions at several levels are asked for.
        """
        found = dict.fromkeys(self._levels(reading.document))
        for case in cases:
            kinds = {self.numbers[name] for name in case.datasets}
            if len(kinds) > 1:
                found |= dict.fromkeys(self._mixed(reading.document, case))
                continue
            if kinds == {True}:
                found |= dict.fromkeys(_check_label_rates(reading.document, case))
            found |= dict.fromkeys(_check_label_support(reading, case, numbers=kinds == {True}))
        if found:
            raise FaultError(found)

    def _mixed(self, document: Document, case: Case) -> Iterator[Diagnostic]:
        numbers = next(name for name in case.datasets if self.numbers[name])
        classes = next(name for name in case.datasets if not self.numbers[name])
        message = f"'{numbers}' and '{classes}' are one table, and only the labels of '{numbers}' are numbers"
        hint = f"take them one by one: sweep: {{dataset: [{', '.join(case.datasets)}]}}"
        yield Diagnostic(
            "E411", message, hint, place=document.place(("datasets", numbers), key=True)
        )

    def _levels(self, document: Document) -> Iterator[Diagnostic]:
        entries = document.data["datasets"]
        for name in (name for name, number in self.numbers.items() if number):
            if entries[name].get("levels") is not None:
                message = "'levels' are thresholds of decisions, and the label is a number"
                place = document.place(("datasets", name, "levels"), key=True)
                yield Diagnostic("E104", message, "leave it out", place=place)


def _check_label_rates(document: Document, case: Case) -> Iterator[Diagnostic]:
    """An E306 for each rate that counts decisions or ranks rows of two classes."""
    for loc, tree in case.texts():
        for leaf in _label_rates(tree):
            if not isinstance(leaf, Leaf) or leaf.rate.of not in NUMERIC_ERROR_RATES:
                message = (
                    f"'{ex.to_text(leaf)}' needs labels of two classes, and here they are numbers"
                )
                hint = f"rates of numbers: {NUMERIC_LABEL_METRICS}"
                yield Diagnostic("E306", message, hint, place=document.place(loc, leaf.span))


def _label_rates(node: Expression) -> Iterator[MeasuredNode]:
    """The rates of an expression, and what `of(...)` measures."""
    yield from ex.measured_nodes(node)
    for part in ex.walk(node):
        if isinstance(part, ex.AlgorithmMetric):
            yield from _label_rates(part.metric)


def _check_label_support(
    reading: ExperimentReader, case: Case, *, numbers: bool
) -> Iterator[Diagnostic]:
    """An E308 where the algorithm, with the options that it has, learns labels of the other kind."""
    place = reading.option(case.label, "")
    if numbers and not case.solver.takes_numbers:
        message = f"algorithm '{case.label}' needs labels of two classes, and here they are numbers"
        able = ", ".join(_numeric_label_algorithms())
        hint = f"algorithms that can: {able}" if able else "no algorithm here can yet"
        yield Diagnostic("E308", message, hint, place=place)
    if not numbers and not case.solver.takes_classes:
        options = solver_class(case.algorithm).numbers or {}
        asked = ", ".join(f"{key}: {value}" for key, value in options.items())
        message = f"'{asked}' of '{case.label}' estimates labels that are numbers, and here they are of two classes"
        hint = "take another value, or say `target: number` of the data set if its label is one"
        yield Diagnostic(
            "E308", message, hint, place=_option_place(reading, case, options) or place
        )


def _option_place(
    reading: ExperimentReader, case: Case, options: Mapping[str, Any]
) -> SourceLocation | None:
    """Where the entry says one of some options."""
    said = next(
        entry.options for entry in reading.experiment.algorithms if entry.label == case.label
    )
    key = next((key for key in options if key in said), None)
    return None if key is None else reading.option(case.label, key)


def _numeric_label_algorithms() -> Iterator[str]:
    """The algorithms that learn numbers, as a file writes them."""
    for name, found in loadable_solvers():
        options = found.numbers
        if options is not None:
            shown = ", ".join(f"{key}: {value}" for key, value in options.items())
            yield f"{name}: {{{shown}}}" if shown else name
