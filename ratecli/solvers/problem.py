"""The optimization problem that a solver receives: features, rates and goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.certify.trees import SafetyTestSpec
from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Classifier, Features
from ratecli.models.composed import append_memberships, hash_memberships
from ratecli.models.layout import ColumnLayout
from ratecli.models.output_cache import take_rows
from ratecli.models.policy import EpisodeLayout
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine
from ratecli.rates.analysis import Goal, Shape, affine_pieces
from ratecli.rates.functions import ROUNDING, Interval
from ratecli.rates.matrix import RateMatrix, number_keys
from ratecli.rates.rate_function import RateFunction
from ratecli.rates.sample import Mask, make_read_only
from ratecli.rates.table import RATES, Measurement
from ratecli.streaming.stream import RowStream

ERROR_RATE = ex.Leaf(RATES["error"])


@dataclass(frozen=True)
class Problem:
    """Minimize the objective plus `l2 / 2 |w|^2` with every piece of each constraint at most 0.

    Algorithms share the arrays, so all are read-only: copy an array before you change it.

    Attributes
    ----------
    X
        (n, d) features of the training rows; (n, 0) if the rows are streamed.
    rates
        All rates that the pieces and the original expressions of the goals contain, and `error` of
        all labelled rows.
    l2
        Weight of `|w|^2 / 2` beside the mean hinge loss with margin 1, as in LIBLINEAR: `C = 1 / (n
        l2)`. Scores with the ramp's margin of 1/2 are half as large, and the same problem in rate
        units has `lambda = 2 l2` (protocols of Goh et al. 2016, 2.4.2).
    validation
        The same problem on validation rows, used to choose among settings and to judge constraints.
        Limits that refer to other algorithms use their results there. None without such rows.
    slices
        (n,) membership of the rows in each slice of the goals' rates, keyed by the text of its
        conditions.
    known
        (n,) whether a row has a value in each column that defines slices of the goals' rates, keyed
        by column name.
    label
        (n,) the label: 1 or 0, or a number; NaN where a row has none.
    label_range
        Smallest and largest possible value of numeric labels, infinite where unknown; None for
        labels of two classes.
    safety_test
        The safety test that the solution has to pass, if any.
    deployed
        The deployed model, for algorithms that need it.
    stream
        The rows, if they are not held in memory. Arrays over n rows are then arrays over n cells of
        rows that count alike (`streaming.stream`).
    column_layout
        Which features belong to one column; None if each is a number.
    episodes
        How a row of features holds the steps of an episode, if each is one.
    seed
        Seed of fits that algorithms share.
    near
        The classifier of a similar problem on the same rows, from which a search may start.
    """

    X: Features
    rates: RateMatrix
    objective: Goal
    constraints: tuple[Goal, ...]
    l2: float
    validation: Problem | None = None
    slices: Mapping[str, Mask] = field(default_factory=dict)
    known: Mapping[str, Mask] = field(default_factory=dict)
    label: Array = field(default_factory=lambda: np.zeros(0))
    label_range: Interval | None = None
    safety_test: SafetyTestSpec | None = None
    deployed: Classifier | None = None
    stream: RowStream | None = None
    column_layout: ColumnLayout | None = None
    episodes: EpisodeLayout | None = None
    seed: int = 0
    near: Classifier | None = None

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def layout(self) -> ColumnLayout:
        """The columns behind the features."""
        return self.column_layout or ColumnLayout.numbers(self.X.shape[1])

    @property
    def label_ends(self) -> Interval:
        """Smallest and largest possible label."""
        return (0.0, 1.0) if self.label_range is None else self.label_range

    @property
    def pieces(self) -> list[ex.Expression]:
        """The J pieces of all constraints."""
        return [piece for goal in self.constraints for piece in goal.pieces]

    @property
    def piece_owners(self) -> list[str]:
        """(J,) the name of the constraint that each piece belongs to."""
        return [goal.name for goal in self.constraints for _ in goal.pieces]

    @property
    def counts(self) -> Array | None:
        """(n,) effective number of rows in each cell of streamed rows; None in memory."""
        return None if self.stream is None else self.stream.effective

    def decisions(self, classifier: Classifier) -> Array:
        """Return the decisions (n,) of a classifier that uses only slices of the goals.

        If labels are numbers, return its estimates.
        """
        if self.label_range is not None:
            return classifier.estimate(self.X)
        if self.stream is not None:
            return self.stream.predictions({"": classifier})[""].decisions
        return classifier.decide(self.inputs(classifier))

    def inputs(self, classifier: Classifier) -> Features:
        """Return the inputs (n, d + S) of a classifier: the features and its slices."""
        return append_memberships(self.X, [self.slices[text] for text in classifier.slices])

    def measurements(self, estimates: Array) -> dict[Measurement, Array]:
        """Return (n,) what rates are means of: decisions, or errors if labels are numbers."""
        if self.label_range is None:
            return {"decision": estimates}
        error = np.nan_to_num(estimates - self.label)
        return {"decision": np.zeros(len(error)), "error": error, "squared_error": error**2}

    def measured(self, decisions: Array) -> Array:
        """Return the rates (K,) of decisions (n,), or of estimates if labels are numbers."""
        if self.label_range is None:
            return self.rates.rates(decisions)
        return self.rates.measured(self.measurements(decisions))

    def function(self, *expressions: ex.Expression) -> RateFunction:
        """Compile expressions as functions of the rates (K,)."""
        return RateFunction.of(expressions, self.rates.index())

    @cached_property
    def piece_function(self) -> RateFunction:
        """The J pieces as functions of the rates."""
        return self.function(*self.pieces)

    @cached_property
    def opposites(self) -> list[tuple[int, int, float]]:
        """Pairs of pieces whose sum is the same for all rates, with this sum.

        They limit a difference from both sides. An excess of one is a lack of the other.
        """
        points = np.random.default_rng(0).random((len(self.rates.index()), 3))
        found = self.piece_function.values(points)
        change = found - found[:, :1]
        cancel = np.abs(change[:, None] + change).max(axis=2) < ROUNDING
        pairs = np.argwhere(np.triu(cancel, 1)).tolist()
        return [(i, j, float(found[i, 0] + found[j, 0])) for i, j in pairs]

    @cached_property
    def _objective(self) -> RateFunction:
        return self.function(self.objective.expression)

    @cached_property
    def _written(self) -> RateFunction:
        """The violations as written, with ratios; 0 for constraints that are always defined."""
        return self.function(*(goal.undefined_part for goal in self.constraints))

    def piece_values(self, rates: Array) -> Array:
        """Return the pieces (J,) at rates (K,); NaN if their constraint as written is undefined."""
        undefined = np.isnan(self._written.values(rates))
        counts = [len(goal.pieces) for goal in self.constraints]
        found = self.piece_function.values(rates)
        return np.where(np.repeat(undefined, counts), np.nan, found)

    def violations(self, rates: Array) -> dict[str, float]:
        """Return by how much rates (K,) violate each constraint, NaN where it is undefined."""
        found = dict.fromkeys(self.piece_owners, -np.inf)
        for name, value in zip(self.piece_owners, self.piece_values(rates).tolist(), strict=True):
            found[name] = float(np.maximum(found[name], value))
        return found

    def nearest_miss(self, rates: Array) -> str:
        """Return which constraint the least violating of rates (K, T) violate, and by how much.

        Violations are those that reports show: a limit of a ratio is compared with the ratio.
        """
        written = self.function(*(goal.expression for goal in self.constraints))
        found = np.nan_to_num(written.values(rates), nan=np.inf)
        worst = found[:, found.max(axis=0).argmin()]
        return f"'{self.constraints[worst.argmax()].name}' by {worst.max():.3g}"

    def worst_violation(self, rates: Array) -> float:
        """Return the violation of the worst constraint, 0 if all hold; undefined counts as 1."""
        found = np.array(list(self.violations(rates).values()))
        return float(np.nan_to_num(found, nan=1.0).max(initial=0.0))

    def violation(self, classifier: Classifier) -> float:
        """Return the `worst_violation` of a classifier's rates."""
        return self.worst_violation(self.measured(self.decisions(classifier)))

    def on(self, rows: NDArray[np.intp]) -> Problem:
        """Return the problem on some of the rows, with rates of these alone."""
        return replace(
            self,
            near=None,
            X=take_rows(self.X, rows),
            rates=self.rates.on(rows),
            slices={text: mask[rows] for text, mask in self.slices.items()},
            known={name: mask[rows] for name, mask in self.known.items()},
            label=self.label[rows] if len(self.label) else self.label,
        )

    def value(self, classifier: Classifier) -> float:
        """Return the objective of a classifier, NaN if it is undefined."""
        return self.value_of(self.decisions(classifier))

    def value_of(self, decisions: Array) -> float:
        """Return the objective of `decisions` (n,), NaN if it is undefined."""
        return self.objective_at(self.measured(decisions))

    def objective_at(self, rates: Array) -> float:
        """Return the objective at rates (K,), NaN if it is undefined."""
        return float(self._objective.values(rates)[0])

    def rows(self, *goals: Goal) -> tuple[Array, Array]:
        """Return the pieces of affine goals in the form of `combine_affine_forms`."""
        forms = [form for goal in goals for form in affine_pieces(goal)]
        return combine_affine_forms(self.rates, forms)

    @property
    def labelled(self) -> bool:
        """Whether some row has a label; without any, `error` is 0 for all decisions."""
        k = self.rates.index()[ERROR_RATE]
        if self.label_range is not None:
            return bool(self.rates.totals[k] > 0)
        return bool(self.rates.sums[[k]].nnz > 0)

    def error(self) -> tuple[Array, Array]:
        """Return plain error in the form of `rows`: shapes (1, n) and (1,).

        If no row has a label, it is the objective, if that is a sum of rates that has values of
        logged decisions.

        Raises
        ------
        FaultError
            E306 if no row has a label and the objective is no such sum.
        """
        if not self.labelled:
            pieces = affine_pieces(self.objective) if self.objective.shape is Shape.AFFINE else ()
            if not all(leaf.rate.counts_rows for form in pieces for leaf in form.coefficients):
                found = combine_affine_forms(self.rates, pieces)
                if found[0].any():
                    return found
            hint = "set label: COLUMN in the data set, or for logged decisions minimize -value(...)"
            raise FaultError(Diagnostic("E306", "no training row has a label", hint))
        return combine_affine_forms(self.rates, [Affine({ERROR_RATE: 1.0})])

    def labels(self) -> tuple[Array, Array]:
        """Return signs (n,) in {-1, 0, 1} and weights (n,) >= 0 with sum 1, as in plain error.

        Raises
        ------
        FaultError
            E306 if no row has a label.
        """
        (coefficients,), _ = self.error()
        weights = np.abs(coefficients)
        return -np.sign(coefficients), weights if self.labelled else weights / weights.sum()


