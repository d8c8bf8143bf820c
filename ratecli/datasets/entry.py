"""An entry of `datasets:`: where a table comes from, the roles of its columns, and its split.

Nothing here imports NumPy or pandas, so that listings stay fast.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ratecli.datasets.text_format import FORMAT_KEYS, PLAIN, TextFormat

MISSING_IS_ERROR, MISSING_TO_MEAN = "error", "mean"
"""Values of `missing:`: refuse missing numbers, or replace them by the training rows' mean."""
_NOT_THE_TABLE = frozenset({"path", "stream", "sha256", "levels", "slices", "scores"})
"""Options of a user's own file that do not change the table."""


def _stated(options: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    return {k: v for k, v in vars(options).items() if v != getattr(type(options), k)}


@dataclass(frozen=True)
class SplitOptions:
    """How rows are divided: see `config.dataset.SplitSpec`. Shares are numbers or texts ("1/3")."""

    official: bool | None = None
    train: float | str | None = None
    validation: float | str | None = None
    test: float | str | None = None
    stratify: tuple[str, ...] = ()
    by: str | None = None
    order: str | None = None
    seed: int | None = None

    @property
    def column(self) -> str | None:
        """The column, not a feature, whose values define the parts; None if rows are sampled."""
        return self.by or self.order

    def stated(self) -> dict[str, Any]:
        """Return the options that are set, as plain data."""
        return _stated(self)


DEFAULT_SPLIT = SplitOptions()


MAX_COMPONENTS = 20_000
"""Largest number of features of a kernel."""


@dataclass(frozen=True)
class KernelOptions:
    """The kernel of the features: see `config.dataset.KernelSpec`. `gamma` 0 is the default."""

    kernel: str
    components: int
    gamma: float = 0.0


@dataclass(frozen=True)
class LoggedColumns:
    """The columns of logged decisions: see `config.dataset.LoggedSpec`.

    Attributes
    ----------
    propensity
        The column with the chance that action 1 is taken, or the chance itself. For episodes, that
        of the action that was taken.
    estimate
        The classifier that estimates the propensity on training rows, as JSON; "" if it is known.
    outcomes
        The outcomes with the smallest and largest possible value of each, infinite if unknown.
    outcome_model
        The regressor of outcomes, as JSON.
    max_weight
        Larger importance weights count as this one.
    episode, step
        The columns that name a row's episode and its step; "" if each row is one decision.
    discount
        Factor of an outcome for each step before it.
    horizon
        The largest number of steps of an episode; 0 if unknown.
    fourier
        Order of the Fourier basis of the features of a policy; 0 for the features and a constant.
    """

    action: str
    outcomes: tuple[tuple[str, tuple[float, float]], ...]
    propensity: str | float = ""
    estimate: str = ""
    outcome_model: str = '"Ridge"'
    max_weight: float = math.inf
    episode: str = ""
    step: str = ""
    discount: float = 1.0
    horizon: int = 0
    fourier: int = 0

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> LoggedColumns:
        """Return the columns of checked plain data."""
        given, named = dict(options), options["outcomes"]
        ends = named if isinstance(named, Mapping) else dict.fromkeys(named, (None, None))
        given["outcomes"] = tuple(
            (name, (-math.inf if low is None else low, math.inf if high is None else high))
            for name, (low, high) in ends.items()
        )
        if isinstance(propensity := given["propensity"], Mapping):
            given |= {"propensity": "", "estimate": json.dumps(propensity["estimate"])}
        if "outcome_model" in given:
            given["outcome_model"] = json.dumps(given["outcome_model"])
        return cls(**given)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, none of which is a feature."""
        outcomes = (name for name, _ in self.outcomes)
        named = (self.action, self.propensity, self.episode, self.step, *outcomes)
        return tuple(name for name in named if name and isinstance(name, str))

    @property
    def span(self) -> float:
        """The largest sum of the discounts of an episode's steps, infinite if unknown.

        A discount alone does not limit it: estimates know only the steps of the logged episodes.
        """
        if not self.horizon:
            return math.inf
        return sum(self.discount**step for step in range(self.horizon))

    @property
    def largest_weight(self) -> float:
        """The largest possible importance weight, infinite if unknown."""
        if isinstance(self.propensity, str) or self.episode:
            return self.max_weight
        return min(self.max_weight, max(1 / self.propensity, 1 / (1 - self.propensity)))


@dataclass(frozen=True)
class DatasetEntry:
    """A data set as an experiment specifies it (see `config.dataset.DatasetSpec`).

    Attributes
    ----------
    scores
        Scores of existing models, by name: the file that has them, None for a column of the table.
    deployed
        The column with the decisions of a deployed model, which is not a feature.
    deployed_positive
        The word for a positive decision in that column; None if it has the words of the label.
    slices
        For each column that defines groups of streamed rows, the numbers it is compared with.
    """

    source: str | None = None
    path: str | None = None
    preparation: str | None = None
    rows: int | None = None
    seed: int | None = None
    vectors: str | None = None
    format: str | None = None
    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    stream: bool = False
    sha256: str | None = None
    label: str | None = None
    positive: bool | float | str | None = None
    target: str | None = None
    label_range: tuple[float | None, float | None] | None = None
    features: tuple[str, ...] = ()
    kernel: KernelOptions | None = None
    drop: tuple[str, ...] = ()
    weight: str | None = None
    categorical: tuple[str, ...] = ()
    missing: str = MISSING_IS_ERROR
    split: SplitOptions = DEFAULT_SPLIT
    levels: int = 1
    scores: tuple[tuple[str, str | None], ...] = ()
    deployed: str | None = None
    deployed_positive: str | None = None
    slices: tuple[tuple[str, tuple[float, ...]], ...] = ()
    logged: LoggedColumns | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> DatasetEntry:
        """Return the entry for the options of a valid `config.dataset.DatasetSpec`."""
        values = _hashable(options)
        split = SplitOptions(**_hashable(options.get("split") or {}))
        slices = {name: tuple(cuts) for name, cuts in options.get("slices", {}).items()}
        scores = options.get("scores", {})
        named = scores if isinstance(scores, Mapping) else dict.fromkeys(scores)
        more: dict[str, Any] = {
            "slices": tuple(sorted(slices.items())),
            "scores": tuple(named.items()),
        }
        if isinstance(features := options.get("features"), Mapping):
            more["features"] = tuple(features.get("columns", ()))
            kernel = {key: value for key, value in features.items() if key != "columns"}
            more["kernel"] = KernelOptions(**kernel)
        if "logged" in options:
            more["logged"] = LoggedColumns.of(options["logged"])
        return cls(**values | {"split": split} | more)

    @property
    def text_format(self) -> TextFormat:
        """How the user's own file writes rows and numbers."""
        return PLAIN.updated({key: getattr(self, key) for key in FORMAT_KEYS})

    @property
    def score_columns(self) -> tuple[str, ...]:
        """The columns of the table that are scores of existing models."""
        return tuple(name for name, file in self.scores if file is None)

    @property
    def number_columns(self) -> tuple[str, ...]:
        """The columns other than features that hold numbers."""
        label = self.label if self.target == "number" else None
        named = [label, self.weight, self.split.order, *self.score_columns]
        if (logged := self.logged) is not None:
            others = (logged.action, logged.episode)
            named += [name for name in logged.names if name not in others]
        return tuple(name for name in named if name)

    def stated(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as plain data, without the split."""
        return {key: value for key, value in _stated(self).items() if key != "split"}

    def table_options(self) -> dict[str, Any]:
        """Return the stated options that change the table of a user's own file."""
        options = {k: value for k, value in self.stated().items() if k not in _NOT_THE_TABLE}
        for key, value in (("logged", self.logged), ("kernel", self.kernel)):
            if value is not None:
                options[key] = asdict(value)
        return options if self.split.column is None else options | {"by": self.split.column}


def _hashable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with lists converted to tuples."""
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in options.items()
    }
