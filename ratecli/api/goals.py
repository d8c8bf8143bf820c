"""The specification of a fit from Python: goals in the language of rates, and an algorithm.

It becomes the content of an experiment, so that the code for files reads and checks it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ratecli.config.document import Document
from ratecli.config.experiment import read_experiment
from ratecli.errors import Diagnostic, FaultError, Loc
from ratecli.experiment.cases import Case
from ratecli.experiment.reading import ExperimentReader, ParsedRules
from ratecli.solvers.registry import all_algorithms

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

    def read(self, columns: Mapping[str, Sequence[str | float]]) -> ParsedFitSpec:
        """Parse the specification; `columns` has the distinct values of each column of the rows.

        Raises
        ------
        FaultError
            E1xx, E2xx, E3xx as for a file, located in what the user wrote.
        """
        names = ConstraintNames({name: shown for name, shown, _, _ in self._rules()})
        with names.in_errors():
            document = self._document()
            experiment = read_experiment(document)
            rules = ParsedRules.of(experiment)
            pool = (ROWS_DATASET,)
            reading = ExperimentReader(experiment, document, rules, columns={pool: columns})
            case, *others = reading.cases()
        for other in others:
            if other.solver.role != "ignores":
                message = f"of({other.label}, ...) names an algorithm that enforces constraints"
                hint = "name one that ignores them, such as unconstrained"
                raise FaultError(Diagnostic("E310", message, hint))
        return ParsedFitSpec(reading, case, tuple(others), names)

    def _document(self) -> Document:
        """Return the experiment, with the user's arguments as places."""
        rules = list(self._rules())
        # algorithms that goals compare with must not see the test rows, but need not pass the test
        entry = {} if self.safety is None else {"safety": {"test": False}}
        others: list[Mapping[str, Any]] = [{name: entry} for name in self._others()]
        content: dict[str, Any] = {
            "name": "fit",
            "datasets": {ROWS_DATASET: {"path": "rows.csv"}},
            "objective": _rule_text(self.objective, "objective"),
            "groups": {
                name: _rule_text(text, _item("groups", name)) for name, text in self.groups.items()
            },
            "constraints": {name: _rule_text(text, place) for name, _, text, place in rules},
            "sweep": {name: [value] for name, value in self.parameters.items()},
            "regularization": {"l2": self.l2},
            "algorithms": [{self.algorithm: self.options}, *others],
            "metrics": {name: _rule_text(text, name) for name, text in self.metrics.items()},
        }
        content |= {} if self.deployed is None else {"deployed": {"column": self.deployed}}
        content |= {} if self.safety is None else {"safety": self.safety}
        places: dict[Loc, str] = {
            ("sweep",): "parameters",
            ("regularization",): "l2",
            ("algorithms",): "solver",
            ("algorithms", 0, self.algorithm): f"options of {self.algorithm}",
            **{("groups", name): _item("groups", name) for name in self.groups},
            **{("constraints", name): place for name, _, _, place in rules},
            **{("metrics", name): name for name in self.metrics},
        }
        return Document.of_data(content, names=places)

    def _rules(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield each constraint's name in the experiment, its display name, text and location.

        The display name is the constraint's text if it has no name.
        """
        given = self.constraints
        if isinstance(given, Mapping):
            for name, text in given.items():
                yield name, name, text, _item("constraints", name)
            return
        for k, text in enumerate([given] if isinstance(given, str) else given):
            yield f"rule_{k + 1}", text, text, f"constraints[{k}]"

    def _others(self) -> list[str]:
        """Return the algorithms that `of(...)` refers to."""
        texts = [self.objective, *(text for _, _, text, _ in self._rules())]
        named = dict.fromkeys(name for text in texts for name in _OF.findall(str(text)))
        return [name for name in named if name in all_algorithms() and name != self.algorithm]


def _item(argument: str, name: str) -> str:
    return f"{argument}[{name!r}]"


def _rule_text(text: object, place: str) -> str:
    """Return a rule on one line; raise E103 if it is not a string."""
    if not isinstance(text, str):
        message = f"{place} must be a text such as 'error', not {text!r}"
        raise FaultError(Diagnostic("E103", message))
    return " ".join(text.splitlines()).strip()


@dataclass(frozen=True)
class ConstraintNames:
    """What the user calls each constraint, by its name in the experiment."""

    shown: Mapping[str, str]

    def in_text(self, text: str) -> str:
        """Replace the names of constraints in a message by what the user calls them."""
        for name, shown in self.shown.items():
            text = text.replace(f"'{name}'", f"'{shown}'")
        return text

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """Rename the constraints in errors that are raised in the block."""
        try:
            yield
        except FaultError as error:
            raise FaultError(
                replace(fault, message=self.in_text(fault.message)) for fault in error.faults
            ) from None


@dataclass(frozen=True)
class ParsedFitSpec:
    """A parsed `FitSpec`; `others` are the cases of the algorithms that `of(...)` refers to."""

    reading: ExperimentReader
    case: Case
    others: tuple[Case, ...]
    names: ConstraintNames
