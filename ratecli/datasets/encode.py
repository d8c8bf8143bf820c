"""Encode columns as features, fitted on the training rows; apply the encoding to new rows.

Numbers are centred and scaled to standard deviation 1; a missing number is replaced by the mean. A
category becomes one feature for each value seen in training; a value not seen there has no feature.
Counts of terms become TF-IDF. Row weights are ignored, and no bias is added: that is the solver's
task.

Mean and deviation are computed from the known numbers of the training rows; a column whose squares
under- or overflow is refused with its name. With `missing: mean`, a column with missing numbers
gets a second feature, like `SimpleImputer(add_indicator=True)` of scikit-learn: the fact that a
value is missing is often informative, and for text it is a category, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import AllowInfNan, Field, Strict, TypeAdapter, ValidationError
from scipy import sparse

from ratecli.config.dataset import MAX_COMPONENTS, KernelSpec
from ratecli.datasets.columns import (
    MISSING_CATEGORY,
    CellCounts,
    ColumnKind,
    as_float_array,
    check_scale,
    constant_columns_text,
    is_text,
    missing_cells_error,
    no_mean_error,
    out_of_range_error,
    read_numbers,
)
from ratecli.datasets.table import Table
from ratecli.datasets.text_format import PLAIN, TextFormat, other_notation_error, spelled_numbers
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.models.base import Features, append_columns, features_of_entries
from ratecli.models.layout import NUMBER, NUMBER_OR_MISSING, ColumnLayout

Whole: TypeAlias = Annotated[int, Strict()]


@dataclass(frozen=True)
class KernelMap:
    """Features whose inner products approximate the kernel `exp(-gamma |x - y|^2)`.

    They are those of scikit-learn's RBFSampler (Rahimi and Recht 2007): cosines of random
    projections, which depend on the seed and the number of features x alone.
    """

    gamma: Annotated[float, Strict(), AllowInfNan(False), Field(gt=0)]
    components: Annotated[Whole, Field(ge=1, le=MAX_COMPONENTS)]
    seed: Annotated[Whole, Field(ge=0, lt=2**32)]

    def __str__(self) -> str:
        kernel = f"kernel exp(-{self.gamma:.4g} |x - y|^2)"
        return f"{self.components} random features of the {kernel} of the encoded columns"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"rbf{k + 1}" for k in range(self.components))

    def sampler(self, width: int) -> Any:
        """Return the fitted RBFSampler of `width` features."""
        from sklearn.kernel_approximation import RBFSampler  # noqa: PLC0415  slow

        sampler = RBFSampler(gamma=self.gamma, n_components=self.components, random_state=self.seed)
        return sampler.fit(np.zeros((1, width)))  # of which it uses the width alone

    def transform(self, X: Features) -> NDArray[np.float64]:
        """Return (n, components) of features X (n, d)."""
        return np.asarray(self.sampler(X.shape[1]).transform(X))


def default_gamma(parts: Sequence[Features]) -> float:
    """Return 1 / (d var X), as for scikit-learn's SVC, or 1 / d if var X is 0.

    X (n, d) are training rows, those of one table in each part.
    """
    entries = [part.ravel() if isinstance(part, np.ndarray) else part.data for part in parts]
    count = sum(part.shape[0] * part.shape[1] for part in parts)
    mean, squares = (sum(float((x**k).sum()) for x in entries) / count for k in (1, 2))
    return float(1.0 / (parts[0].shape[1] * (max(squares - mean**2, 0.0) or 1.0)))


RowPositions: TypeAlias = NDArray[np.intp]


class ReadyMadeError(ValueError):
    """The features are a ready-made matrix, not encoded from columns."""


FiniteNumber: TypeAlias = Annotated[float, Strict(), AllowInfNan(False)]


@dataclass(frozen=True)
class NumericBlock:
    """The feature (value - mean) / scale, 0 where the value is missing.

    If `missing`, there is a second feature: 1 where the value is missing, else 0. If `required`, a
    missing value is an error, as in the scores of an existing model.
    """

    column: str
    mean: FiniteNumber
    scale: Annotated[FiniteNumber, Field(gt=0)]
    missing: Annotated[bool, Strict()] = False
    required: Annotated[bool, Strict()] = False

    @property
    def names(self) -> tuple[str, ...]:
        more = (f"{self.column}={MISSING_CATEGORY}",) if self.missing else ()
        return (self.column, *more)

    def entries(self, table: Table) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return, for each row, which of the features may be nonzero, and its value.

        Raises E407 for a number too far from those of the training rows, or a required one missing.
        """
        column = table.values[self.column]
        assert isinstance(column, np.ndarray)
        if self.required:
            hint = "fill in the scores, or drop such rows"
            read_numbers(pd.Series(column, name=self.column), code="E407", hint=hint)
        with np.errstate(over="ignore"):
            values = (column - self.mean) / self.scale
        gone, far = np.isnan(values), np.isinf(values)
        if far.any():
            row = int(np.argmax(far))
            shown = f"{column[row]:g} in row {row + 1}"
            raise out_of_range_error(self.column, shown, self.mean, self.scale)
        values[gone] = float(self.missing)
        return (gone & self.missing).astype(np.int64), values


