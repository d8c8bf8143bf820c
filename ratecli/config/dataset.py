"""The `datasets:` section: registered sources, tables from files, their splits, and resampling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    Strict,
    StringConstraints,
    WithJsonSchema,
)

from ratecli.config import base
from ratecli.errors import Diagnostic
from ratecli.rates.syntax import SPLITS

MISSING_IS_ERROR, MISSING_TO_MEAN = "error", "mean"
"""Values of `missing:`: refuse missing numbers, or replace them by the training rows' mean."""
MAX_COMPONENTS = 20_000
"""Largest number of features of a kernel."""
MAX_LEVELS = 30
"""Maximum number of levels; templates such as `mean(precision, by=level)` have the same limit."""
DATASET_PARTS = SPLITS[:3]
SHARED_KEYS = ("drop", "split", "levels", "scores")
SOURCE_KEYS = ("source", "preparation", "rows", "seed", "vectors", *SHARED_KEYS)
EXCLUSIVE_SPLIT_KEYS = {
    "folds": ("official", "by", "order", "train", "test"),
    "by": ("official", "order", "stratify", *DATASET_PARTS),
    "order": ("official", "stratify", "seed"),
    "official": ("train", "test"),
}
"""Keys that cannot be combined with each way of splitting."""
DATASET_KINDS = {"source": "a registered source", "path": "your own table"}
MAX_FOLDS = 1000
FRACTION_RANGE = base.NumberRange(0, 1, names=False)
RESAMPLE_RANGE = base.NumberRange(0, 1000, above=True)
"""Ratio of sampled to available rows; more is assumed to be a typo."""


def _validate_range(value: object) -> object:
    hint = "write the smallest and largest possible value, as in [0, 4] or [0, null]"
    ends = value if isinstance(value, list | tuple) else ()
    wrong = any(isinstance(end, bool) or not isinstance(end, int | float | None) for end in ends)
    if len(ends) != 2 or wrong:
        raise base.type_error("two numbers, or null for none", value, hint)
    low, high = ends
    if low is not None and high is not None and not low < high:
        raise base.value_error("two increasing numbers", f"{low} and {high}", hint)
    return value


GroupCondition = Annotated[
    base.RuleText | dict[str, base.RuleText],
    base.OneOf("the text of a rule, or a mapping of data sets to rules", "put a rule in quotes"),
]
ScoreSources = Annotated[
    base.ColumnNames | Annotated[dict[base.ColumnName, base.ColumnName], Field(min_length=1)],
    base.OneOf(
        "a list of columns or a mapping of names to files", "write [COLUMN] or {NAME: FILE}"
    ),
]
FractionField = Annotated[float | str, FRACTION_RANGE]
ResampleShare = Annotated[float | str, RESAMPLE_RANGE]
OptionalResample = Annotated[ResampleShare | None, base.not_null(ResampleShare)]
RangeEnd = Annotated[float, Strict()] | None
LabelRange = Annotated[tuple[RangeEnd, RangeEnd], BeforeValidator(_validate_range)]
Chance = Annotated[float, Strict(), Field(gt=0, lt=1)]
Character = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1)]
ModelChoice = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]})]
"""A classifier or regressor: its name, or `{name: {parameter: value}}`; `experiment` checks it."""
Sha256Text = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-fA-F]{64}$")]


class SplitSpec(base.Spec):
    """How rows are divided into train, validation and test."""

    official: base.StrictFlag | None = None
    """Use the source's own split (default if it has one)."""
    train: FractionField | None = None
    """Fraction of rows to train on."""
    validation: FractionField | None = None
    """Fraction of rows to tune on; with an official split, of its training rows."""
    test: FractionField | None = None
    """Fraction of rows to test on. With 0, rows that another key would test on are trained on."""
    folds: Annotated[int, Strict(), Field(ge=2, le=MAX_FOLDS)] | None = None
    """Number of equal test sets that together have each row once: seed k tests on fold k. The
    number of seeds must be a multiple; further seeds sample the folds anew.
    """
    stratify: base.ColumnNames | None = None
    """Columns whose values have the same shares in every part."""
    by: base.ColumnName | None = None
    """A column that contains train, validation or test for each row."""
    order: base.ColumnName | None = None
    """A column of dates or numbers: rows with the largest values are the test set, those before
    them the validation set. Rows with equal values are in the same part.
    """
    seed: base.SeedNumber | None = None
    """Seed of one split for all seeds of the experiment."""

    @property
    def has_no_test(self) -> bool:
        """Whether rows of the test part are trained on."""
        return base.exact_number(self.test) == 0

    @property
    def column(self) -> str | None:
        """The column, not a feature, whose values define the parts; None if rows are sampled."""
        return self.by or self.order

    def draw(self, seed: int) -> tuple[int, int]:
        """Return the seed of the random split of a trial's seed, and the fold that is its test set.

        The fold is 0 without folds.
        """
        if self.folds is None:
            return (seed if self.seed is None else self.seed), 0
        return (self.seed or 0) + seed // self.folds, seed % self.folds

    def conflicts(self) -> Iterator[Diagnostic]:
        chosen = next((key for key in EXCLUSIVE_SPLIT_KEYS if getattr(self, key)), "")
        for key in EXCLUSIVE_SPLIT_KEYS.get(chosen, ()):
            if getattr(self, key) and not (key == "test" and self.has_no_test):
                yield _conflict(key, chosen, f"keep '{key}' or '{chosen}'")
        shares = {part: base.exact_number(getattr(self, part)) for part in DATASET_PARTS}
        shares |= {"test": Fraction(1, self.folds)} if self.folds else {}
        known = [share for share in shares.values() if share is not None]
        whole = len(known) == len(DATASET_PARTS) and sum(known) != 1
        no_training_rows = shares["train"] == 0 or (shares["train"] is None and sum(known) == 1)
        if whole or sum(known) > 1 or no_training_rows:
            message = "the parts of the split must add up to 1, with some rows to train on"
            yield Diagnostic("E104", message, key=True)