def combine_affine_forms(rates: RateMatrix, forms: Sequence[Affine]) -> tuple[Array, Array]:
    """Return affine forms of the rates of n rows as coefficients (m, n) and constants (m,).

    The forms equal `coefficients @ p + constants` for decisions p.
    """
    mix, constants = mix_of(rates, forms)
    return mix.toarray() @ rates.A, mix @ np.nan_to_num(rates.c) + constants


def mix_of(rates: RateMatrix, forms: Sequence[Affine]) -> tuple[sparse.csr_array, Array]:
    """Return affine forms as sparse coefficients (m, K) of the rates, and constants (m,)."""
    index = rates.index()
    columns = [index[leaf] for form in forms for leaf in form.coefficients]
    entries = [value for form in forms for value in form.coefficients.values()]
    starts = np.cumsum([0, *(len(form.coefficients) for form in forms)])
    mix = sparse.csr_array((entries, columns, starts), shape=(len(forms), len(index)))
    return mix, np.array([form.constant for form in forms])


def sum_by_goal(owners: Sequence[str], found: Array) -> dict[str, float]:
    """Return the sum of `found` (J,) over the pieces of each constraint, by constraint name."""
    total = dict.fromkeys(owners, 0.0)
    for name, value in zip(owners, found, strict=True):
        total[name] += float(value)
    return total


