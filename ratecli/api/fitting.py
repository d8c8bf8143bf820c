"""Fit one algorithm to rows in memory, in the same way as the runner executes a trial.

The arguments of an estimator become a problem, which the code for files reads and checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ratecli.api.inputs import ROWS_DATASET, InputRows, LabelledRows
from ratecli.config.dataset import MISSING_IS_ERROR, MISSING_TO_MEAN, DatasetSpec
from ratecli.config.document import Document
from ratecli.config.experiment import Problem, read_spec
from ratecli.datasets.columns import (
    ColumnKind,
    constant_columns_text,
    constant_columns_warning,
    is_text,
)
from ratecli.datasets.encode import Encoder, columns_as_known, constant_features
from ratecli.datasets.load import check_feature
from ratecli.datasets.table import SliceColumns, Table
from ratecli.datasets.text_format import PLAIN, other_notation_error
from ratecli.errors import Diagnostic, FaultError, Loc
from ratecli.experiment.cases import Case
from ratecli.experiment.checks.rows import check_rows, row_id_warnings
from ratecli.experiment.plan import TrialSpec
from ratecli.experiment.reading import ProblemReader
from ratecli.ledger.records import MeasuredValue
from ratecli.models.base import Classifier, Features
from ratecli.models.output_cache import fixed_features
from ratecli.rates import expression as ex
from ratecli.rates.matrix import Predictions
from ratecli.runner.training_problem import penalty, with_penalties
from ratecli.runner.trial import MeasuredSolution, Trial
from ratecli.runner.workers import limit_to_one_thread
from ratecli.sampling.encoding import Encoding
from ratecli.sampling.rows import ExperimentData, TrialData
from ratecli.solvers.oracles.choice import named_estimators
from ratecli.solvers.oracles.model_names import SCORE_MODEL

NO_DATA = ExperimentData((), Path())
MAX_FEATURE_MAGNITUDE = 1e30
"""Largest feature that may be used unscaled (liblinear's limit); its inverse is the smallest."""


UNCONSTRAINED = "unconstrained"
"""Algorithm to name in a problem that trains nothing, and the one that goals may compare with by
`of(...)`; it gets no constraints."""

ConstraintSpec = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True)
class ReadProblem:
    """A problem about rows in memory, as an estimator's arguments state it.

    `others` are the cases of the algorithms that `of(...)` refers to; `shown` is what the user
    calls each constraint: its name, or its text if it has no name.
    """

    reading: ProblemReader
    case: Case
    others: tuple[Case, ...]
    shown: Mapping[str, str]

    def in_text(self, text: str) -> str:
        """Replace the names of constraints in a message by what the user calls them."""
        for name, shown in self.shown.items():
            text = text.replace(f"'{name}'", f"'{shown}'")
        return text


PLACES: dict[Loc, str] = {
    ("sweep",): "parameters",
    ("regularization",): "l2",
    ("algorithms",): "solver",
}
"""What users of the estimators call parts of an experiment."""


def read_problem(
    columns: SliceColumns,
    algorithm: str,
    options: Mapping[str, Any] | None = None,
    *,
    numeric: bool = False,
    constraints: ConstraintSpec = (),
    parameters: Mapping[str, Any] | None = None,
    l2: float | str = "1/n",
    deployed: str | None = None,
    holds: str = "train",
    level: float | None = None,
    safety: Mapping[str, Any] | None = None,
    **goals: Any,
) -> ReadProblem:
    """Read the problem of one algorithm about rows with these columns.

    Parameters
    ----------
    options
        The algorithm's options; estimators may be models.
    numeric
        Whether labels are numbers.
    constraints
        The keys of a mapping are their names; others are called `rule_1`, `rule_2`, ...
    parameters
        Numbers by the names used in constraints.
    deployed
        The column with a deployed model's decisions.
    l2, holds, level, safety
        As in an experiment file.
    **goals
        Objective, groups and metrics, as in an experiment file; None for the default.

    Raises
    ------
    FaultError
        E1xx, E2xx, E3xx as for a file, located in what the user wrote.
    """
    rules, named = _named_rules(constraints)
    own: dict[str, Any] = {} if holds == "train" else {"holds": holds}
    own |= {} if level is None else {"level": level}
    content = {
        "metrics": {},
        **{key: _on_one_line(value) for key, value in {**goals, "constraints": rules}.items()},
        "sweep": {name: [value] for name, value in (parameters or {}).items()},
        "regularization": {"l2": l2},
        "algorithms": [{algorithm: _options_of(options or {}) | own}],
        "deployed": None if deployed is None else {"column": deployed},
        "safety": safety,
    }
    goal_texts = (goals.get("objective"), *rules.values())
    if algorithm != UNCONSTRAINED and any("of(" in str(text) for text in goal_texts):
        # it must not see the test rows, but need not pass the test
        untested = {} if safety is None else {"safety": {"test": False}}
        loss = {"loss": "squared"} if numeric else {}
        content["algorithms"].append({UNCONSTRAINED: untested | loss})
    places = PLACES | {("algorithms", 0, algorithm): f"options of {algorithm}"}
    places |= {("algorithms", 0, algorithm, name): name for name in own}
    shown = {name: name for name in rules} if named else rules
    if not named:
        places |= {("constraints", name): f"constraints[{k}]" for k, name in enumerate(rules)}
    given = {key: value for key, value in content.items() if value is not None}
    reading = _reader(Document.of_data(given, names=places), columns, numeric=numeric)
    case, *others = reading.cases()
    return ReadProblem(reading, case, tuple(others), shown)


