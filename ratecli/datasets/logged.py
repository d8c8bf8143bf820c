"""Logged decisions of a table: actions, propensities and outcomes, read and checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.config.dataset import LoggedSpec
from ratecli.datasets.columns import as_float_array, is_text, within_max
from ratecli.errors import Diagnostic, FaultError, errors_at, errors_under

DEPLOYED_DECISION = "a decision of a deployed model"
MIN_PROPENSITY = 1e-9
"""Squares of importance weights times `MAX_NUMBER` are finite."""
DECISION_WORDS = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}


def read_decisions(
    column: Any, name: str, what: str = "a logged action", positive: object = None
) -> NDArray[np.float64]:
    """Return decisions, 0, 1, or NaN where the column is empty.

    E406 unless the column has only 0 and 1, yes and no, true and false, or two other words of which
    one is `positive`.
    """
    decisions = np.asarray(column)
    if decisions.dtype.kind != "f":
        texts = pd.Series(decisions).astype(str).str.strip().str.casefold()
        found = set(texts[pd.notna(decisions) & (texts != "").to_numpy()])
        meanings, yes = DECISION_WORDS, str(positive).strip().casefold()
        if len(found) == 2 and yes in found and not found <= set(DECISION_WORDS):
            meanings = {text: float(text == yes) for text in found}
        decisions = (
            texts.map(meanings).fillna(pd.Series(pd.to_numeric(column, errors="coerce"))).to_numpy()
        )
    invalid = pd.notna(column) & ~np.isin(decisions, (0.0, 1.0))
    if invalid.any():
        example = np.asarray(column)[np.flatnonzero(invalid)[0]]
        message = f"'{example}' in the column '{name}' is not {what}"
        hint = "decisions are 0 and 1, or yes and no; leave the cell empty where there is none"
        if isinstance(positive, str):
            hint += f"; of two other words, one must be '{positive}'"
        if what == DEPLOYED_DECISION:
            hint += "; name the positive word: deployed: {column: NAME, positive: WORD} "
            hint += "(init: --deployed-positive WORD)"
        raise FaultError(Diagnostic("E406", message, hint))
    return np.asarray(decisions, dtype=np.float64)


@errors_under("logged")
def check_logged(frame: pd.DataFrame, columns: LoggedSpec) -> None:
    """Raise an E406 for values that logged decisions cannot have, E411 for text.

    The chance of each action must be at least `MIN_PROPENSITY`: the outcome of an action that is
    never taken is unknown. Outcomes must be numbers in their range, at most `MAX_NUMBER` in size.
    """
    with errors_at("action"):
        logged = ~np.isnan(read_decisions(frame[columns.action], columns.action))
        if not logged.any():
            message = f"the column '{columns.action}' has no logged action"
            raise FaultError(Diagnostic("E406", message))
    if isinstance(columns.propensity, str):
        with errors_at("propensity"):
            values = read_numbers(frame, columns.propensity)[logged]
            hint = "it is the chance that action 1 is taken; drop rows where it is almost 0 or 1"
            valid = (values >= MIN_PROPENSITY) & (values <= 1 - MIN_PROPENSITY)
            what = f"between {MIN_PROPENSITY:g} and 1 - {MIN_PROPENSITY:g}"
            require(valid, (columns.propensity, values), what, hint)
    for name, ends in columns.ranges.items():
        read_outcome(frame[logged], name, ends)


def read_numbers(frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """Return a column of numbers, E411 if it holds text."""
    if is_text(frame[name]):
        message = f"column '{name}' holds text"
        raise FaultError(Diagnostic("E411", message, "name a column of numbers"))
    return as_float_array(frame[name])


@errors_at("outcomes")
def read_outcome(frame: pd.DataFrame, name: str, ends: tuple[float, float]) -> NDArray[np.float64]:
    """Return the numbers of an outcome, E406 if one is missing or outside its range."""
    values, low, high = read_numbers(frame, name), *within_max(ends)
    valid = (values >= low) & (values <= high) & np.isfinite(values)
    hint = "outcomes are numbers within their range; drop rows without one"
    require(valid, (name, values), f"between {low:g} and {high:g}", hint)
    return values


def require(
    valid: NDArray[np.bool_], column: tuple[str, NDArray[np.float64]], what: str, hint: str
) -> None:
    """Raise an E406 that names the first value of a column, (name, values), that is not valid."""
    if not valid.all():
        name, values = column
        first = values[np.argmin(valid)]
        found = "an empty cell" if np.isnan(first) else f"{first:g}"
        message = (
            f"column '{name}' has {found} in a row with an action, which is not {what} "
            f"({int((~valid).sum())} such rows)"
        )
        raise FaultError(Diagnostic("E406", message, hint))