@dataclass(frozen=True)
class OneHotBlock:
    """One indicator feature for each level."""

    column: str
    levels: Annotated[tuple[str, ...], Field(min_length=1)]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.column}={level}" for level in self.levels)

    def entries(self, table: Table) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the position of each row's level (0 if unknown), and 1 if it is known, else 0."""
        column = _empty_as_text(table.values[self.column])
        assert isinstance(column, pd.Categorical)
        known = {level: k for k, level in enumerate(self.levels)}
        places = np.array([known.get(name, -1) for name in column.categories], dtype=np.intp)
        place = places[column.codes]
        return np.maximum(place, 0), (place >= 0).astype(np.float64)


@dataclass(frozen=True)
class Encoder:
    """The encoding fitted on the training rows of all tables.

    `blocks` is empty for ready-made matrices. `idf` has the weight of each term if these are
    counts. With a `kernel`, its features of the encoded columns are the features.
    """

    names: tuple[str, ...]
    blocks: tuple[NumericBlock | OneHotBlock, ...]
    idf: tuple[float, ...] | None = None
    kernel: KernelMap | None = None

    @classmethod
    def of(
        cls, blocks: Sequence[NumericBlock | OneHotBlock], kernel: KernelMap | None = None
    ) -> Encoder:
        """Return the encoder of some columns."""
        names = tuple(name for block in blocks for name in block.names)
        return cls(names if kernel is None else kernel.names, tuple(blocks), kernel=kernel)

    @classmethod
    def fit(
        cls,
        tables: Sequence[Table],
        train: Sequence[RowPositions],
        unseen: Sequence[str] = (),
        score: str = "",
    ) -> Encoder:
        """Fit on the training rows `train` of each table; a row may occur several times.

        The columns `unseen` are left out of the features, and those with the same value in all
        rows. If there is a `score`, this column is the only feature, as it is.

        Raises
        ------
        FaultError
            E407 for a column with missing numbers to be replaced by the mean but no known number,
            E410 if there are no training rows, E411 if the features of the tables differ, are
            ready-made with columns `unseen`, or if none is left.
        """
        if score:
            check_training_rows(sum(map(len, train)))
            return cls.of([NumericBlock(score, mean=0.0, scale=1.0, required=True)])
        _check_same_features(tables)
        first = tables[0]
        if first.matrix is not None:
            if unseen:
                listed = ", ".join(f"'{name}'" for name in unseen)
                message = f"the features are ready-made: {listed} cannot be removed from them"
                hint = "use a data set with columns, such as adult instead of a9a"
                raise FaultError(Diagnostic("E411", message, hint))
            names = tuple(f"x{k + 1}" for k in range(first.matrix.shape[1]))
            return cls(names, (), _fit_idf(tables, train) if first.counts else None)
        check_training_rows(sum(map(len, train)))
        constant = constant_features(tables)
        left = [name for name in first.features if name not in {*unseen, *constant}]
        if not left:
            but = f" but {' and '.join(unseen)}" if unseen else ""
            but += f": {constant_columns_text(constant)}" if constant else ""
            hint = "check 'features' and 'drop'"
            raise FaultError(Diagnostic("E411", f"there are no features{but}", hint))
        return cls.of([_fit_column(name, tables, train) for name in left])

    def with_kernel(
        self,
        kernel: KernelSpec,
        tables: Sequence[Table],
        train: Sequence[RowPositions],
        seed: int,
    ) -> Encoder:
        """Return the encoder of a kernel's features, which are drawn with the `seed`."""
        gamma = kernel.gamma
        if not gamma:
            parts = zip(tables, train, strict=True)
            gamma = default_gamma([self.transform(table, rows) for table, rows in parts])
        return Encoder.of(self.blocks, KernelMap(gamma, kernel.components, seed))

    @property
    def kinds(self) -> dict[str, ColumnKind]:
        """The columns that are encoded, and the kind of each."""
        return {
            block.column: "number" if isinstance(block, NumericBlock) else "text"
            for block in self.blocks
        }

    @property
    def layout(self) -> ColumnLayout:
        """Return which features make up each column; ready-made features are numbers."""
        if not self.blocks or self.kernel:
            return ColumnLayout.numbers(len(self.names))
        kinds = [
            len(block.levels)
            if isinstance(block, OneHotBlock)
            else (NUMBER_OR_MISSING if block.missing else NUMBER)
            for block in self.blocks
        ]
        return ColumnLayout(np.array(kinds, np.intp))

    def as_json(self) -> dict[str, Any]:
        """Return plain values from which `from_json` restores the encoder.

        For ready-made features only their kind: `matrix`, or `counts` of terms.
        """
        if not self.blocks:
            return {"ready_made": "matrix" if self.idf is None else "counts"}
        stated = [{k: v for k, v in asdict(b).items() if v is not False} for b in self.blocks]
        return {"blocks": stated} | ({"kernel": asdict(self.kernel)} if self.kernel else {})

    @classmethod
    def from_json(cls, content: object) -> Encoder:
        """Restore an encoder from `as_json`.

        Raises ReadyMadeError for ready-made features, ValueError for invalid content.
        """
        match content:
            case {"ready_made": "matrix" | "counts" as what}:
                raise ReadyMadeError(what)
            case {"blocks": [_, *_] as stated, **more}:
                pass
            case _:
                raise ValueError("it does not describe the features")
        try:
            blocks = TypeAdapter(tuple[NumericBlock | OneHotBlock, ...]).validate_python(stated)
            kernel = TypeAdapter(KernelMap | None).validate_python(more.get("kernel"))
        except ValidationError as error:
            raise ValueError("its description of the features is not valid") from error
        named = [[block.column for block in blocks]]
        named += [list(block.levels) for block in blocks if isinstance(block, OneHotBlock)]
        if any(len(set(names)) < len(names) for names in named):
            raise ValueError("it describes a column or a level twice")
        return cls.of(blocks, kernel)

    def transform(self, table: Table, rows: RowPositions | None = None) -> Features:
        """Return (n, d) features of n `rows`, or of all; a matrix may be the table's own."""
        if table.matrix is not None and not self.blocks:
            found = table.matrix if self.idf is None else _tf_idf(table.matrix, self.idf)
            return found if rows is None else found[rows]
        columns = self._columns(table, rows)
        return columns if self.kernel is None else self.kernel.transform(columns)

    def _columns(self, table: Table, rows: RowPositions | None) -> Features:
        """Return the encoded columns (n, C), without the kernel."""
        width = sum(len(block.names) for block in self.blocks)
        taken: Any = slice(None) if rows is None else rows
        values = np.empty((len(table) if rows is None else len(rows), len(self.blocks)))
        if width == len(self.blocks) and "text" not in self.kinds.values():
            for k, block in enumerate(self.blocks):  # of one feature each
                values[:, k] = block.entries(table)[1][taken]
            return values
        columns, start = np.empty(values.shape, dtype=np.int64), 0
        for k, block in enumerate(self.blocks):
            place, value = block.entries(table)
            columns[:, k], values[:, k] = start + place[taken], value[taken]
            start += len(block.names)
        return features_of_entries(columns, values, width)