def _named_rules(constraints: ConstraintSpec) -> tuple[dict[str, Any], bool]:
    """Return constraints by name, and whether the user named them."""
    if isinstance(constraints, Mapping):
        return dict(constraints), True
    texts = [constraints] if isinstance(constraints, str) else constraints
    return {f"rule_{k}": text for k, text in enumerate(texts, 1)}, False


def _reader(document: Document, columns: SliceColumns, *, numeric: bool) -> ProblemReader:
    """Return the reader of a problem about rows in memory with these columns."""
    rows = DatasetSpec.model_construct(target="number" if numeric else "classes")
    problem = read_spec(Problem, document)
    return ProblemReader(problem, document, {ROWS_DATASET: rows}, {(ROWS_DATASET,): columns})


def shared_arguments(estimator: Any) -> dict[str, Any]:
    """Return the parameters of an estimator that are also parameters of `read_problem`."""
    params, own = estimator.get_params(deep=False), signature(read_problem).parameters
    return {name: params[name] for name in (*own, "objective", "groups") if name in params}


def _options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with estimators as mappings; raise E104 for an existing score."""
    found = dict(named_estimators(options))
    if isinstance(model := found.get("model"), Mapping) and SCORE_MODEL in model:
        message = "an estimator has no existing scores: its model is fitted"
        hint = "use ratecli.run, with `scores` in a data set of the experiment"
        raise FaultError(Diagnostic("E104", message, hint))
    return found


def _on_one_line(rule: Any) -> Any:
    """Return a rule, or several by name, without line breaks."""
    if isinstance(rule, Mapping):
        return {name: _on_one_line(text) for name, text in rule.items()}
    return " ".join(rule.splitlines()).strip() if isinstance(rule, str) else rule


@dataclass(frozen=True)
class FeatureReader:
    """Turns rows into features as determined by the training rows.

    Attributes
    ----------
    encoding
        The encoding of the columns of a DataFrame; features that are used as they are count as
        ready-made in it.
    unencoded
        Columns of a DataFrame that are used as they are.
    """

    encoding: Encoding
    unencoded: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        inputs: InputRows,
        features: Sequence[str],
        train: NDArray[np.intp],
        encode: bool | Literal["auto"],
        missing: str,
    ) -> tuple[FeatureReader, Features, list[Diagnostic]]:
        """Learn how to make features from the rows `train`; return also the features of all rows.

        Columns of a DataFrame with the same value in all rows are left out (W411), and text
        features that hardly occur in other rows, such as IDs, are reported (W406).
        `encode="auto"` encodes a DataFrame that has text among its features, or whose missing
        numbers are replaced by means.

        Raises
        ------
        FaultError
            E407 or E411 for features that are not finite or cannot be used as they are, E104 for
            options that conflict.
        """
        _check_options(inputs, encode, missing)
        means = missing == MISSING_TO_MEAN
        frame, unlabelled = inputs.named(features), np.full(len(inputs), np.nan)
        table = Table(frame, tuple(features), unlabelled, digest="", missing=means)
        constant = constant_features([table])
        features = [name for name in features if name not in constant]
        if constant and not features:
            raise FaultError(Diagnostic("E411", constant_columns_text(constant), "pass others"))
        warnings = [constant_columns_warning(constant)] if constant else []
        frame = frame[features]
        for name in features:
            check_feature(frame[name], meant_as_text=True, means=means)
            kind = inputs.frame[name].dtype
            if is_text(frame[name]) and not isinstance(kind, pd.CategoricalDtype):
                _check_notation(frame[name])
        text = [name for name in features if is_text(frame[name])]
        if encode is False and text:
            message = f"column '{text[0]}' holds text, which cannot be used unchanged"
            raise FaultError(Diagnostic("E411", message, "set encode=True, or drop it"))
        matrix = inputs.matrix
        if matrix is None and not (text or means if encode == "auto" else encode):
            matrix = frame.to_numpy(dtype=np.float64)
        if matrix is None:
            warnings += row_id_warnings(frame, features, "list it in drop")
            encoder = Encoder.fit([table], [train])
            reader = cls(Encoding.of(encoder, inputs.columns, levels=1))
            return reader, encoder.transform(table), warnings
        names = features or [f"x{k}" for k in range(matrix.shape[1])]
        _check_sizes(matrix, names)
        encoding = Encoding.of(Encoder(tuple(names), ()), inputs.columns, levels=1)
        return cls(encoding, tuple(features)), matrix, warnings

    def inputs_for(
        self, classifier: Classifier, inputs: InputRows
    ) -> tuple[Features, list[Diagnostic]]:
        """Return the inputs of a classifier (n, d + S): features, then membership in each of its
        slices. Also return warnings about values that did not occur in training rows.

        Raises
        ------
        FaultError
            E205, E407, E411 if columns are missing or differ from training.
        """
        matrix = inputs.matrix
        if self.unencoded:
            kinds: dict[str, ColumnKind | None] = dict.fromkeys(self.unencoded, "number")
            found = columns_as_known(inputs.named(kinds), kinds, inputs.names)
            for name in kinds:
                check_feature(found[name], meant_as_text=False)
            matrix = found.to_numpy(dtype=np.float64)
        frame = inputs.named(self.encoding.columns_for(classifier))
        return self.encoding.inputs_for(classifier, frame, list(inputs.columns), matrix)


def _check_notation(column: pd.Series) -> None:
    """Raise E411 if the words of a feature are numbers that pandas did not recognize."""

    def advise(keys: Mapping[str, str]) -> str:
        return f"pandas.read_csv(FILE, {', '.join(f'{k}={v!r}' for k, v in keys.items())})"

    name, text = str(column.name), "; or convert it: astype('category')"
    if fault := other_notation_error(name, column.unique(), PLAIN, text, advise):
        raise FaultError(fault)


def _check_options(inputs: InputRows, encode: bool | str, missing: str) -> None:
    """Raise E104 for invalid options of features, and for options that have no effect."""
    is_array, means = inputs.matrix is not None, missing == MISSING_TO_MEAN
    known = [MISSING_IS_ERROR, MISSING_TO_MEAN]
    if encode not in [True, False, "auto"] or missing not in known:
        reason = "encode must be True, False or 'auto', and missing 'error' or 'mean'"
    elif is_array and (encode is True or means):
        reason = "X is an array, whose numbers are used unchanged: pass a DataFrame"
    elif means and encode is False:
        reason = "encode is False, so numbers are used unchanged"
    else:
        return
    message = f"encode={encode!r} and missing={missing!r} cannot be used: {reason}"
    raise FaultError(Diagnostic("E104", message))


def _check_sizes(X: Features, names: Sequence[str]) -> None:
    """Raise E407 for a column that is too large or too small to be used without scaling."""
    largest = abs(X).max(axis=0)
    sizes = np.ravel(largest.toarray() if sparse.issparse(largest) else largest)
    wrong = (sizes > MAX_FEATURE_MAGNITUDE) | ((sizes > 0) & (sizes < 1 / MAX_FEATURE_MAGNITUDE))
    if wrong.any():
        name, size = names[int(np.argmax(wrong))], sizes[wrong][0]
        message = f"the numbers of column '{name}', up to {size:g}, cannot be used unscaled"
        hint = "use other units, or standardize them: encode=True does so for a DataFrame"
        raise FaultError(Diagnostic("E407", message, hint))


@dataclass(frozen=True)
class FitResult:
    """The result of fitting an algorithm to rows.

    Attributes
    ----------
    values
        The objective and the violations of constraints on the training rows, by variant and name.
    warnings
        Warnings that depend on the rows (W401 and others).
    """

    read: ReadProblem
    reader: FeatureReader
    measured: MeasuredSolution
    values: Mapping[str, Mapping[str, float]]
    warnings: tuple[Diagnostic, ...]


def fit_rows(
    rows: LabelledRows,
    seed: int,
    algorithm: str,
    options: Mapping[str, Any],
    *,
    drop: Sequence[str] = (),
    encode: bool | Literal["auto"] = "auto",
    missing: str = MISSING_IS_ERROR,
    label_range: tuple[float, float] | None = None,
    deployed: str | None = None,
    **stated: Any,
) -> FitResult:
    """Train an algorithm on rows, holding out some of them if it has a safety test.

    `drop` are columns that are not features, `encode` and `missing` are as in `FeatureReader.of`,
    and `label_range` is the smallest and largest possible label if labels are numbers, None for two
    classes. `stated` are the other arguments of `read_problem`.

    Raises
    ------
    FaultError
        E1xx to E4xx if the problem is invalid or does not fit the rows.
    """
    numeric, columns = label_range is not None, rows.inputs.slice_columns
    read = read_problem(columns, algorithm, options, numeric=numeric, deployed=deployed, **stated)
    dropped = [*drop, *read.case.unseen, *([] if deployed is None else [deployed])]
    features = select_features(rows.inputs, dropped)
    rows = rows.put_aside(read.case.holdout, seed)
    reader, X, left_out = FeatureReader.of(rows.inputs, features, rows.training(), encode, missing)
    sample = replace(rows.sample(deployed), label_range=label_range)
    data = TrialData(sample, X, layout=reader.encoding.encoder.layout)
    with limit_to_one_thread():
        warnings = check_fit_rows(read, data)
        found = _solve(read, data, seed, read.case)
    values = _by_name(read.case, found.values)
    return FitResult(read, reader, found, values, (*left_out, *warnings))


def select_features(inputs: InputRows, dropped: Sequence[str]) -> list[str]:
    """Return the columns of a DataFrame that are features; an empty list for an array (all are).

    Raises
    ------
    FaultError
        E205 for a dropped column that does not exist, E411 for a dropped column of an array or if
        no feature is left.
    """
    inputs.require(dropped)
    if inputs.matrix is not None:
        inside = [name for name in dropped if name in inputs.names and name not in inputs.beside]
        if inside:
            message = f"'{inside[0]}' is a column of an array, all columns of which are features"
            raise FaultError(Diagnostic("E411", message, "pass a DataFrame, or sensitive_features"))
        return []
    left = [name for name in inputs.names if name not in dropped]
    if not left:
        raise FaultError(Diagnostic("E411", "no column of X is left as a feature"))
    return left


def check_fit_rows(read: ReadProblem, data: TrialData) -> list[Diagnostic]:
    """Return all warnings; raise errors that only the rows reveal."""
    reading = replace(read.reading, faults={}, warnings=dict(read.reading.warnings))
    reading.add(check_rows(reading, data, [read.case, *read.others]))
    return list(reading.finish())


def _solve(read: ReadProblem, data: TrialData, seed: int, case: Case) -> MeasuredSolution:
    """Solve a case after solving the cases of the algorithms that its goals refer to."""
    needed = case.referenced_labels(goals_only=True)
    reference: dict[str, Predictions] = {}
    for other in (each for each in read.others if each.label in needed):
        # this algorithm ignores goals, so dropping them does not change the classifier it finds
        found = _solve(read, data, seed, replace(other, constraints=(), metrics={}))
        reference[other.label] = data.predictions(found.solution.main)
    problem = read.reading.problem
    # n counts repeated rows: it is the sum of the weights
    n = float(data.sample.weight[data.sample.part == "train"].sum())
    l2 = penalty(problem.regularization.l2, n)
    case = replace(case, settings=with_penalties(case.settings, n))
    deployed = None if problem.deployed is None else problem.deployed.column
    spec = TrialSpec("", seed, case, NO_DATA, l2, case.sampling, deployed_column=deployed)
    trial = Trial(spec, data, reference).with_others()
    with fixed_features(data.X):
        return trial.solve(trial.problem())


def _by_name(case: Case, values: Sequence[MeasuredValue]) -> dict[str, dict[str, float]]:
    """Return the values on training rows by variant and by display name."""
    told = {(each.variant, each.metric): each.value for each in values if each.split == "train"}
    texts = {name: ex.to_text(metric) for name, metric in case.metrics.items()}
    return {
        variant: {name: told[variant, text] for name, text in texts.items()}
        for variant in dict.fromkeys(variant for variant, _ in told)
    }
