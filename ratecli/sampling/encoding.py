"""How a trial's columns become features, stored so that classifiers can be applied to new rows."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ratecli.datasets.columns import ColumnKind, as_array
from ratecli.datasets.encode import Encoder, columns_as_known, encode_new_rows
from ratecli.datasets.text_format import PLAIN, TextFormat
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.models.base import Classifier, Features
from ratecli.models.composed import append_memberships, rows_without_group
from ratecli.rates.expression import Slice
from ratecli.rates.parser import parse_conditions
from ratecli.rates.sample import Mask, Sample
from ratecli.rates.syntax import Condition, parse_number

MAX_WORDS = 64
"""The values of text columns with more distinct ones than this are not stored."""


def _is_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_number(value: str | float) -> bool:
    return not math.isnan(parse_number(value))


def _atoms(slices: Iterable[str]) -> list[Condition]:
    """Return all conditions of slices."""
    return [each for text in slices for each in Slice.of((), parse_conditions(text)).atoms]


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


def stored_encoding(encoding: str, classifiers: Iterable[Classifier]) -> str:
    """Return an encoding as JSON, with words of only the columns that the models' slices use."""
    used = {each.column for model in classifiers for each in _atoms(model.slices)}
    content = json.loads(encoding)
    words = content.pop("words", {}).items()
    return json.dumps(content | {"words": {name: found for name, found in words if name in used}})


def _check_slice_columns(sample: Sample, where: Slice) -> Iterator[Diagnostic]:
    for condition in where.atoms:
        column = sample.columns.get(condition.column)
        start = f"the classifier uses the condition '{condition}', and"
        if column is None:
            hint = did_you_mean(condition.column, sample.columns, "columns")
            yield Diagnostic("E411", f"{start} there is no column '{condition.column}'", hint)
        elif condition.date or (condition.op not in {"=", "!="} and column.dtype.kind != "f"):
            fits = condition.has_date if condition.date else _is_number
            wrong = [each for each in pd.unique(column[pd.notna(column)]) if not fits(each)]
            if wrong:
                found = f"'{wrong[0]}'" if condition.date else f"text, such as '{wrong[0]}'"
                message = f"{start} '{condition.column}' contains {found}"
                dates = (
                    "write dates as year-month-day, as in 2024-05-31" if condition.date else None
                )
                yield Diagnostic("E411", message, dates)


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
    words
        The values of those of these columns that are text, unless there are more than `MAX_WORDS`.
    form
        How the files of the tables write rows and numbers.
    """

    encoder: Encoder
    others: Mapping[str, ColumnKind]
    levels: int = 1
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    form: TextFormat = PLAIN

    @classmethod
    def of(
        cls, encoder: Encoder, columns: Mapping[str, Any], levels: int, form: TextFormat = PLAIN
    ) -> Encoding:
        """Return the encoding; `columns` are (n,) arrays, with dtype object for text."""
        others, words = dict[str, ColumnKind](), dict[str, Sequence[str]]()
        for name in [name for name in columns if name not in encoder.kinds]:
            column = columns[name]
            others[name] = "text" if column.dtype.kind == "O" else "number"
            if others[name] == "text":
                found = pd.Series(column).dropna().unique().tolist()
                if len(found) <= MAX_WORDS and _is_words(found):
                    words[name] = sorted(found)
        return cls(encoder, others, levels, words, form)

    def text(self) -> str:
        """Return the encoding as JSON for `from_json`."""
        others = {"others": dict(self.others), "levels": self.levels, "words": dict(self.words)}
        form = {"format": self.form.stated()} if self.form != PLAIN else {}
        return json.dumps(self.encoder.as_json() | others | form)

    @classmethod
    def from_json(cls, content: object) -> Encoding:
        """Return the encoding from decoded JSON; unknown keys are ignored.

        Raises ReadyMadeError if the features were provided ready-made, ValueError if it is invalid.
        """
        encoder = Encoder.from_json(content)
        match content:
            case {"others": dict(others), "levels": int(levels), **more} if levels >= 1:
                words: Any = more.get("words", {})
                lists = isinstance(words, dict) and all(map(_is_words, words.values()))
                form: Any = more.get("format", {})
                if lists and all(kind in ("number", "text") for kind in others.values()):
                    return cls(encoder, others, levels, words, TextFormat.of(form))
        raise ValueError("its description of the rows is not valid")

    def kind(self, column: str) -> ColumnKind | None:
        """Return the kind of a column in training; None if unknown."""
        return self.encoder.kinds.get(column) or self.others.get(column)

    def columns_for(self, classifier: Classifier) -> dict[str, ColumnKind | None]:
        """Return the columns that a classifier needs, for its features and its slices, by kind."""
        columns = sorted({each.column for each in _atoms(classifier.slices)})
        return {**{name: self.kind(name) for name in columns}, **self.encoder.kinds}

    def _new_words(self, arrays: Mapping[str, Any]) -> Iterator[Diagnostic]:
        """Return a W404 for each column that has values which no row of the experiment had."""
        for name, column in arrays.items():
            known = pd.Series(column).dropna()
            new = known[~known.isin(self.words.get(name, known))]
            if len(new):
                rows = f"{len(new)} row{'s' * (len(new) > 1)}"
                message = (
                    f"column '{name}': {rows} with a value that did not occur in the experiment, "
                    f"such as '{new.iloc[0]}'"
                )
                yield Diagnostic("W404", message)

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
        known = columns_as_known(frame, self.columns_for(classifier), names, self.form)
        warnings: list[Diagnostic] = []
        if matrix is None:
            matrix, warnings = encode_new_rows(self.encoder, known)
        if not classifier.slices:
            return matrix, warnings
        arrays = {str(name): as_array(column) for name, column in known.items()}
        named = {each.column for each in _atoms(classifier.slices) if each.op in {"=", "!="}}
        warnings = [*warnings, *self._new_words({name: arrays[name] for name in sorted(named)})]
        unknown, empty = np.full(len(known), np.nan), np.full(len(known), "")
        sample = Sample(arrays, unknown, empty, empty, np.ones(len(known)))
        members = slice_memberships(sample, classifier.slices)
        new = rows_without_group(classifier, np.stack(members, axis=1).astype(float))
        if new.any():
            message = (
                f"rows in a group that no training row was in: {int(new.sum())}; the model "
                "decides them by its own threshold"
            )
            warnings = [*warnings, Diagnostic("W404", message)]
        return append_memberships(matrix, members), warnings
