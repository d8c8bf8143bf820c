"""How a trial's columns become features, stored so that classifiers can be applied to new rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ratecli.datasets.columns import ColumnKind, as_array
from ratecli.datasets.encode import Encoder, columns_as_known, encode_new_rows
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.models.base import Classifier, Features
from ratecli.models.composed import append_memberships, rows_without_group
from ratecli.rates.expression import Slice
from ratecli.rates.parser import parse_conditions
from ratecli.rates.sample import Mask, Sample


def slice_memberships(sample: Sample, slices: Sequence[str]) -> list[Mask]:
    """Return S masks (n,): which rows are in each slice.

    Raises
    ------
    FaultError
        E411 for a missing column, or one that a slice compares with another kind of value; E301 or
        E302 for a slice that cannot be parsed.
    """
    wheres = [Slice.of((), parse_conditions(text)) for text in slices]
    faults = [fault for where in wheres for fault in _check_slice_columns(sample, where)]
    if faults:
        raise FaultError(dict.fromkeys(faults))
    return [sample.rows(where) for where in wheres]


def _check_slice_columns(sample: Sample, where: Slice) -> Iterator[Diagnostic]:
    for condition in where.atoms:
        column = sample.columns.get(condition.column)
        start = f"the classifier uses the condition '{condition}', and"
        if column is None:
            hint = did_you_mean(condition.column, sample.columns, "columns")
            yield Diagnostic("E411", f"{start} there is no column '{condition.column}'", hint)
        elif condition.op not in {"=", "!="}:
            dates, numbers = isinstance(condition.values[0], str), column.dtype.kind == "f"
            if dates == numbers:
                kind = "numbers" if numbers else "text"
                yield Diagnostic("E411", f"{start} '{condition.column}' contains {kind}")


@dataclass(frozen=True)
class Encoding:
    """What a trial stores about the encoding of its rows.

    Attributes
    ----------
    encoder
        The encoder, fitted to the training rows.
    others
        The kinds of the columns that are not features, which slices of classifiers may use.
    levels
        Number of copies of each row (`sampling.rows`).
    """

    encoder: Encoder
    others: Mapping[str, ColumnKind]
    levels: int = 1

    @classmethod
    def of(cls, encoder: Encoder, columns: Mapping[str, Any], levels: int) -> Encoding:
        """Return the encoding; `columns` are (n,) arrays, with dtype object for text."""
        features = encoder.kinds
        others: dict[str, ColumnKind] = {
            name: "text" if columns[name].dtype.kind == "O" else "number"
            for name in columns
            if name not in features
        }
        return cls(encoder, others, levels)

    def text(self) -> str:
        """Return the encoding as JSON for `from_json`."""
        content = self.encoder.as_json() | {"others": dict(self.others), "levels": self.levels}
        return json.dumps(content)

    @classmethod
    def from_json(cls, content: object) -> Encoding:
        """Return the encoding from decoded JSON; unknown keys are ignored.

        Raises ReadyMadeError if the features were provided ready-made, ValueError if it is invalid.
        """
        encoder = Encoder.from_json(content)
        match content:
            case {"others": dict(others), "levels": int(levels)} if levels >= 1:
                if all(kind in ("number", "text") for kind in others.values()):
                    return cls(encoder, others, levels)
        raise ValueError("its description of the rows is not valid")

    def kind(self, column: str) -> ColumnKind | None:
        """Return the kind of a column in training; None if unknown."""
        return self.encoder.kinds.get(column) or self.others.get(column)

    def columns_for(self, classifier: Classifier) -> dict[str, ColumnKind | None]:
        """Return the columns that a classifier needs, for its features and its slices, by kind."""
        slices = [Slice.of((), parse_conditions(text)) for text in classifier.slices]
        columns = sorted({each.column for where in slices for each in where.atoms})
        return {**{name: self.kind(name) for name in columns}, **self.encoder.kinds}

    def inputs_for(
        self,
        classifier: Classifier,
        frame: pd.DataFrame,
        names: Collection[str],
        matrix: Features | None = None,
    ) -> tuple[Features, list[Diagnostic]]:
        """Return a classifier's inputs for new rows: features, then membership in its slices.

        `frame` has those of the columns `columns_for` that the rows have, `names` are all of their
        columns, for suggestions. The features are made from columns unless they are ready-made in
        `matrix`. Also return warnings about values that did not occur in training rows.

        Raises
        ------
        FaultError
            E205 for a missing column, E407 or E411 for values that differ in kind from training.
        """
        known = columns_as_known(frame, self.columns_for(classifier), names)
        warnings: list[Diagnostic] = []
        if matrix is None:
            matrix, warnings = encode_new_rows(self.encoder, known)
        if not classifier.slices:
            return matrix, warnings
        arrays = {str(name): as_array(column) for name, column in known.items()}
        unknown, empty = np.full(len(known), np.nan), np.full(len(known), "")
        sample = Sample(arrays, unknown, empty, empty, np.ones(len(known)))
        members = slice_memberships(sample, classifier.slices)
        new = rows_without_group(classifier, np.stack(members, axis=1).astype(float))
        if new.any():
            message = (
                f"rows in a group that no training row was in: {int(new.sum())}; they have the "
                "threshold of the model itself"
            )
            warnings = [*warnings, Diagnostic("W404", message)]
        return append_memberships(matrix, members), warnings