DEFAULT_SPLIT = SplitSpec()


class EstimatedPropensity(base.Spec):
    """A propensity that is estimated."""

    estimate: ModelChoice
    """The classifier of actions, fitted to the training rows: its name, or `{name: {parameter:
    value}}`.
    """


KERNEL_FEATURES = "features: {kernel: ...}"
IN_MEMORY_HINT = "remove it, or read the table into memory: stream: false"
UNREAD_BY_EPISODES = ("label", "weight", "missing: mean", KERNEL_FEATURES)


class KernelSpec(base.Spec):
    """Features of a kernel of the encoded columns, drawn at random with the trial's seed."""

    kernel: Literal["rbf"]
    """The kernel: `rbf` is the Gaussian, exp(-gamma |x - y|^2)."""
    components: Annotated[int, Strict(), Field(ge=1, le=MAX_COMPONENTS)] = 500
    """Number of features, scikit-learn's RBFSampler."""
    gamma: Annotated[float, Field(gt=0)] | None = None
    """Inverse squared width of the kernel; by default 1 / (number of encoded columns * variance of
    their values), on training rows.
    """
    columns: base.ColumnNames | None = None
    """The columns; by default all but label, weight and drop."""


Features = Annotated[
    base.ColumnNames | KernelSpec,
    base.OneOf("a list of columns, or {kernel: rbf, ...}", "write [COLUMN]"),
]


