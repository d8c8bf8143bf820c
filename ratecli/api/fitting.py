"""Fit one algorithm to rows in memory, in the same way as the runner executes a trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import _check_sample_weight

from ratecli.api.goals import ROWS_DATASET, FitSpec, ParsedFitSpec
from ratecli.api.rows import InputRows
from ratecli.config.dataset import MISSING_IS_ERROR, MISSING_TO_MEAN
from ratecli.datasets.columns import (
    ColumnKind,
    constant_columns_text,
    constant_columns_warning,
    is_text,
)
from ratecli.datasets.encode import Encoder, columns_as_known, constant_features
from ratecli.datasets.load import check_feature
from ratecli.datasets.logged import DEPLOYED_DECISION, read_decisions
from ratecli.datasets.split import reserve_safety_rows
from ratecli.datasets.table import Table
from ratecli.datasets.text_format import PLAIN, other_notation_error
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.cases import Case
from ratecli.experiment.checks.rows import check_rows, row_id_warnings
from ratecli.experiment.plan import TrialSpec
from ratecli.ledger.records import MeasuredValue, random_stream
from ratecli.models.base import Array, Classifier, Features
from ratecli.models.recent import fixed_features
from ratecli.rates import expression as ex
from ratecli.rates.matrix import Predictions
from ratecli.rates.sample import Sample, relative_weights
from ratecli.runner.problem import penalty, with_penalties
from ratecli.runner.trial import MeasuredSolution, Trial
from ratecli.runner.workers import limit_to_one_thread
from ratecli.sampling.encoding import Encoding
from ratecli.sampling.resampling import Holdout, TrainingRowsSpec
from ratecli.sampling.rows import ExperimentData, TrialData

WEIGHT_BITS = 32
"""Bits to which sample weights are rounded, so that rounding errors of a constant factor have no
effect (solvers may amplify them).
"""
NO_DATA = ExperimentData((), Path())
MAX_FEATURE_MAGNITUDE = 1e30
"""Largest feature that may be used unscaled (liblinear's limit); its inverse is the smallest."""


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
            check_feature(frame[name], name, meant_as_text=True, means=means)
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
                check_feature(found[name], name, meant_as_text=False)
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


def normalize_weights(sample_weight: Any, X: Any) -> Array:
    """Check sample weights and return them (n,), normalized so that their scale does not matter.

    Raises
    ------
    ValueError
        If weights are not finite, negative, all zero, or too far apart, or their number is not n.
    """
    found = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    try:
        mantissa, exponent = np.frexp(relative_weights(found))
        return np.asarray(
            np.ldexp(np.round(mantissa * 2.0**WEIGHT_BITS) / 2.0**WEIGHT_BITS, exponent)
        )
    except ValueError as error:
        message = f"sample_weight {error}; give a weight of 0 to rows that should not count"
        raise ValueError(message) from None


@contextmanager
def note_zero_weights(weight: Array) -> Iterator[Callable[[Diagnostic], Diagnostic]]:
    """Say in errors about rows that those with weight 0 do not count, if there are any.

    Yields a function that says so in warnings.
    """
    zero = int((weight == 0).sum())
    note = f"; {zero:,} of {len(weight):,} rows have weight 0 and do not count" * bool(zero)

    def noted(fault: Diagnostic) -> Diagnostic:
        about_rows = fault.code == "E206" or fault.code[1] in "34" or fault.code[:2] == "W4"
        return replace(fault, message=fault.message + note) if about_rows else fault

    try:
        yield noted
    except FaultError as error:
        raise FaultError(map(noted, error.faults)) from None
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise ValueError(f"{error}{note}") from None


@dataclass(frozen=True)
class LabelledRows:
    """Rows with labels (n,) and weights (n,) as returned by `normalize_weights`.

    Labels are 0, 1 or NaN, or numbers. `part` (n,) is "train" or "safety" for each row.
    """

    inputs: InputRows
    label: Array
    weight: Array
    part: NDArray[np.str_]

    @classmethod
    def of(cls, inputs: InputRows, label: Array, weight: Array) -> LabelledRows:
        """Return the rows with nonzero weight, all of them as training rows."""
        counted = np.flatnonzero(weight > 0)
        if len(counted) < len(weight):
            inputs, label, weight = inputs.take(counted), label[counted], weight[counted]
        return cls(inputs, label, weight, np.full(len(label), "train"))

    def put_aside(self, holdout: Holdout | None, seed: int) -> LabelledRows:
        """Hold out rows for a safety test, if there is one, choosing them as the runner does.

        Raises
        ------
        FaultError
            E205 if a column to stratify by is missing, E410 if a part would be empty.
        """
        if holdout is None:
            return self
        self.inputs.require(name for name in holdout.stratify if name != "label")
        table = Table(self.inputs.named(holdout.stratify), (), self.label, digest="")
        aside = reserve_safety_rows(
            table,
            np.arange(len(self.inputs)),
            holdout.fraction,
            random_stream(seed, "safety", ROWS_DATASET),
            stratify=holdout.stratify,
            positional=holdout.positional,
        )
        return replace(self, part=np.where(aside, "safety", "train"))

    def training(self) -> NDArray[np.intp]:
        """Return the indices of the rows that are not held out."""
        return np.flatnonzero(self.part == "train")

    def sample(self, deployed: str | None) -> Sample:
        """Return the rows as a sample, with decisions of a deployed model if `deployed` is a
        column.

        Raises
        ------
        FaultError
            E205 or E406 if that column does not exist or does not contain decisions.
        """
        count, columns = len(self.inputs), self.inputs.columns
        found = Sample(columns, self.label, np.full(count, ROWS_DATASET), self.part, self.weight)
        if deployed is None:
            return found
        self.inputs.require([deployed])
        return found.with_deployed(read_decisions(columns[deployed], deployed, DEPLOYED_DECISION))


@dataclass(frozen=True)
class FitResult:
    """The result of fitting a `FitSpec` to rows.

    Attributes
    ----------
    values
        The objective and the violations of constraints on the training rows, by variant and name.
    warnings
        Warnings that depend on the rows (W401 and others).
    """

    read: ParsedFitSpec
    reader: FeatureReader
    measured: MeasuredSolution
    values: Mapping[str, Mapping[str, float]]
    warnings: tuple[Diagnostic, ...]


def fit_rows(spec: FitSpec, rows: LabelledRows, seed: int) -> FitResult:
    """Solve a `FitSpec` on training rows, holding out some of the rows if it has a safety test.

    Raises
    ------
    FaultError
        E1xx to E4xx if the specification is invalid or does not fit the rows.
    """
    read = spec.read(rows.inputs.slice_columns)
    deployed = [] if spec.deployed is None else [spec.deployed]
    features = select_features(rows.inputs, [*spec.drop, *read.case.unseen, *deployed])
    rows = rows.put_aside(read.case.holdout, seed)
    train = rows.training()
    reader, X, left_out = FeatureReader.of(rows.inputs, features, train, spec.encode, spec.missing)
    sample = replace(rows.sample(spec.deployed), label_range=spec.label_range)
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


def check_fit_rows(read: ParsedFitSpec, data: TrialData) -> list[Diagnostic]:
    """Return all warnings; raise errors that only the rows reveal."""
    reading = replace(read.reading, faults={}, warnings=dict(read.reading.warnings))
    reading.add(check_rows(reading, data, [read.case, *read.others]))
    return list(reading.finish())


def _solve(read: ParsedFitSpec, data: TrialData, seed: int, case: Case) -> MeasuredSolution:
    """Solve a case after solving the cases of the algorithms that its goals refer to."""
    needed = case.referenced_labels(goals_only=True)
    reference: dict[str, Predictions] = {}
    for other in (each for each in read.others if each.label in needed):
        # this algorithm ignores goals, so dropping them does not change the classifier it finds
        found = _solve(read, data, seed, replace(other, constraints=(), metrics={}))
        reference[other.label] = data.predictions(found.solution.main)
    experiment = read.reading.experiment
    # n counts repeated rows: it is the sum of the weights
    n = float(data.sample.weight[data.sample.part == "train"].sum())
    l2 = penalty(experiment.regularization.l2, n)
    case = replace(case, settings=with_penalties(case.settings, n))
    deployed = None if experiment.deployed is None else experiment.deployed.column
    rows = TrainingRowsSpec(case.sampling)
    spec = TrialSpec("", seed, case, NO_DATA, l2, rows, deployed_column=deployed)
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
