"""The input of an estimator: X, sensitive columns beside it, labels, weights and a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, column_or_1d

from ratecli.api.errors import issue_warnings
from ratecli.datasets import tables as own
from ratecli.datasets.columns import LazyMapping, as_array
from ratecli.datasets.logged import DECISION_WORDS, DEPLOYED_DECISION, read_decisions
from ratecli.datasets.split import Holdout, reserve_safety_rows
from ratecli.datasets.table import SliceColumns, Table
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.ledger.records import random_stream
from ratecli.models.base import Array, Features
from ratecli.rates.sample import Sample, relative_weights

ROWS_DATASET = "rows"
"""Name of the rows as a data set."""
WEIGHT_BITS = 32
"""Bits to which sample weights are rounded, so that rounding errors of a constant factor have no
effect (solvers may amplify them).
"""
SENSITIVE_NAME = "sensitive"
"""Name of a single sensitive feature that has no name."""


@dataclass(frozen=True)
class InputRows:
    """n rows of input.

    Attributes
    ----------
    frame
        X as a DataFrame. The columns of an array are called x0, x1, ...; those of a sparse array
        are left out, since constraints cannot use them.
    matrix
        X (n, d) if it is an array; None if it is a DataFrame.
    beside
        Sensitive features, numeric or text. A column of X of the same name has the same values.
    """

    frame: pd.DataFrame
    matrix: Features | None
    beside: pd.DataFrame

    @classmethod
    def of(cls, X: Any, sensitive: Any = None, **others: Any) -> InputRows:
        """Return the rows of X; `others` are further arguments with one value per row, such as y.

        Raises
        ------
        FaultError
            E411 for sensitive features that are neither numbers nor text, E404 for duplicate names.
        ValueError
            If the numbers of rows differ, if `check_indices` fails, or if a sensitive feature has
            the name of a column of X but different values.
        """
        beside = _sensitive_frame(sensitive, X.shape[0])
        parts = (
            {f"sensitive_features[{name!r}]": each for name, each in sensitive.items()}
            if isinstance(sensitive, Mapping)
            else {"sensitive_features": sensitive}
        )
        check_indices({"X": X, **others, **parts})
        if isinstance(X, pd.DataFrame):
            frame, matrix = X.set_axis(list(map(str, X.columns)), axis=1), None
        elif isinstance(X, np.ndarray):
            frame, matrix = pd.DataFrame(X).add_prefix("x"), X
        else:
            frame, matrix = pd.DataFrame(index=range(X.shape[0])), X
        if not frame.columns.is_unique:
            twice = frame.columns[frame.columns.duplicated()][0]
            raise FaultError(Diagnostic("E404", f"X has two columns called '{twice}'"))
        inputs = cls(frame, matrix, beside)
        for name in beside.columns.intersection(inputs.names):
            inputs._check_same(name)
        return inputs

    def __len__(self) -> int:
        return len(self.beside)

    @property
    def names(self) -> list[str]:
        """Names of the columns of X that constraints may use."""
        return list(self.frame.columns)

    @cached_property
    def typed(self) -> Mapping[str, pd.Series]:
        """Columns of X and sensitive features as numbers or text, with index 0..n-1."""
        names = [*self.names, *self.beside.columns]
        return LazyMapping(names, lambda n: self.beside[n] if n in self.beside else self._of_X(n))

    @cached_property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """Arrays (n,) by name: text with None, or floats with NaN, for missing values."""
        return LazyMapping(self.typed, lambda name: as_array(self.typed[name]))

    @cached_property
    def slice_columns(self) -> SliceColumns:
        return SliceColumns(self.columns)

    def _check_same(self, name: str) -> None:
        """Raise ValueError if a sensitive feature and the column of X of the same name differ."""
        own, beside = (pd.Series(as_array(each)) for each in (self._of_X(name), self.beside[name]))
        if not own.equals(beside):
            message = f"X and sensitive_features both have a column '{name}', with different values"
            raise ValueError(f"{message}: rename one of them")

    def _of_X(self, name: str) -> pd.Series:
        if self.matrix is not None:
            return self.frame[name].astype(np.float64)
        return infer_column_types(self.frame[[name]], "X")[name]

    def named(self, names: Iterable[str]) -> pd.DataFrame:
        """Return those of the named columns that constraints may refer to."""
        there = {name: self.typed[name] for name in names if name in self.typed}
        return pd.DataFrame(there, index=range(len(self)))

    def require(self, names: Iterable[str]) -> None:
        """Raise E205 for a name that is no column of X or of the sensitive features."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            hint = did_you_mean(missing[0], self.columns, "columns")
            raise FaultError(Diagnostic("E205", f"there is no column '{missing[0]}'", hint))

    def take(self, rows: NDArray[np.intp]) -> InputRows:
        frame, beside = (
            each.iloc[rows].reset_index(drop=True) for each in (self.frame, self.beside)
        )
        return InputRows(frame, None if self.matrix is None else self.matrix[rows], beside)


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
        rng = random_stream(seed, "safety", ROWS_DATASET)
        aside = reserve_safety_rows(table, np.arange(len(self.inputs)), holdout, rng)
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
        rounded = np.round(mantissa * 2.0**WEIGHT_BITS) / 2.0**WEIGHT_BITS
        return np.asarray(np.ldexp(rounded, exponent))
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
        about_rows = fault.code.startswith(("E206", "E3", "E4", "W3", "W4"))
        return replace(fault, message=fault.message + note) if about_rows else fault

    try:
        yield noted
    except FaultError as error:
        raise FaultError(map(noted, error.faults)) from None
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise ValueError(f"{error}{note}") from None


