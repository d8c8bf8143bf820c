"""The stacked rows of an experiment, from which slices and rates are computed; row weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ratecli.rates.expression import Slice
from ratecli.rates.syntax import AnyOf, Clause, parse_number
from ratecli.rates.table import OTHER, Rate

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Entries = TypeVar("Entries", bound=NDArray[Any] | sparse.csr_array)

MAX_REPEATS = 1000
"""Weights up to this multiple of the smallest one may be read as numbers of repetitions."""
MAX_WEIGHT_RATIO = 1e15
"""Beyond this ratio, adding the smallest weight to the largest one has no effect."""
WEIGHT_TOLERANCE = 1e-12
"""Relative rounding error of a weight that was multiplied by a constant."""


def read_only(values: Entries) -> Entries:
    """Return the same array or CSR matrix without the right to write to it.

    The result shares memory with `values`, which stay as they are. Solvers, models and data sets of
    other packages receive such arrays, so that none can change what the others receive.
    """
    found: Any = values
    if isinstance(values, np.ndarray):
        if values.flags.writeable and values.size and values.dtype.kind in "biuf":
            found = np.asarray(memoryview(found).toreadonly())  # writing cannot be allowed again
        elif values.flags.writeable:
            found = values.view()
            found.flags.writeable = False
    else:
        parts = values.data, values.indices, values.indptr
        if any(part.flags.writeable for part in parts):
            found = type(values)(tuple(map(read_only, parts)), values.shape)
    result: Entries = found
    return result


def make_read_only(record: Any) -> None:
    """Replace the arrays of a frozen dataclass, and of dictionaries in it, by `read_only` ones."""
    for name, value in vars(record).items():
        if isinstance(value, dict):
            changed = {key: _read_only_array(each) for key, each in value.items()}
        else:
            changed = _read_only_array(value)
        object.__setattr__(record, name, changed)


def _read_only_array(value: Any) -> Any:
    is_array = isinstance(value, np.ndarray | sparse.csr_array | sparse.csr_matrix)
    return read_only(value) if is_array else value


@dataclass(frozen=True)
class Logs:
    """Logged decisions of n rows and their outcomes.

    Attributes
    ----------
    action
        (n,) the logged decision, 0 or 1; NaN in rows without one.
    weight
        (n,) importance weights: 1 over the chance of the logged decision.
    outcomes
        (n,) arrays by name.
    models, truths
        For outcomes with a model, or whose true values are known: (n,) arrays of the outcome of a
        positive and of a negative decision.
    exact
        Whether propensities are known and no weight was reduced to a maximum, so that means of
        weighted outcomes are unbiased.
    """

    action: Floats
    weight: Floats
    outcomes: Mapping[str, Floats]
    models: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)
    truths: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)
    exact: bool = True

    def counts(self, rate: Rate) -> tuple[Floats, Floats]:
        """Return what each row (n,) adds to a rate if decided positively, and if negatively."""
        if rate.outcome_source == "true":
            return self.truths[rate.outcome]
        factor, taken = self.weight**rate.weight_power, self.action == 1
        if rate.outcome:
            factor = factor * self.outcomes[rate.outcome]
        sides = np.where(taken, factor, 0.0), np.where(taken, 0.0, factor)
        if rate.outcome_source == "logged":
            return sides if rate.weight_power else (factor, factor)
        models = self.models[rate.outcome]
        error = self.weight * (self.outcomes[rate.outcome] - np.where(taken, *models))
        return models[0] + np.where(taken, error, 0.0), models[1] + np.where(taken, 0.0, error)


@dataclass(frozen=True)
class Sample:
    """n rows of one or more data sets.

    Attributes
    ----------
    columns
        (n,) arrays by name: object arrays of strings (None if missing) or floats (NaN if missing).
    label
        (n,) 1, 0, or NaN if unlabelled; any numbers if `label_range` is set.
    dataset, part
        (n,) the name of the row's data set and of its split.
    weight
        (n,) positive weights.
    deployed
        (n,) decisions of the deployed model, 0 or 1, NaN where it has none; None without such a
        model.
    label_range
        Minimum and maximum possible label if labels are numbers; None for two classes.
    count
        (n,) the number of streamed rows that each row represents (`streaming.stream`);
        None if each represents itself.
    logs
        Logged decisions, if a data set has any.
    others
        (n,) what each row adds to the rates of other algorithms, by the rate's name.
    """

    columns: Mapping[str, NDArray[np.object_] | Floats]
    label: Floats
    dataset: NDArray[np.str_]
    part: NDArray[np.str_]
    weight: Floats
    deployed: Floats | None = None
    label_range: tuple[float, float] | None = None
    count: Floats | None = None
    logs: Logs | None = None
    others: Mapping[str, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.label)

    def with_deployed(self, decisions: Floats) -> Sample:
        return replace(self, deployed=decisions)

    def counted(self, rows: Mask | NDArray[np.intp]) -> int:
        """Return the number of rows represented by a mask or by positions."""
        if self.count is not None:
            return round(float(self.count[rows].sum()))
        return int(rows.sum()) if rows.dtype == bool else len(rows)

    def rows(self, where: Slice, split: str | None = None) -> Mask:
        """Return the mask of a slice on a split (None: all). KeyError if a column is missing."""
        masks = [self._cached(condition) for condition in where.conditions]
        if where.datasets:
            masks.append(np.isin(self.dataset, where.datasets))
        if split is not None:
            masks.append(self._cached(split))
        return _intersect([np.ones(len(self), dtype=bool), *masks])

    def mask(self, name: str) -> Mask:
        """Return a mask of the rate table (`rates.table`): all, none, labelled, +, deployed, ..."""
        return _intersect([self._masks[part] for part in name.split("&")])

    def counts(self, rate: Rate, rows: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return what some rows (m,) add to a rate if decided positively, and if negatively."""
        if rate.yes == OTHER:
            same = self.others[rate.name][rows]
            return same, same
        if rate.counts_rows or self.logs is None:
            yes, no = (self.mask(name)[rows].astype(float) for name in (rate.yes, rate.no))
            return yes, no
        yes, no = self.logs.counts(rate)
        return yes[rows], no[rows]

    @cached_property
    def _cache(self) -> dict[object, Mask]:
        return {}

    def _cached(self, key: Clause | str) -> Mask:
        """Return the mask of a condition or a split, computed once."""
        if key not in self._cache:
            found = self.part == key if isinstance(key, str) else self._holds(key)
            self._cache[key] = np.asarray(found)
        return self._cache[key]

    @cached_property
    def _masks(self) -> dict[str, Mask]:
        everything = np.ones(len(self), dtype=bool)
        deployed = np.where(everything, np.nan, 0) if self.deployed is None else self.deployed
        action = np.where(everything, np.nan, 0) if self.logs is None else self.logs.action
        classes = everything & (self.label_range is None)
        return {
            "all": everything,
            "none": ~everything,
            "labelled": ~np.isnan(self.label),
            "+": classes & (self.label == 1),
            "-": classes & (self.label == 0),
            "deployed": ~np.isnan(deployed),
            "deployed_yes": deployed == 1,
            "deployed_no": deployed == 0,
            "logged": ~np.isnan(action),
            "taken": action == 1,
            "not_taken": action == 0,
        }

    def _holds(self, condition: Clause) -> Mask:
        if isinstance(condition, AnyOf):
            return np.asarray(np.logical_or.reduce(list(map(self._cached, condition.atoms))))
        column = self.columns[condition.column]
        numeric = column.dtype.kind == "f"
        if condition.op in {"=", "!="}:
            equal = np.zeros(len(self), dtype=bool)
            for value in condition.values:
                shown = parse_number(value) if numeric else value
                equal |= np.asarray(column == shown, dtype=np.bool_)
            return equal if condition.op == "=" else ~equal & np.asarray(pd.notna(column))
        compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
        if not condition.date:
            numbers = column if numeric else np.asarray(pd.to_numeric(column, "coerce"), float)
            return np.asarray(compare[condition.op](numbers, condition.values[0]))
        known = np.asarray(pd.notna(column))
        dates = [str(text)[: len(condition.date)] for text in column[known]]
        known[known] = compare[condition.op](np.array(dates, dtype=str), condition.date)
        return known


