"""A question put to rows: what a trial of the runner does, on rows that are in no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import _check_sample_weight

from ratecli.api.goals import ROWS, Question, Read
from ratecli.api.rows import Given
from ratecli.datasets.apply_encoder import apply, as_known, surprises
from ratecli.datasets.columns import Kind, is_text
from ratecli.datasets.encode import Encoder
from ratecli.datasets.load import check_feature
from ratecli.datasets.missing import ERROR, MEAN
from ratecli.datasets.split import put_aside
from ratecli.datasets.table import Table
from ratecli.errors import Fault, FaultError
from ratecli.experiment.cases import Case
from ratecli.experiment.group_checks import group_faults
from ratecli.experiment.plan import Job
from ratecli.experiment.row_checks import check_rows
from ratecli.ledger.keys import stream
from ratecli.ledger.records import Value
from ratecli.models.base import Array, Classifier, Features
from ratecli.models.grouped import with_members
from ratecli.rates import expression as ex
from ratecli.rates.matrix import Predictions
from ratecli.rates.parser import parse_conditions
from ratecli.rates.sample import Sample, relative_weights
from ratecli.runner.trial import Ending, problem_of, solved
from ratecli.runner.worker import one_thread
from ratecli.sampling.deployed_column import decisions_in
from ratecli.sampling.resampling import Holdout
from ratecli.sampling.rows import Data, World
from ratecli.sampling.slices import memberships
from ratecli.solvers.base import Solution

BITS = 32
"""Precision of sample weights: solvers may amplify the rounding error of a constant factor."""
NO_DATA = Data((), str(Path()))
LARGEST = 1e30
"""Largest number that is a feature as it is (liblinear's limit); the inverse is the smallest."""


@dataclass(frozen=True)
class Reader:
    """How features are made of rows, as training rows said.

    Attributes
    ----------
    encoder
        Of the columns of a frame that are encoded; None where features are numbers as they are.
    numbers
        The columns of a frame that are features as they are.
    kinds
        What each column that rules may name held in training.
    """

    encoder: Encoder | None
    numbers: tuple[str, ...]
    kinds: Mapping[str, Kind]

    @classmethod
    def of(
        cls,
        given: Given,
        features: Sequence[str],
        train: NDArray[np.intp],
        *,
        encode: bool | Literal["auto"],
        missing: str = ERROR,
    ) -> Reader:
        """`auto` encodes frames that have text among their features, or where missing numbers are means.

        All rows must do as features; those in `train` say how.

        Raises
        ------
        FaultError
            E407, E411 for features that are not finite, or cannot be taken as they are, E104 for options that
            do not go together.
        """
        kinds, means = given.kinds, _means(missing)
        if given.raw is None:
            assert given.matrix is not None
            _check_sizes(given.matrix, [f"x{k}" for k in range(given.matrix.shape[1])])
            asked = "encode is True" if encode is True else "missing is 'mean'" if means else ""
            if asked:
                message = f"{asked}, and X is an array: its features are taken as they are"
                raise FaultError(Fault("E104", message, "give a DataFrame"))
            return cls(None, (), kinds)
        if means and encode is False:
            message = "missing is 'mean', and encode is False: numbers are taken as they are"
            raise FaultError(Fault("E104", message, "leave out encode"))
        frame = given.features(features)
        text = [name for name in features if is_text(frame[name])]
        if encode is False and text:
            message = f"column '{text[0]}' holds text, which is no feature as it is"
            raise FaultError(Fault("E411", message, "say encode=True, or drop it"))
        for name in features:
            _check(frame[name], name, means=means)
        if not (text or means if encode == "auto" else encode):
            _check_sizes(frame.to_numpy(dtype=np.float64), features)
            return cls(None, tuple(features), kinds)
        nothing = np.full(len(given), np.nan)
        table = Table(frame, tuple(features), nothing, digest="", missing=means)
        return cls(Encoder.fit([table], [train]), (), kinds)

    def features(self, given: Given) -> Features:
        """(n, d); raises E205, E407, E411 where columns are not like those of training."""
        if given.raw is None:
            assert given.matrix is not None
            return given.matrix
        if self.encoder is not None:
            return apply(self.encoder, given.features(self.encoder.kinds))
        kinds: dict[str, Kind | None] = dict.fromkeys(self.numbers, "number")
        found = as_known(given.features(self.numbers), kinds, given.names)
        for name in self.numbers:
            check_feature(found[name], name, meant_as_text=False)
        return found.to_numpy(dtype=np.float64)

    def surprises(self, given: Given) -> list[Fault]:
        """W404 and W405 of values that training rows did not have."""
        if self.encoder is None or given.raw is None:
            return []
        return surprises(self.encoder, given.features(self.encoder.kinds))

    def shown(self, given: Given, classifier: Classifier) -> Features:
        """(n, d + S) what a classifier looks at: features, and behind them who is in its slices.

        Raises
        ------
        FaultError
            E205 for a column of its slices that is not there, and as `features`.
        """
        texts = classifier.slices
        if not texts:
            return self.features(given)
        names = sorted({each.column for text in texts for each in parse_conditions(text)})
        known = as_known(
            given.named(names), {name: self.kinds.get(name) for name in names}, list(given.columns)
        )
        columns = {name: np.asarray(known[name]) for name in names}
        return with_members(
            self.features(given), memberships(sample_of(columns, len(given)), texts)
        )


def _check(column: Any, name: str, *, means: bool) -> None:
    """As `check_feature`, with the way out that there is here."""
    try:
        check_feature(column, name, meant_as_text=True, means=means)
    except FaultError as error:
        way = "drop the column, or fill in its values"
        way += "" if means else ', or say missing="mean" if none is infinite'
        raise FaultError(replace(fault, help=way) for fault in error.faults) from None


def _check_sizes(X: Features, names: Sequence[str]) -> None:
    """Raise E407 for a column of features that no algorithm can use as they are: it has no scale to them."""
    largest = np.maximum(_flat(X.max(axis=0)), -_flat(X.min(axis=0)))
    for what, wrong in (
        ("large", largest > LARGEST),
        ("small", (largest > 0) & (largest < 1 / LARGEST)),
    ):
        if wrong.any():
            name, value = names[int(np.argmax(wrong))], largest[wrong][0]
            message = f"the numbers of column '{name}', up to {value:g}, are too {what} as they are"
            way = (
                "give them in other units, or standardize them: encode=True does so for a DataFrame"
            )
            raise FaultError(Fault("E407", message, way))


def _flat(found: Any) -> Array:
    """One row of a dense or sparse array."""
    return np.asarray(found.toarray() if sparse.issparse(found) else found, dtype=float).ravel()


def _means(missing: str) -> bool:
    if missing not in {ERROR, MEAN}:
        raise FaultError(Fault("E104", f"missing is {missing!r}, not '{ERROR}' or '{MEAN}'"))
    return missing == MEAN


def sample_of(columns: Mapping[str, Any], count: int) -> Sample:
    """Rows of which no label is known."""
    nothing = np.full(count, np.nan)
    return Sample(columns, nothing, np.full(count, ROWS), np.full(count, "train"), np.ones(count))


def weights_of(sample_weight: Any, X: Any) -> Array:
    """Check sample weights, and return them (n,) in a unit that does not depend on their scale.

    Raises
    ------
    ValueError
        For weights that are not finite, negative, all zero, too far apart, or not one a row.
    """
    found = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    try:
        mantissa, exponent = np.frexp(relative_weights(found))
        return np.asarray(np.ldexp(np.round(mantissa * 2.0**BITS) / 2.0**BITS, exponent))
    except ValueError as error:
        message = f"sample_weight {error}; rows that are not to count have a weight of 0"
        raise ValueError(message) from None


@dataclass(frozen=True)
class Labelled:
    """Rows with labels (n,) of 0 and 1, or NaN, and weights (n,) as of `weights_of`."""

    given: Given
    label: Array
    weight: Array
    part: NDArray[np.str_] | None = None

    def counted(self) -> NDArray[np.intp]:
        """The rows whose weight is not 0."""
        return np.flatnonzero(self.weight > 0)

    def take(self, rows: NDArray[np.intp]) -> Labelled:
        if len(rows) == len(self.label):
            return self
        part = None if self.part is None else self.part[rows]
        return Labelled(self.given.take(rows), self.label[rows], self.weight[rows], part)

    def put_aside(self, holdout: Holdout | None, seed: int) -> Labelled:
        """With some of them for a safety test, as the runner draws them, where there is one.

        Raises
        ------
        FaultError
            E205 for a column to stratify by that is not there, E410 where a part would be empty.
        """
        if holdout is None:
            return self
        self.given.require(name for name in holdout.stratify if name != "label")
        table = Table(self.given.named(holdout.stratify), (), self.label, digest="")
        aside = put_aside(
            table,
            np.arange(len(self.given)),
            holdout.fraction,
            stream(seed, "safety", ROWS),
            stratify=holdout.stratify,
            positional=holdout.positional,
        )
        return replace(self, part=np.where(aside, "safety", "train"))

    def training(self) -> NDArray[np.intp]:
        """The rows that are not put aside."""
        return (
            np.arange(len(self.label))
            if self.part is None
            else np.flatnonzero(self.part == "train")
        )

    def sample(self, deployed: str | None) -> Sample:
        """Raises E205, E406 where the column `deployed` is not there or holds no decisions."""
        count, columns = len(self.given), self.given.columns
        part = np.full(count, "train") if self.part is None else self.part
        found = Sample(columns, self.label, np.full(count, ROWS), part, self.weight)
        if deployed is None:
            return found
        self.given.require([deployed])
        return found.with_deployed(decisions_in(columns[deployed], deployed))


@dataclass(frozen=True)
class Fitted:
    """What came of a question.

    Attributes
    ----------
    values
        The objective and the violations of rules on the training rows, by variant and then by name.
    doubts
        What only the rows tell (W401 and the like).
    """

    read: Read
    reader: Reader
    solution: Solution
    values: Mapping[str, Mapping[str, float]]
    ending: Ending
    doubts: tuple[Fault, ...]


def fitted(
    question: Question,
    rows: Labelled,
    seed: int,
    *,
    drop: Sequence[str],
    encode: bool | Literal["auto"],
    missing: str = ERROR,
) -> Fitted:
    """Solve it on training rows; columns that are dropped are no features. With a safety test some of the
    rows are put aside for it. `encode` and `missing` as `Reader` has them.

    Raises
    ------
    FaultError
        E1xx to E4xx where what is asked cannot be read or does not go with the rows.
    """
    read = question.read(rows.given.values)
    features = feature_names(rows.given, [*drop, *read.case.unseen, *_listed(question.deployed)])
    rows = rows.put_aside(read.case.holdout, seed)
    train = rows.training()
    reader = Reader.of(rows.given, features, train, encode=encode, missing=missing)
    world = World(rows.sample(question.deployed), reader.features(rows.given))
    with read.written.placing(), one_thread():
        doubts = checked(read, world)
        solution, values, ending = _Fitting(read, world, seed).solved(read.case)
    return Fitted(read, reader, solution, _by_name(read.case, values), ending, tuple(doubts))


def feature_names(given: Given, dropped: Sequence[str]) -> list[str]:
    """The columns of a frame that are features; of an array all are.

    Raises
    ------
    FaultError
        E205 for a dropped column that there is nowhere, E411 for one of an array, or where none is left.
    """
    given.require(dropped)
    if given.raw is None:
        inside = [name for name in dropped if name in given.names and name not in given.beside]
        if inside:
            message = f"'{inside[0]}' is a column of an array, and all of these are features"
            raise FaultError(Fault("E411", message, "give a DataFrame, or sensitive_features"))
        return []
    left = [name for name in given.names if name not in dropped]
    if not left:
        raise FaultError(Fault("E411", "no column of X is left as a feature"))
    return left


def checked(read: Read, world: World) -> list[Fault]:
    """Warnings about the rows; raises what only they tell to be wrong."""
    cases = [read.case, *read.others]
    told = group_faults(read.experiment, read.document, world, cases)
    wrong = [fault for fault in told if fault.is_error]
    if wrong:
        raise FaultError(wrong)
    return [*told, *check_rows(world, read.document, read.reading, cases)]


@dataclass(frozen=True)
class _Fitting:
    read: Read
    world: World
    seed: int

    def solved(self, case: Case) -> tuple[Solution, list[Value], Ending]:
        """A case's solution; those of the algorithms that its goals speak of are found first."""
        needed = case.of(goals_only=True)
        others = {other.label: other for other in self.read.others if other.label in needed}
        reference = {label: self._main(other) for label, other in others.items()}
        job = job_of(self.read, case, self.world.sample, self.seed)
        problem = problem_of(job, self.world, reference, {})
        return solved(job, self.world, problem, reference)

    def _main(self, case: Case) -> Predictions:
        # what an algorithm that ignores goals is measured on does not change what it finds
        solution, _, _ = self.solved(replace(case, constraints=(), metrics={}))
        return self.world.predictions(next(iter(solution.variants.values())))


def job_of(read: Read, case: Case, sample: Sample, seed: int) -> Job:
    """The job of a trial that needs no other trial."""
    l2 = read.experiment.regularization.l2
    if isinstance(l2, str):  # n is how many rows the weights stand for
        train = sample.weight[sample.part == "train"]
        l2 = float(l2.removesuffix("/n")) / float(train.sum())
    return Job("", seed, case, NO_DATA, l2, {}, None, False, read.deployed, None, None, {})


def _by_name(case: Case, values: Sequence[Value]) -> dict[str, dict[str, float]]:
    """By variant and display name, on training rows."""
    told = {(each.variant, each.metric): each.value for each in values if each.split == "train"}
    texts = {name: ex.text(metric) for name, metric in case.metrics.items()}
    return {
        variant: {name: told[variant, text] for name, text in texts.items()}
        for variant in dict.fromkeys(variant for variant, _ in told)
    }


def _listed(name: str | None) -> list[str]:
    return [] if name is None else [name]
