"""A classifier that a run left, applied to a DataFrame."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.api.errors import convert_errors, issue_warnings
from ratecli.api.rows import to_arrow_table
from ratecli.apply.predict import predict_table
from ratecli.apply.stored import StoredModel, encoding_for_tables
from ratecli.models.base import Array, Classifier
from ratecli.models.storage import loads
from ratecli.sampling.encoding import Encoding


@dataclass(frozen=True)
class ResultModel:
    """A stored classifier with what makes its features of columns.

    Attributes
    ----------
    name
        Of the trial and the variant, such as `majorize kappa=0.8 seed=0, stochastic`.
    classifier
        What decides of features (n, d).
    encoding
        How these are made of the columns of a table.
    """

    name: str
    classifier: Classifier
    encoding: Encoding

    @classmethod
    def of(cls, name: str, blob: bytes, encoding: str) -> ResultModel:
        """Raises ValueError where features are not made of columns, or rows stand at several levels."""
        with convert_errors():
            return cls(name, loads(blob), encoding_for_tables(json.loads(encoding), name))

    @property
    def columns(self) -> list[str]:
        """The columns that rows must have."""
        return list(self.encoding.encoder.kinds)

    def answers(self, frame: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
        """What `ratecli predict` adds to a table.

        Parameters
        ----------
        frame : DataFrame of n rows
            With the columns of the training rows, in any order among others.
        seed : int, default=0
            Decides what a randomized classifier leaves to chance.

        Returns
        -------
        DataFrame
            n rows with the index of `frame`: `score`, the `chance` of a yes and a `decision`, 1 or 0; or an
            `estimate`; or of a filter `chance`, `value` and `kept`.

        Raises
        ------
        ValueError
            Where the rows do not fit the model; `faults` has the parts.
        """
        with convert_errors():
            found, doubts = predict_table(
                StoredModel(Path("X"), self.classifier, self.encoding),
                Path("X"),
                to_arrow_table(frame, "X"),
                seed,
            )
        issue_warnings(doubts)
        return pd.DataFrame(dict(found.columns), index=frame.index)

    def predict(self, frame: pd.DataFrame, *, seed: int = 0) -> NDArray[Any]:
        """(n,) decisions, 1 or 0, or estimates; of a filter which rows are kept."""
        found = self.answers(frame, seed=seed)
        return np.asarray(found[found.columns[-1]])

    def chances(self, frame: pd.DataFrame) -> Array:
        """(n,) that the decision is yes, or that a filter keeps the row."""
        return np.asarray(self.answers(frame)["chance"], dtype=np.float64)