def _intersect(masks: list[Mask]) -> Mask:
    return np.asarray(np.logical_and.reduce(masks))


def relative_weights(weight: Floats) -> Floats:
    """Return weights (n,) rescaled such that a constant factor changes nothing but rounding.

    If all weights are integer multiples of the smallest positive one, that one is the unit, and
    each weight is the number of repetitions of its row. Otherwise the unit is the mean positive
    weight.

    Raises
    ------
    ValueError
        For weights that are negative or not finite, all 0, or too far apart.
    """
    wrong = ~(np.isfinite(weight) & (weight >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"has {weight[row]:g} in row {row + 1}: weights must be finite, at least 0"
        )
    positive = weight > 0
    if not len(weight):
        return weight
    if not positive.any():
        raise ValueError("is zero for all rows: there is nothing to learn from")
    least, most = float(weight[positive].min()), float(weight.max())
    if least < most / MAX_WEIGHT_RATIO:
        raise ValueError(
            f"ranges from {least:g} to {most:g}: the largest weight may be at most "
            f"{MAX_WEIGHT_RATIO:g} times the smallest"
        )
    times = weight / least
    repeats = np.round(times)
    if most / least <= MAX_REPEATS and np.allclose(times, repeats, rtol=WEIGHT_TOLERANCE, atol=0):
        return repeats
    return np.asarray(times / times[positive].mean())