@contextmanager
def sensitive_hints(way: str) -> Iterator[None]:
    """Add hints to errors: how to pass a missing column (E205), how to cut a numeric one (E304).

    `way` is the hint, with `{passed}` in place of the argument.
    """
    try:
        yield
    except FaultError as error:
        raise FaultError([_with_hint(each, way) for each in error.faults]) from None


def _with_hint(fault: Diagnostic, way: str) -> Diagnostic:
    if fault.code == "E304" and (fault.help or "").startswith("cut it"):
        return replace(fault, help="pass a cut column: pandas.cut(VALUES, [LOW, ..., HIGH])")
    if fault.code != "E205" or (fault.help or "").startswith("did you mean"):
        return fault
    name = fault.message.partition("'")[2].partition("'")[0]
    passed = f"sensitive_features={{'{name}': VALUES}}"
    return replace(fault, help=f"{fault.help}; pass it beside X: {way.format(passed=passed)}")


def known_labels(y: Any, name: str = "y") -> NDArray[Any]:
    """Return labels (n,) as an array; raise ValueError if one is missing."""
    found = column_or_1d(y, warn=True)
    missing = np.flatnonzero(own.missing_values(found))
    if len(missing):
        many = f"{len(missing)} such rows in total"
        message = f"{name} has no label in row {missing[0] + 1} ({many}): leave them out"
        raise ValueError(message)
    return np.asarray(found)


@dataclass(frozen=True)
class BinaryLabels:
    """Two labels, sorted, and the index (0 or 1) of the positive one."""

    labels: NDArray[Any]
    positive: int

    @classmethod
    def of(cls, y: Any, pos_label: Any) -> BinaryLabels:
        """Raise ValueError unless y has two labels and `pos_label` is one of them or None."""
        if y is None:
            raise ValueError("it requires y to be passed, but the target y is None")
        y = known_labels(y)
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        labels = np.unique(y)
        if kind != "binary":
            message = "Only binary classification is supported. The type of the target is"
            raise ValueError(f"{message} {kind}.")
        if len(labels) < 2:
            raise ValueError(f"y must have two labels, not {len(labels)} class: {labels.tolist()}")
        if pos_label not in [None, *labels.tolist()]:
            raise ValueError(f"pos_label is {pos_label!r}, but the labels are {labels.tolist()}")
        return cls(labels, 1 if pos_label is None else labels.tolist().index(pos_label))

    def warn_of_words(self, pos_label: Any) -> None:
        """Warn if labels are words and `pos_label` is None: then the larger one is positive.

        The labels yes and no, and true and false, need no warning.
        """
        words = {str(label).lower() for label in self.labels}
        if pos_label is None and self.labels.dtype.kind in "OUS" and words - set(DECISION_WORDS):
            positive = self.labels[self.positive]
            issue_warnings([f"'{positive}' is the positive label; pos_label can name the other"])

    def yes(self, y: Any) -> Array:
        """Return (n,) 1 where the label is positive, else 0; raise ValueError for other labels."""
        y = known_labels(y)
        if not (known := np.isin(y, self.labels)).all():
            raise ValueError(f"y contains {y[~known][0]!r}, but the labels are {self.labels}")
        return np.asarray(y == self.labels[self.positive], dtype=np.float64)

    def of_decisions(self, yes: NDArray[np.bool_]) -> NDArray[Any]:
        """Return labels (n,) for decisions (n,)."""
        return np.asarray(self.labels[np.where(yes, self.positive, 1 - self.positive)])

    def both(self, chance: Array) -> Array:
        """Return probabilities (n, 2) in the order of the labels.

        `chance` (n,) is the probability of the positive label.
        """
        pair = [1 - chance, chance] if self.positive else [chance, 1 - chance]
        return np.stack(pair, axis=1)