@dataclass(frozen=True)
class Groups:
    """The cells into which the slices of the goals' rates partition the rows.

    Only slices of rates that depend on decisions count. The data set that a row comes from does not
    define a group.

    Attributes
    ----------
    slices
        S conditions as text, in alphabetical order.
    patterns
        (C, S) which slices the rows of each group are in.
    of
        (n,) the group of each row, 0 to C - 1.
    """

    slices: tuple[str, ...]
    patterns: NDArray[np.bool_]
    of: NDArray[np.intp]

    @classmethod
    def of_problem(cls, problem: Problem) -> Groups:
        """Return the groups of a problem's rows."""
        pieces = [p for goal in (problem.objective, *problem.constraints) for p in goal.pieces]
        moving = (leaf for leaf in ex.leaves(*pieces) if leaf.rate.yes != leaf.rate.no)
        texts = sorted({str(leaf.where.visible) for leaf in moving if leaf.where.conditions})
        n = problem.X.shape[0]
        members = np.array([problem.slices[text] for text in texts], dtype=bool).reshape(-1, n).T
        return cls.by(tuple(texts), members)

    @classmethod
    def by(cls, slices: tuple[str, ...], members: NDArray[np.bool_]) -> Groups:
        """Return the cells of memberships (n, S)."""
        of, first = number_keys(hash_memberships(members))
        return cls(slices, members[first], of)