def stack_features(parts: Sequence[Features]) -> Features:
    """Return the rows of all parts, sparse if one of several is."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.vstack(parts)
    return sparse.csr_array(sparse.vstack(parts, format="csr"))


def features_at_levels(X: Features, levels: int) -> Features:
    """Return (M n, d + M) features, sparse if X is: rows repeated M times, with one-hot levels."""
    n = X.shape[0]
    one_hot = np.tile(np.eye(levels), (n, 1))
    return append_columns(X[np.repeat(np.arange(n), levels)], one_hot)


def constant_features(tables: Sequence[Table]) -> dict[str, str]:
    """Return the features with the same value in all rows, with this value, "" if it is missing."""
    found = {
        name: {table.facts[name].only_value(len(table)) for table in tables}
        for name in tables[0].features
    }
    return {name: value for name, (value, *more) in found.items() if value is not None and not more}


def check_training_rows(count: float) -> None:
    if not count:
        message = "there are no training rows"
        raise FaultError(Diagnostic("E410", message, "check 'split'", loc=("split",)))


def _check_same_features(tables: Sequence[Table]) -> None:
    """Raise E411 unless the tables have the same columns, or ready-made matrices of one kind."""
    first, *others = tables
    for table in others:
        differing = sorted(set(first.features) ^ set(table.features))
        widths = {None if each.matrix is None else each.matrix.shape[1] for each in (first, table)}
        if differing or len(widths) > 1 or first.counts != table.counts:
            what = f": '{differing[0]}' is only in one of them" if differing else ""
            hint = "use data sets of one kind, and name the common columns under 'features'"
            raise FaultError(Diagnostic("E411", f"the data sets' features differ{what}", hint))


def _fit_idf(tables: Sequence[Table], train: Sequence[RowPositions]) -> tuple[float, ...]:
    """Return the idf of each term, 1 + log((1 + n) / (1 + n_t)), as in scikit-learn.

    n is the number of training rows, n_t of which have term t.
    """
    # needed for text only
    from sklearn.feature_extraction.text import TfidfTransformer  # noqa: PLC0415

    check_training_rows(sum(map(len, train)))
    matrices = [table.matrix for table in tables if table.matrix is not None]
    rows = [matrix[own] for matrix, own in zip(matrices, train, strict=True)]
    fitted = TfidfTransformer().fit(sparse.vstack(rows, format="csr"))
    return tuple(map(float, fitted.idf_))


def _tf_idf(counts: Features, idf: tuple[float, ...]) -> sparse.csr_array:
    """Return TF-IDF: counts times idf, each row scaled to length 1, or 0 without any term."""
    from sklearn.preprocessing import normalize  # noqa: PLC0415  needed for text only

    weighted = sparse.csr_array(counts, dtype=np.float64, copy=True)
    weighted.data *= np.array(idf)[weighted.indices]
    return sparse.csr_array(normalize(weighted, copy=False))


def _fit_column(
    name: str, tables: Sequence[Table], train: Sequence[RowPositions]
) -> NumericBlock | OneHotBlock:
    columns = [table.values[name] for table in tables]
    if any(isinstance(column, pd.Categorical) for column in columns):
        columns = list(map(_empty_as_text, columns))
    numbers, texts = list[NDArray[np.float64]](), set[str]()
    for column, rows in zip(columns, train, strict=True):
        if isinstance(column, pd.Categorical):
            texts.update(column.categories[np.unique(column.codes[rows])])
        else:
            numbers.append(column[rows])
    if numbers and len(numbers) < len(columns):
        message = f"column '{name}' holds numbers in one data set and text in another"
        raise FaultError(Diagnostic("E411", message, "name it under 'categorical' in both"))
    if not numbers:
        return OneHotBlock(name, tuple(sorted(texts)))
    found = np.concatenate(numbers)
    values, told = found[~np.isnan(found)], any(table.missing for table in tables)
    if not len(values):
        if told:
            raise no_mean_error(name)
        return NumericBlock(name, mean=0.0, scale=1.0)
    missing = told and len(values) < len(found)
    least, most = float(values.min()), float(values.max())
    if least == most:
        return NumericBlock(name, least, 1.0, missing)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = float(values.mean()), float(values.std())
    check_scale(name, scale)
    return NumericBlock(name, mean, scale, missing)


def _empty_as_text(values: NDArray[np.float64] | pd.Categorical) -> Any:
    """Return the values of a column, as text if all are missing."""
    if isinstance(values, pd.Categorical) or not np.isnan(values).all():
        return values
    return pd.Categorical([MISSING_CATEGORY] * len(values))


def encode_new_rows(encoder: Encoder, known: pd.DataFrame) -> tuple[Features, list[Diagnostic]]:
    """Return (n, d) features of rows whose columns are converted by `columns_as_known`.

    A missing number is replaced by the mean of the training rows; a category not seen in training
    has no feature. Also return warnings: W404 for each column with such categories, W405 for each
    with missing numbers that had none in training.
    """
    table = Table(known, tuple(encoder.kinds), np.full(len(known), np.nan), digest="")
    faults = [fault for block in encoder.blocks for fault in _block_warnings(block, table)]
    return encoder.transform(table), faults


def columns_as_known(
    frame: pd.DataFrame,
    kinds: Mapping[str, ColumnKind | None],
    names: Collection[str] = (),
    form: TextFormat = PLAIN,
) -> pd.DataFrame:
    """Return some columns of a table converted to their known kinds (None: either kind).

    `names` are all columns of the table, if the frame has only some of them, for suggestions.
    Numbers in text are written as in the format `form`.

    Raises
    ------
    FaultError
        E205 for missing columns, E411 for text where training rows had numbers or numbers where
        they had text, E407 for infinite values.
    """
    there = list(names) or [str(name) for name in frame.columns]
    faults, missing = list[Diagnostic](), [name for name in kinds if name not in frame]
    if missing:
        listed = ", ".join(f"'{name}'" for name in missing)
        what = "there is no column" if len(missing) == 1 else "there are no columns"
        hint = did_you_mean(missing[0], there, "columns")
        faults.append(Diagnostic("E205", f"{what} {listed}, which the model needs", hint))
    columns = dict[str, Any]()
    for name, kind in kinds.items():
        if name not in frame:
            continue
        if kind == "number":
            columns[name], found = _parse_numbers(frame[name], form)
            faults += found
        elif kind == "text" and frame[name].isna().all():  # also if it is no text
            columns[name] = frame[name].astype(object).where(frame[name].notna(), None)
        elif kind == "text" and not is_text(frame[name]):
            message = f"column '{name}' holds numbers, but it held text in training"
            hint = "write its values as text, in the same way as in training"
            faults.append(Diagnostic("E411", message, hint))
        else:
            columns[name] = frame[name]
    if faults:
        raise FaultError(faults)
    return pd.DataFrame(columns, frame.index)


def _parse_numbers(
    column: pd.Series, form: TextFormat
) -> tuple[NDArray[np.float64], list[Diagnostic]]:
    """Return a column that held numbers in training as numbers, NaN if missing, and its errors."""
    other: Diagnostic | None = None
    if is_text(column):
        words = column.fillna("")
        codes, levels = pd.factorize(words)
        values = spelled_numbers(pa.array(levels, pa.string()), form)[codes]
        wrong = np.isnan(values) & column.notna().to_numpy()
        other = other_notation_error(str(column.name), levels, form) if wrong.any() else None
        wrong |= words.str.contains(r"^[+-]?0\d").to_numpy(dtype=bool)  # a code, see `tables`
    else:
        values, wrong = as_float_array(column), np.zeros(len(column), dtype=bool)
    faults = []
    if wrong.any():
        cells = CellCounts.of(wrong)
        shown = f"but has '{column.iloc[cells.first]}' in row {cells.first + 1}"
        more = f"({cells.many} such rows in total)"
        message = f"column '{column.name}' held numbers in training, {shown} {more}"
        hint = "correct it; an empty field is a missing number"
        faults.append(Diagnostic("E411", message, hint if other is None else other.help))
    infinite = CellCounts.of(np.isinf(values))
    if fault := missing_cells_error(str(column.name), CellCounts(), infinite, means=True):
        faults.append(fault)
    return values, faults


def _block_warnings(block: NumericBlock | OneHotBlock, table: Table) -> Iterator[Diagnostic]:
    column = table.values[block.column]
    if isinstance(column, pd.Categorical):
        new = block.entries(table)[1] == 0
        if new.any():
            shown = column[np.argmax(new)]
            message = (
                f"column '{block.column}': {_count_rows(new)} with a value that did not occur in "
                f"training, such as '{shown}': it counts as none of the known values"
            )
            yield Diagnostic("W404", message)
    elif (
        isinstance(block, NumericBlock)
        and np.isnan(column).any()
        and not (block.missing or block.required)
    ):
        message = (
            f"column '{block.column}' has no number in {_count_rows(np.isnan(column))}: the mean "
            f"of the training rows is used there, {block.mean:g}"
        )
        yield Diagnostic("W405", message)


def _count_rows(which: NDArray[np.bool_]) -> str:
    count = int(which.sum())
    return f"{count} row{'s' * (count != 1)}"