class LoggedSpec(base.Spec):
    """Logged decisions with their outcomes, for rates such as `value(profit)`."""

    action: base.ColumnName
    """The column of actions: 1 and 0, or yes and no."""
    propensity: Annotated[
        base.ColumnName | Chance | EstimatedPropensity,
        base.OneOf("a column, a number, or {estimate: CLASSIFIER}"),
    ]
    """The chance with which the log's policy took action 1: a column, a number, or `{estimate:
    CLASSIFIER}`. For episodes, the chance of the action that was taken.
    """
    outcomes: Annotated[
        Annotated[dict[base.NameText, LabelRange], Field(min_length=1)]
        | Annotated[tuple[base.NameText, ...], Field(min_length=1)],
        base.OneOf(
            "a list of columns, or a mapping of columns to their smallest and largest value",
            "write [COLUMN] or {COLUMN: [0, 1]}",
        ),
    ]
    """The columns of outcomes, as a list, or with the smallest and largest possible value of each:
    `{profit: [-1, 20]}`. Certificates use the range.
    """
    max_weight: Annotated[float, Field(gt=1)] | None = None
    """Larger importance weights count as this one. Values are biased where it has an effect;
    certificates need it unless the propensity is a number.
    """
    episode: base.ColumnName | None = None
    """The column that names the episode of a row, if rows are steps."""
    step: base.ColumnName | None = None
    """The column of numbers that order the steps of an episode."""
    discount: Annotated[float, Field(gt=0, le=1)] | None = None
    """Factor of an outcome for each step before it; by default 1."""
    horizon: Annotated[int, Strict(), Field(ge=1, le=100_000)] | None = None
    """The largest possible number of steps, which certificates of returns use."""
    fourier: Annotated[int, Strict(), Field(ge=0, le=9)] | None = None
    """Order of the Fourier basis of a policy's features; by default 0, the features and a constant.
    """
    outcome_model: ModelChoice | None = None
    """The regressor of outcomes for value_doubly_robust, fitted to the training rows of each
    action; by default Ridge.
    """

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The smallest and largest possible value of each outcome, infinite if unknown."""
        ends = self.outcomes if isinstance(self.outcomes, dict) else {}
        return {name: known_range(ends.get(name)) for name in self.outcomes}

    @property
    def estimate(self) -> Any:
        """The classifier that estimates the propensity; None if it is known."""
        given = self.propensity
        return given.estimate if isinstance(given, EstimatedPropensity) else None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, none of which is a feature."""
        named = (self.action, self.propensity, self.episode, self.step, *self.outcomes)
        return tuple(name for name in named if isinstance(name, str))

    @property
    def span(self) -> float:
        """The largest sum of the discounts of an episode's steps, infinite if unknown.

        A discount alone does not limit it: estimates know only the steps of the logged episodes.
        """
        if not self.horizon:
            return math.inf
        return sum((self.discount or 1.0) ** step for step in range(self.horizon))

    @property
    def weight_limit(self) -> float:
        """The weight that larger importance weights count as; infinite if there is no limit."""
        return math.inf if self.max_weight is None else self.max_weight

    @property
    def largest_weight(self) -> float:
        """The largest possible importance weight, infinite if unknown."""
        if self.episode or not isinstance(self.propensity, float):
            return self.weight_limit
        return min(self.weight_limit, max(1 / self.propensity, 1 / (1 - self.propensity)))

    def conflicts(self) -> Iterator[Diagnostic]:
        if (self.episode is None) != (self.step is None):
            given, missing = ("step", "episode") if self.episode is None else ("episode", "step")
            message = f"'{given}' needs '{missing}': a step of an episode is a row"
            yield Diagnostic("E102", message, f"add {missing}: COLUMN", loc=(given,), key=True)
        alone = {"outcome_model"} if self.episode else {"discount", "horizon", "fourier"}
        for key in alone & self.model_fields_set:
            what = "one decision a row" if self.episode else "episodes"
            yield Diagnostic("E104", f"'{key}' is for {what}", "leave it out", loc=(key,), key=True)
        if self.episode and not isinstance(self.propensity, str):
            message = "'propensity' of episodes is the column with the chance of each action"
            yield Diagnostic("E104", message, "name a column", loc=("propensity",), key=True)