def check_indices(arguments: Mapping[str, Any]) -> None:
    """Raise ValueError if two pandas arguments of equal length have different indices.

    scikit-learn matches rows by position, pandas by index. If the two differ, either may be
    intended, so the caller must decide.
    """
    indices = {
        name: each.index
        for name, each in arguments.items()
        if isinstance(each, pd.DataFrame | pd.Series)
    }
    first = next(iter(indices), "")
    for name, other in indices.items():
        index = indices[first]
        if len(index) == len(other) and not index.equals(other):  # lengths are checked elsewhere
            raise ValueError(
                f"{first} and {name} have different indices: reorder one of them, or, if rows "
                "belong together by position, call reset_index(drop=True) on both"
            )


def infer_column_types(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """Return the columns of a DataFrame as numbers or text, as if they had been read from a file.

    Categories and strings remain text even if they look like numbers; truth values become text,
    too.
    """
    table, types = to_arrow_table(frame, what), pa.types
    tests = (types.is_dictionary, types.is_string, types.is_large_string)
    text = [each.name for each in table.schema if any(test(each.type) for test in tests)]
    return own.typed_columns(own.TableFile(Path(what), "parquet"), table, table.column_names, text)


def to_arrow_table(frame: pd.DataFrame, what: str) -> pa.Table:
    """Convert a DataFrame; raise E411 for a column with values of several types.

    The intervals of `pandas.cut` become text.
    """
    frame = frame.copy(deep=False)
    for name, column in frame.items():
        kind = getattr(column.dtype, "categories", column).dtype
        if isinstance(kind, pd.IntervalDtype):
            frame[name] = column.map(str, na_action="ignore")
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(map(str, error.args))
        message = f"a column of {what} holds neither numbers nor text: {reason}"
        raise FaultError(Diagnostic("E411", message)) from None


def _sensitive_frame(sensitive: Any, count: int) -> pd.DataFrame:
    """Convert a DataFrame, mapping, Series or array (n,) to a DataFrame of numbers and text."""
    if sensitive is None:
        return pd.DataFrame(index=range(count))
    if isinstance(sensitive, pd.DataFrame):
        framed = sensitive
    elif isinstance(sensitive, Mapping):
        framed = pd.DataFrame({name: pd.Series(values).array for name, values in sensitive.items()})
    else:
        column = pd.Series(sensitive)
        framed = column.to_frame(SENSITIVE_NAME if column.name is None else column.name)
    named = framed.set_axis(list(map(str, framed.columns)), axis=1)
    found = infer_column_types(named, "sensitive_features")
    if len(found) != count:
        raise ValueError(f"sensitive_features has {len(found)} rows, and X has {count}")
    return found


def seed_from_random_state(random_state: Any) -> int:
    """Return an integer unchanged, as it is equivalent to the seed of a file, or sample one."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    found: int = check_random_state(random_state).randint(2**31 - 1)
    return found


def sensitive_arguments(estimator: Any, sensitive: Any) -> dict[str, Any]:
    """Return the arguments of an estimator's `predict` that pass sensitive features, if requested.

    It requests them by metadata routing, if that is enabled, or by a parameter of `predict`.
    """
    name = "sensitive_features"
    if get_config()["enable_metadata_routing"]:
        asks = name in get_routing_for_object(estimator).consumes("predict", [name])
    else:
        asks = name in signature(estimator.predict).parameters
    return {name: sensitive} if asks and sensitive is not None else {}


def predict_with_sensitive(estimator: Any, X: Any, sensitive: Any) -> Any:
    """Return an estimator's predictions, passing sensitive features if it requests them."""
    return estimator.predict(X, **sensitive_arguments(estimator, sensitive))
