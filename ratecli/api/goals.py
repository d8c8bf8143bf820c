"""What is asked of rows that are in no file: goals in the language of rates, and an algorithm.

It is written down as an experiment, so that the very code reads and checks it that reads a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ratecli.api.lines import YamlWriter, to_json_line
from ratecli.config.document import Document
from ratecli.config.experiment import Experiment, read_experiment
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.cases import Case
from ratecli.experiment.reading import ColumnValues, ExperimentReader
from ratecli.solvers.registry import all_algorithms

ROWS_DATASET = "rows"
"""What the rows are called as a data set."""
UNCONSTRAINED = "unconstrained"
"""Stands for what finds the decisions where nothing is trained: it is given no constraints."""
_OF = re.compile(r"\bof\(\s*([A-Za-z_]\w*)")

ConstraintSpec = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True)
class FitSpec:
    """What an estimator was told.

    Attributes
    ----------
    algorithm, options
        The algorithm's name and its options.
    objective
        What is to be small.
    constraints
        Rules, with names of their own or without.
    groups, parameters
        Conditions and numbers by the names that rules have for them.
    l2
        A number, or `c/n` of n rows.
    deployed
        The column of a deployed model's decisions.
    safety
        The test that is asked for, as a file would have it.
    metrics
        What is to be measured beside, by name.
    """

    algorithm: str
    options: Mapping[str, Any] = field(default_factory=dict)
    objective: str = "error"
    constraints: ConstraintSpec = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    l2: float | str = "1/n"
    deployed: str | None = None
    safety: Mapping[str, Any] | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)

    def shown(self) -> dict[str, str]:
        """What the user calls each constraint of the experiment: its name, or its text without one."""
        if isinstance(self.constraints, Mapping):
            return {name: name for name in self.constraints}
        return {name: text for name, text, _ in self._rules()}

    def read(self, columns: Mapping[str, Sequence[str | float]]) -> ParsedFitSpec:
        """Understand it, given the values of each column of the rows.

        Raises
        ------
        FaultError
            E1xx, E2xx, E3xx as for a file, placed in what the user wrote.
        """
        written = self._written()
        with written.placing():
            document = Document.of_text(written.text())
            experiment = read_experiment(document)
            reading = ExperimentReader(
                experiment, document, {(ROWS_DATASET,): ColumnValues(columns)}
            )
            cases = reading.cases()
        case, *others = cases
        for other in others:
            if other.solver.role != "ignores":
                message = f"of({other.label}, ...) asks for an algorithm that takes goals itself"
                hint = "name one that ignores them, such as unconstrained"
                raise FaultError(Diagnostic("E310", message, hint))
        return ParsedFitSpec(experiment, document, reading, case, tuple(others), written)

    def _written(self) -> YamlWriter:
        found = YamlWriter(self.shown())
        found.line("name: question")
        found.line(f"datasets: {{{ROWS_DATASET}: {{path: rows.csv}}}}")
        found.rule("objective", self.objective, "objective")
        if self.groups:
            found.line("groups:")
        for name, text in self.groups.items():
            found.rule(f"  {to_json_line(name, 'groups')}", text, f"groups[{name!r}]")
        rules = list(self._rules())
        if rules:
            found.line("constraints:")
        for name, text, place in rules:
            found.rule(f"  {to_json_line(name, 'constraints')}", text, place)
        swept = {name: [value] for name, value in self.parameters.items()}
        found.key("sweep", swept, "parameters")
        found.key("regularization", {"l2": self.l2}, "l2")
        found.key("deployed", {"column": self.deployed} if self.deployed else {}, "deployed")
        if self.safety is not None:  # an empty one is a test with the defaults
            found.line(f"safety: {to_json_line(self.safety, 'safety')}", "safety")
        found.line("algorithms:")
        options = to_json_line({self.algorithm: dict(self.options)}, "options")
        found.line(f"  - {options}", "solver")
        # what goals compare with must not have seen the rows of the test, and need not pass it
        untested = "" if self.safety is None else ": {safety: {test: false}}"
        for name in self._others():
            found.line(f"  - {name}{untested}")
        found.line("metrics:" if self.metrics else "metrics: {}")
        for name, text in self.metrics.items():
            found.rule(f"  {name}", text, name)
        return found

    def _rules(self) -> Iterator[tuple[str, str, str]]:
        """Of each constraint its name in the experiment, its text, and its place."""
        given = self.constraints
        if isinstance(given, Mapping):
            yield from ((name, text, f"constraints[{name!r}]") for name, text in given.items())
            return
        listed = [given] if isinstance(given, str) else list(given)
        for number, text in enumerate(listed):
            yield f"rule_{number + 1}", text, f"constraints[{number}]"

    def _others(self) -> list[str]:
        """Algorithms that `of(...)` speaks of."""
        texts = [self.objective, *(text for _, text, _ in self._rules())]
        named = dict.fromkeys(name for text in texts for name in _OF.findall(text))
        return [name for name in named if name in all_algorithms() and name != self.algorithm]


@dataclass(frozen=True)
class ParsedFitSpec:
    """A question understood; `others` are cases of the algorithms that `of(...)` speaks of."""

    experiment: Experiment
    document: Document
    reading: ExperimentReader
    case: Case
    others: tuple[Case, ...]
    written: YamlWriter

    @property
    def deployed(self) -> str | None:
        """The column of a deployed model's decisions."""
        return None if self.experiment.deployed is None else self.experiment.deployed.column