class DatasetSpec(base.Spec):
    """A data set: a registered source by its name, or a table by its path."""

    source: base.ColumnName | None = None
    """A registered source; `ratecli ls datasets` lists them."""
    path: base.ColumnName | None = None
    """Your own table, relative to the folder of this file."""
    preparation: base.ColumnName | None = None
    """Which of the source's preparations to use."""
    rows: Annotated[int, Strict(), Field(ge=1)] | None = None
    """How many rows to generate (generated sources)."""
    seed: base.SeedNumber | None = None
    """Seed of the generated rows (generated sources)."""
    vectors: base.ColumnName | None = None
    """A file of word vectors, relative to the folder of this file (text sources)."""
    format: Literal["csv", "parquet"] | None = None
    """The table's format; by default taken from the path's ending."""
    separator: Character | None = None
    """The character between the columns of a CSV file."""
    decimal: Literal[".", ","] | None = None
    """The decimal sign of numbers in text; by default a point."""
    thousands: Literal["", ",", ".", " ", "'"] | None = None
    """The sign between the thousands of numbers in text; by default there is none. A space stands
    for all kinds of spaces.
    """
    encoding: base.ColumnName | None = None
    """The encoding of a CSV file, such as utf-16, cp1252 or latin-1; by default utf-8."""
    stream: base.StrictFlag | None = None
    """Read a table larger than memory piece by piece: a file, or a folder of files. `unconstrained`
    and `three_player` train on it.
    """
    sha256: Sha256Text | None = None
    """The file must have this SHA-256."""
    label: base.ColumnName | None = None
    """The label's column; without it, all rows count as unlabelled. In all columns, a value is
    missing if it is empty, `?`, `NA`, `N/A`, `#N/A`, `<NA>`, `NaN`, `NaT` or `null` (in upper or
    lower case), or `None`.
    """
    positive: base.ScalarValue | None = None
    """The label's value that counts as positive."""
    target: Literal["classes", "number"] | None = None
    """Whether the label is one of two classes (default) or a number, for mse and mean_error."""
    label_range: LabelRange | None = None
    """Smallest and largest possible label (null if unknown), for safety tests of target: number."""
    features: Features | None = None
    """Columns the classifier sees; by default all but label, weight and drop. `{kernel: rbf,
    components: 500}` gives linear models features of a kernel of them.
    """
    drop: base.ColumnNames | None = None
    """Columns that are not features; slices can use them."""
    weight: base.ColumnName | None = None
    """The column of row weights."""
    categorical: base.ColumnNames | None = None
    """Number columns to read as categories."""
    missing: Literal["error", "mean"] | None = None
    """How to treat missing numbers of features: as an error (default), or as the mean of the
    training rows, with a feature `COLUMN=(missing)` that marks them.
    """
    split: SplitSpec | None = None
    """How rows are divided; by default the official split, else 2/3 train and 1/3 test."""
    levels: Annotated[int, Strict(), Field(ge=2, le=MAX_LEVELS)] | None = None
    """The number of thresholds: each row is repeated for every level, in one part of the split,
    with a numeric column `level` from 0 for slices and a bias of its own.
    """

    scores: Annotated[ScoreSources | None, base.not_null(ScoreSources)] = None
    """Scores of existing models, for `model: {score: NAME}`: columns of the table, which are then
    no features, or by name files with a number for each row, or stored models of other libraries,
    evaluated on the table.
    """

    logged: LoggedSpec | None = None
    """Logged decisions and their outcomes."""

    def conflicts(self) -> Iterator[Diagnostic]:
        if (self.source is None) == (self.path is None):
            hint = "write source: NAME (`ratecli ls datasets`) or path: FILE.csv"
            yield from self.check_one_key(DATASET_KINDS, hint)
            return
        chosen = "source" if self.path is None else "path"
        own = [key for key in type(self).model_fields if key not in SOURCE_KEYS]
        allowed = SOURCE_KEYS if chosen == "source" else (*own, *SHARED_KEYS)
        for key in self.model_fields_set.difference(allowed):
            message = f"'{key}' is not a key of {DATASET_KINDS[chosen]}"
            hint = f"allowed keys: {', '.join(allowed)}"
            yield Diagnostic("E101", message, hint, loc=(key,), key=True)
        if chosen == "source":
            return
        numeric = self.target == "number"
        if numeric and self.label is None:
            message, hint = "'target: number' needs a label", "name its column: label: COLUMN"
            yield Diagnostic("E102", message, hint, loc=("target",), key=True)
        given = {key: getattr(self, key) is not None for key in type(self).model_fields}
        given |= {"target: number": numeric, "missing: mean": self.missing == "mean"}
        given[KERNEL_FEATURES] = self.kernel is not None
        rows = ("target: number", "levels")
        episodes = self.logged is not None and self.logged.episode is not None
        for present, other, keys, hint in (
            (numeric, "target: number", ("positive",), "remove one of them"),
            (not numeric, "target: classes", ("label_range",), "write 'target: number'"),
            (self.stream, "stream", (*rows, "scores", "logged", KERNEL_FEATURES), IN_MEMORY_HINT),
            (given["logged"], "logged", rows, "leave one of them out"),
            (episodes, "logged: {episode: ...}", UNREAD_BY_EPISODES, "leave one of them out"),
        ):
            yield from (_conflict(key, other, hint) for key in keys if present and given[key])

    @property
    def kernel(self) -> KernelSpec | None:
        return self.features if isinstance(self.features, KernelSpec) else None

    @property
    def named_features(self) -> tuple[str, ...]:
        """The columns that are named as features."""
        given = self.features
        return (given.columns if isinstance(given, KernelSpec) else given) or ()

    @property
    def division(self) -> SplitSpec:
        """How rows are divided, by default without any key."""
        return self.split or DEFAULT_SPLIT

    @property
    def score_files(self) -> dict[str, str | None]:
        """The file of each score, by name; None for a column of the table."""
        named = self.scores or {}
        return dict(named) if isinstance(named, dict) else dict.fromkeys(named)

    @property
    def score_columns(self) -> tuple[str, ...]:
        """The columns of the table that are scores of existing models."""
        return tuple(name for name, file in self.score_files.items() if file is None)

    @property
    def number_columns(self) -> tuple[str, ...]:
        """The columns other than features that hold numbers."""
        label = self.label if self.target == "number" else None
        named = [label, self.weight, self.division.order, *self.score_columns]
        if (logged := self.logged) is not None:
            others = (logged.action, logged.episode)
            named += [name for name in logged.names if name not in others]
        return tuple(name for name in named if name)


def known_range(ends: tuple[float | None, float | None] | None) -> tuple[float, float]:
    """Return the ends of a range as numbers, infinite where unknown."""
    low, high = ends or (None, None)
    return (-math.inf if low is None else low, math.inf if high is None else high)


def _conflict(key: str, other: str, hint: str) -> Diagnostic:
    message = f"'{key}' cannot be combined with '{other}'"
    return Diagnostic("E104", message, hint, loc=(key.partition(":")[0],), key=True)
