"""The specification of a fit from Python: goals in the language of rates, and an algorithm.

It is written out as the YAML of an experiment, so that the code for files reads and checks it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import Any

from ratecli.config.document import Document
from ratecli.config.experiment import Experiment, read_experiment
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.cases import Case
from ratecli.experiment.reading import ColumnValues, ExperimentReader
from ratecli.solvers.registry import all_algorithms

TEXT_ON_NEXT_LINE = -1
ESCAPED_BREAKS = {code: f"\\u{code:04x}" for code in (0x7F, 0x85, 0x2028, 0x2029, 0xFEFF)}
"""Characters that JSON leaves unescaped but YAML treats as line breaks or rejects."""


@dataclass
class YamlWriter:
    """Writes YAML line by line and maps positions in it back to the user's arguments.

    `names` maps the names of constraints in the experiment to what the user calls them. `places`
    has, for each line, the name of the user's argument and by how many columns its text is indented
    (`TEXT_ON_NEXT_LINE` if the text is on the next line).
    """

    names: Mapping[str, str]
    lines: list[str] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)

    def line(self, text: str, place: str = "") -> None:
        self.lines.append(text)
        self.places.append((place, 0))

    def key(self, name: str, value: Mapping[str, Any], place: str) -> None:
        """Write a mapping on one line, unless it is empty."""
        if value:
            self.line(f"{name}: {to_json_line(value, place)}", place)

    def rule(self, name: str, text: object, place: str) -> None:
        """Write a rule as a single line of text; raise E103 if it is not a string."""
        if not isinstance(text, str):
            message = f"{place} must be a text such as 'error', not {text!r}"
            raise FaultError(Diagnostic("E103", message))
        indent = len(name) - len(name.lstrip()) + 2
        self.lines.append(f"{name}: |-")
        self.places.append((place, TEXT_ON_NEXT_LINE))
        self.lines.append(" " * indent + " ".join(text.splitlines()).strip())
        self.places.append((place, indent))

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Relocate errors raised inside the context to what the user wrote."""
        try:
            yield
        except FaultError as error:
            raise FaultError(map(self.placed, error.faults)) from None

    def told(self, text: str) -> str:
        """Replace the names of constraints in a message by what the user calls them."""
        for name, called in self.names.items():
            text = text.replace(f"'{name}'", f"'{called}'")
        return text

    def placed(self, fault: Diagnostic) -> Diagnostic:
        fault, found = replace(fault, message=self.told(fault.message)), fault.place
        if found is None or not 1 <= found.line <= len(self.places):
            return fault
        place, indent = self.places[found.line - 1]
        if not place:
            return replace(fault, place=None)
        here = replace(found, file=place, line=1)
        if indent == TEXT_ON_NEXT_LINE:
            text = self.lines[found.line].strip()
            return fault.at(replace(here, column=1, width=len(text), excerpt=text))
        column = max(1, found.column - indent)
        return fault.at(replace(here, column=column, excerpt=found.excerpt[indent:]))


def to_json_line(value: object, place: str) -> str:
    """Return a value, possibly NumPy, as one line of JSON; raise E103 if that is impossible."""
    try:
        return json.dumps(value, default=to_plain_value, ensure_ascii=False).translate(
            ESCAPED_BREAKS
        )
    except (TypeError, ValueError) as error:
        raise FaultError(Diagnostic("E103", f"{place}: {error}")) from None


def to_plain_value(value: Any) -> Any:
    """Convert a NumPy value or a path for JSON; raise TypeError for anything else."""
    if isinstance(value, PathLike):
        return fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is neither number, text, list nor mapping")


ROWS_DATASET = "rows"
"""Name of the rows as a data set."""
UNCONSTRAINED = "unconstrained"
"""Algorithm to name in a specification that trains nothing; it gets no constraints."""
_OF = re.compile(r"\bof\(\s*([A-Za-z_]\w*)")

ConstraintSpec = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True)
class FitSpec:
    """An algorithm and its goals, as the user of an estimator specified them.

    Attributes
    ----------
    algorithm, options
        The algorithm's name and its options.
    objective
        The expression to minimize.
    constraints
        The constraints; the keys of a mapping are their names.
    groups, parameters
        Conditions and numbers by the names used in constraints.
    l2
        A number, or `c/n` for n rows.
    deployed
        The column with a deployed model's decisions.
    safety
        The safety test, as in an experiment file.
    metrics
        Further expressions to measure, by name.
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
        """Map each constraint's name in the experiment to what the user calls it.

        That is its name, or its text if it has no name.
        """
        if isinstance(self.constraints, Mapping):
            return {name: name for name in self.constraints}
        return {name: text for name, text, _ in self._rules()}

    def read(self, columns: Mapping[str, Sequence[str | float]]) -> ParsedFitSpec:
        """Parse the specification; `columns` has the distinct values of each column of the rows.

        Raises
        ------
        FaultError
            E1xx, E2xx, E3xx as for a file, located in what the user wrote.
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
        if self.safety is not None:  # {} is a test with default settings
            found.line(f"safety: {to_json_line(self.safety, 'safety')}", "safety")
        found.line("algorithms:")
        options = to_json_line({self.algorithm: dict(self.options)}, "options")
        found.line(f"  - {options}", "solver")
        # algorithms that goals compare with must not see the test rows, but need not pass the test
        untested = "" if self.safety is None else ": {safety: {test: false}}"
        for name in self._others():
            found.line(f"  - {name}{untested}")
        found.line("metrics:" if self.metrics else "metrics: {}")
        for name, text in self.metrics.items():
            found.rule(f"  {name}", text, name)
        return found

    def _rules(self) -> Iterator[tuple[str, str, str]]:
        """Yield each constraint's name in the experiment, its text and its location."""
        given = self.constraints
        if isinstance(given, Mapping):
            yield from ((name, text, f"constraints[{name!r}]") for name, text in given.items())
            return
        listed = [given] if isinstance(given, str) else list(given)
        for number, text in enumerate(listed):
            yield f"rule_{number + 1}", text, f"constraints[{number}]"

    def _others(self) -> list[str]:
        """Return the algorithms that `of(...)` refers to."""
        texts = [self.objective, *(text for _, text, _ in self._rules())]
        named = dict.fromkeys(name for text in texts for name in _OF.findall(text))
        return [name for name in named if name in all_algorithms() and name != self.algorithm]


@dataclass(frozen=True)
class ParsedFitSpec:
    """A parsed `FitSpec`; `others` are the cases of the algorithms that `of(...)` refers to."""

    experiment: Experiment
    document: Document
    reading: ExperimentReader
    case: Case
    others: tuple[Case, ...]
    written: YamlWriter

    @property
    def deployed(self) -> str | None:
        """The column with a deployed model's decisions."""
        return None if self.experiment.deployed is None else self.experiment.deployed.column
