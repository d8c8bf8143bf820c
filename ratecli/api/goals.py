"""The specification of a fit from Python: goals in the language of rates, and an algorithm.

It becomes the content of an experiment, so that the code for files reads and checks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from ratecli.config.dataset import MISSING_IS_ERROR
from ratecli.config.document import Document
from ratecli.config.experiment import read_experiment
from ratecli.errors import Diagnostic, FaultError, Loc
from ratecli.experiment.cases import Case
from ratecli.experiment.reading import ExperimentReader, ParsedRules
from ratecli.sampling.slice_columns import SliceColumns
from ratecli.solvers.oracles.choice import named_estimators
from ratecli.solvers.oracles.model_names import SCORE_MODEL

ROWS_DATASET = "rows"
"""Name of the rows as a data set."""
UNCONSTRAINED = "unconstrained"
"""Algorithm to name in a specification that trains nothing, and the one that goals may compare
with by `of(...)`; it gets no constraints."""

ConstraintSpec = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True)
class FitSpec:
    """An algorithm and its goals, as the user of an estimator specified them.

    Attributes
    ----------
    algorithm, options
        The algorithm's name and its options; estimators may be models.
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
    holds, level
        The rows on which the algorithm makes constraints hold, as in an experiment file.
    safety
        The safety test, as in an experiment file.
    metrics
        Further expressions to measure, by name.
    drop
        Columns that are not features.
    encode, missing
        How to make features from columns, as in `FeatureReader.of`.
    label_range
        Smallest and largest possible label if labels are numbers; None for two classes.
    """

    algorithm: str
    options: Mapping[str, Any] | None = None
    objective: str = "error"
    constraints: ConstraintSpec = ()
    groups: Mapping[str, str] | None = None
    parameters: Mapping[str, Any] | None = None
    l2: float | str = "1/n"
    deployed: str | None = None
    holds: str = "train"
    level: float | None = None
    safety: Mapping[str, Any] | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    encode: bool | Literal["auto"] = "auto"
    missing: str = MISSING_IS_ERROR
    label_range: tuple[float, float] | None = None

    @property
    def rules(self) -> dict[str, str]:
        """Constraints by name; those without a name are called `rule_1`, `rule_2`, ..."""
        if isinstance(self.constraints, Mapping):
            return dict(self.constraints)
        texts = [self.constraints] if isinstance(self.constraints, str) else self.constraints
        return {f"rule_{k}": text for k, text in enumerate(texts, start=1)}

    def read(self, columns: SliceColumns) -> ParsedFitSpec:
        """Parse the specification for rows with these columns.

        Raises
        ------
        FaultError
            E1xx, E2xx, E3xx as for a file, located in what the user wrote.
        """
        document = self._document()
        experiment = read_experiment(document)
        rules = ParsedRules.of(experiment)
        numeric = frozenset({ROWS_DATASET} if self.label_range is not None else ())
        reading = ExperimentReader(
            experiment, document, rules, numeric, columns={(ROWS_DATASET,): columns}
        )
        case, *others = reading.cases()
        shown = self.rules
        if isinstance(self.constraints, Mapping):
            shown = {name: name for name in shown}
        return ParsedFitSpec(reading, case, tuple(others), shown)

    def _document(self) -> Document:
        """Return the experiment, with the user's arguments as places."""
        others: list[Mapping[str, Any]] = []
        rules = self.rules
        refers = any("of(" in str(text) for text in (self.objective, *rules.values()))
        if refers and self.algorithm != UNCONSTRAINED:
            # it must not see the test rows, but need not pass the test
            untested = {} if self.safety is None else {"safety": {"test": False}}
            loss = {} if self.label_range is None else {"loss": "squared"}
            others.append({UNCONSTRAINED: untested | loss})
        options = dict(named_estimators(self.options or {}))
        if isinstance(model := options.get("model"), Mapping) and SCORE_MODEL in model:
            message = "an estimator has no existing scores: its model is fitted"
            hint = "use ratecli.run, with `scores` in a data set of the experiment"
            raise FaultError(Diagnostic("E104", message, hint))
        own = {"holds": None if self.holds == "train" else self.holds, "level": self.level}
        options |= {name: value for name, value in own.items() if value is not None}
        goals = {
            "objective": self.objective,
            "groups": self.groups or {},
            "constraints": rules,
            "metrics": self.metrics,
        }
        content: dict[str, Any] = {
            "name": "fit",
            "datasets": {ROWS_DATASET: {"path": "rows.csv"}},
            **{key: _on_one_line(value) for key, value in goals.items()},
            "sweep": {name: [value] for name, value in (self.parameters or {}).items()},
            "regularization": {"l2": self.l2},
            "algorithms": [{self.algorithm: options}, *others],
        }
        content |= {} if self.deployed is None else {"deployed": {"column": self.deployed}}
        content |= {} if self.safety is None else {"safety": self.safety}
        places: dict[Loc, str] = {
            ("sweep",): "parameters",
            ("regularization",): "l2",
            ("algorithms",): "solver",
            ("algorithms", 0, self.algorithm): f"options of {self.algorithm}",
            **{("algorithms", 0, self.algorithm, name): name for name in own},
        }
        if not isinstance(self.constraints, Mapping):
            places |= {("constraints", name): f"constraints[{k}]" for k, name in enumerate(rules)}
        return Document.of_data(content, names=places)


def shared_arguments(estimator: Any) -> dict[str, Any]:
    """Return the parameters of an estimator that are also fields of `FitSpec`."""
    params = estimator.get_params(deep=False)
    return {each.name: params[each.name] for each in fields(FitSpec) if each.name in params}


def _on_one_line(rule: Any) -> Any:
    """Return a rule, or several by name, without line breaks."""
    if isinstance(rule, Mapping):
        return {name: _on_one_line(text) for name, text in rule.items()}
    return " ".join(rule.splitlines()).strip() if isinstance(rule, str) else rule


@dataclass(frozen=True)
class ParsedFitSpec:
    """A parsed `FitSpec`.

    `others` are the cases of the algorithms that `of(...)` refers to; `shown` is what the user
    calls each constraint: its name, or its text if it has no name.
    """

    reading: ExperimentReader
    case: Case
    others: tuple[Case, ...]
    shown: Mapping[str, str]

    def in_text(self, text: str) -> str:
        """Replace the names of constraints in a message by what the user calls them."""
        for name, shown in self.shown.items():
            text = text.replace(f"'{name}'", f"'{shown}'")
        return text
