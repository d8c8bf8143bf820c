"""Tables of logged episodes: rows are steps, which become one row of features for each episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.datasets.columns import as_float_array, is_text
from ratecli.datasets.entry import LoggedColumns
from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError, errors_at
from ratecli.models.policy import NO_ACTION, EpisodeLayout

MAX_ENTRIES = 2**28
"""Largest number of features of all episodes (2 GiB)."""


@errors_at("logged")
def episode_table(
    frame: pd.DataFrame, features: Sequence[str], columns: LoggedColumns, **others: Any
) -> Table:
    """Return a table with one row for each episode, in order of first appearance.

    Its columns are those of the episode's first step, for slices; its features are all steps
    (`models.policy.EpisodeLayout`). Features with text are categories with an indicator for each
    value.

    Raises
    ------
    FaultError
        E406 for values that logged steps cannot have, E411 for text and too many features.
    """
    steps = _numbers(frame, columns.step, "step")
    order = np.lexsort((steps, pd.factorize(frame[columns.episode])[0]))
    frame, steps = frame.iloc[order].reset_index(drop=True), steps[order]
    episode, _ = pd.factorize(frame[columns.episode])
    if (episode < 0).any():
        raise FaultError(Diagnostic("E406", "a row names no episode", loc=("episode",)))
    first = np.flatnonzero(np.diff(episode, prepend=-1))
    if not (np.isfinite(steps).all() and (np.diff(steps)[np.diff(episode) == 0] == 1).all()):
        message = "the steps of an episode are not consecutive whole numbers"
        hint = "number them 0, 1, 2, ...: a missing step makes importance weights wrong"
        raise FaultError(Diagnostic("E406", message, hint, loc=("step",)))
    place = np.arange(len(frame)) - np.repeat(first, np.diff(np.append(first, len(frame))))
    longest = int(place.max()) + 1
    if columns.horizon and longest > columns.horizon:
        message = f"an episode has {longest} steps, more than the horizon {columns.horizon}"
        raise FaultError(Diagnostic("E406", message, loc=("horizon",)))
    actions, names = pd.factorize(frame[columns.action], sort=True)
    if (actions < 0).any() or len(names) < 2:
        message = f"column '{columns.action}' has {len(names)} actions or rows without one"
        raise FaultError(Diagnostic("E406", message, "name two or more", loc=("action",)))
    states = np.column_stack([_state(frame[name]) for name in features])
    outcomes = np.column_stack([_outcome(frame, name, ends) for name, ends in columns.outcomes])
    layout = EpisodeLayout(
        outcomes=tuple(name for name, _ in columns.outcomes),
        lows=np.array([low for _, (low, _) in columns.outcomes]),
        highs=np.array([high for _, (_, high) in columns.outcomes]),
        actions=len(names),
        states=states.shape[1],
        steps=columns.horizon or longest,
        discount=columns.discount,
        max_weight=columns.max_weight,
        fourier=columns.fourier,
    )
    if max(len(first) * layout.width, layout.basis_size) > MAX_ENTRIES:
        message = "the episodes have too many steps and features"
        raise FaultError(Diagnostic("E411", message, "use fewer features, or a smaller 'fourier'"))
    matrix = np.zeros((len(first), layout.steps, layout.width // layout.steps))
    matrix[:, :, 0], matrix[:, :, 1] = NO_ACTION, 1.0
    chances = _chances(frame, columns)
    matrix[episode, place] = np.column_stack([actions, chances, outcomes, states])
    return Table(
        frame=frame.iloc[first].reset_index(drop=True),
        features=(),
        label=np.full(len(first), np.nan),
        matrix=matrix.reshape(len(first), -1),
        logged=columns,
        episodes=layout,
        **others,
    )


def _numbers(frame: pd.DataFrame, name: str, key: str) -> NDArray[np.float64]:
    if is_text(frame[name]):
        message = f"column '{name}' holds text"
        raise FaultError(Diagnostic("E411", message, "name a column of numbers", loc=(key,)))
    return as_float_array(frame[name])


def _chances(frame: pd.DataFrame, columns: LoggedColumns) -> NDArray[np.float64]:
    assert isinstance(columns.propensity, str)
    chances = _numbers(frame, columns.propensity, "propensity")
    wrong = ~((chances > 0) & (chances <= 1))
    if wrong.any():
        message = f"the propensity {chances[np.argmax(wrong)]:g} is not above 0 and at most 1"
        hint = "it is the chance of the action that was taken"
        raise FaultError(Diagnostic("E406", message, hint, loc=("propensity",)))
    return chances


def _outcome(frame: pd.DataFrame, name: str, ends: tuple[float, float]) -> NDArray[np.float64]:
    values, (low, high) = _numbers(frame, name, "outcomes"), ends
    wrong = ~((values >= low) & (values <= high) & np.isfinite(values))
    if wrong.any():
        message = (
            f"column '{name}' has {values[np.argmax(wrong)]:g}, which is not between {low:g} and "
            f"{high:g} ({int(wrong.sum())} such rows)"
        )
        raise FaultError(Diagnostic("E406", message, loc=("outcomes",)))
    return values


def _state(column: pd.Series) -> NDArray[np.float64]:
    """Return (S, 1) numbers, or (S, L) indicators of the values of a text column."""
    if is_text(column):
        return pd.get_dummies(column, dtype=float).to_numpy()
    return as_float_array(column)[:, None]
