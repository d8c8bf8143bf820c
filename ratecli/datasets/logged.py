"""Logged decisions and episodes of a table: actions, propensities and outcomes, read and checked.

Rows of episodes are steps, which become one row of features for each episode.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.config.dataset import LoggedSpec
from ratecli.datasets.columns import (
    MISSING_CATEGORY,
    as_float_array,
    is_text,
    read_numbers,
    value_key,
    within_max,
)
from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError, errors_at, errors_under
from ratecli.models.policy import NO_ACTION, EpisodeLayout

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
    codes, levels = pd.factorize(np.asarray(column))
    keys, yes = [value_key(level).casefold() for level in levels], value_key(positive).casefold()
    meanings: dict[str, float] = {"": np.nan, "0": 0.0, "1": 1.0, **DECISION_WORDS}
    found = {*keys} - {""}
    if len(found) == 2 and yes in found and not found <= meanings.keys():
        meanings = {"": np.nan} | {key: float(key == yes) for key in found}
    wrong = [level for level, key in zip(levels, keys, strict=True) if key not in meanings]
    if wrong:
        message = f"'{wrong[0]}' in the column '{name}' is not {what}"
        hint = "decisions are 0 and 1, or yes and no; leave the cell empty where there is none"
        if isinstance(positive, str):
            hint += f"; of two other words, one must be '{positive}'"
        if what == DEPLOYED_DECISION:
            hint += "; name the positive word: deployed: {column: NAME, positive: WORD} "
            hint += "(init: --deployed-positive WORD)"
        raise FaultError(Diagnostic("E406", message, hint))
    return np.array([*(meanings[key] for key in keys), np.nan])[codes]


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
            hint = "it is the chance that action 1 is taken; drop rows where it is almost 0 or 1"
            ends = (MIN_PROPENSITY, 1 - MIN_PROPENSITY)
            wanted = f"between {MIN_PROPENSITY:g} and 1 - {MIN_PROPENSITY:g}"
            read_numbers(frame[columns.propensity][logged], ends=ends, wanted=wanted, hint=hint)
    for name, ends in columns.ranges.items():
        read_outcome(frame[name][logged], ends)


@errors_at("outcomes")
def read_outcome(column: pd.Series, ends: tuple[float, float]) -> NDArray[np.float64]:
    """Return the numbers of an outcome, E406 if one is missing or outside its range."""
    hint = "outcomes are numbers within their range; drop rows without one"
    return read_numbers(column, ends=within_max(ends), hint=hint)


MAX_ENTRIES = 2**28
"""Largest number of features of all episodes (2 GiB)."""


@errors_under("logged")
def episode_table(
    frame: pd.DataFrame, features: Sequence[str], columns: LoggedSpec, **others: Any
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
    frame, episode, place = _steps_in_order(frame, columns)
    actions, names = _actions(frame, columns.action)
    states = pd.concat([_state(frame[name]) for name in features], axis=1)
    outcomes = [read_outcome(frame[name], ends) for name, ends in columns.ranges.items()]
    first = np.flatnonzero(place == 0)
    layout = EpisodeLayout(
        outcomes=tuple(columns.outcomes),
        lows=np.array([low for low, _ in columns.ranges.values()]),
        highs=np.array([high for _, high in columns.ranges.values()]),
        actions=names,
        states=tuple(map(str, states.columns)),
        steps=columns.horizon or int(place.max()) + 1,
        discount=columns.discount or 1.0,
        max_weight=columns.weight_limit,
        fourier=columns.fourier or 0,
    )
    if max(len(first) * layout.width, layout.basis_size) > MAX_ENTRIES:
        message = "the episodes have too many steps and features"
        raise FaultError(Diagnostic("E411", message, "use fewer features, or a smaller 'fourier'"))
    matrix = np.zeros((len(first), layout.steps, layout.width // layout.steps))
    matrix[:, :, 0], matrix[:, :, 1] = NO_ACTION, 1.0
    chances = _chances(frame, columns)
    matrix[episode, place] = np.column_stack([actions, chances, *outcomes, states])
    return Table(
        frame=frame.iloc[first].reset_index(drop=True),
        features=(),
        label=np.full(len(first), np.nan),
        matrix=matrix.reshape(len(first), -1),
        logged=columns,
        episodes=layout,
        **others,
    )


def _steps_in_order(
    frame: pd.DataFrame, columns: LoggedSpec
) -> tuple[pd.DataFrame, NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows by episode and step, and (S,) the numbers of both, from 0."""
    with errors_at("step"):
        steps = read_numbers(frame[columns.step])
    order = np.lexsort((steps, pd.factorize(frame[columns.episode])[0]))
    frame, steps = frame.iloc[order], steps[order]
    episode = np.asarray(pd.factorize(frame[columns.episode])[0])
    if (episode < 0).any():
        raise FaultError(
            Diagnostic(
                "E406", "a row names no episode", "fill the column in every row", loc=("episode",)
            )
        )
    place = np.asarray(frame.groupby(episode).cumcount(), dtype=np.intp)
    if not (float(steps[0]).is_integer() and (steps == steps[0] + place).all()):
        message = (
            "the steps of an episode are not consecutive whole numbers from the same first one"
        )
        hint = "number them 0, 1, 2, ...: a missing step makes importance weights wrong"
        raise FaultError(Diagnostic("E406", message, hint, loc=("step",)))
    longest = int(place.max()) + 1
    if columns.horizon and longest > columns.horizon:
        message = f"an episode has {longest} steps, more than the horizon {columns.horizon}"
        hint = "it is the largest possible number of steps"
        raise FaultError(Diagnostic("E406", message, hint, loc=("horizon",)))
    return frame, episode, place


def _actions(frame: pd.DataFrame, name: str) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Return (S,) the number of each action among the sorted names, and the names."""
    actions, names = pd.factorize(frame[name], sort=True)
    if (actions < 0).any():
        message = f"column '{name}' has no action in {int((actions < 0).sum())} steps"
        raise FaultError(Diagnostic("E406", message, "every step needs one", loc=("action",)))
    if len(names) < 2:
        message = f"column '{name}' has one action only, '{names[0]}'"
        raise FaultError(
            Diagnostic("E406", message, "policies choose of two or more", loc=("action",))
        )
    return actions, tuple(map(str, names))


@errors_at("propensity")
def _chances(frame: pd.DataFrame, columns: LoggedSpec) -> NDArray[np.float64]:
    ends, wanted = (sys.float_info.min, 1.0), "above 0 and at most 1"
    hint = "it is the chance of the action that was taken"
    return read_numbers(frame[columns.propensity], ends=ends, wanted=wanted, hint=hint)


def _state(column: pd.Series) -> pd.DataFrame:
    """Return numbers as one column, or text as indicators of its values, such as `place = shop`."""
    if is_text(column):
        column = column.fillna(MISSING_CATEGORY)
        return pd.get_dummies(column, prefix=str(column.name), prefix_sep=" = ", dtype=float)
    return pd.DataFrame({column.name: as_float_array(column)})
