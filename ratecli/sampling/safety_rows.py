"""The safety test of a trial: which variants of a solution pass, and the certificates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.certify.certificate import certify
from ratecli.certify.forms import MeasuredRows
from ratecli.certify.trees import SafetyTestSpec
from ratecli.ledger.records import random_stream
from ratecli.models.base import Classifier
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Leaf
from ratecli.rates.matrix import Predictions, RateMatrix, build_rate_matrix
from ratecli.rates.sample import Sample
from ratecli.sampling.rows import TrialData
from ratecli.solvers.base import Solution

ACCEPTED_STATUSES = frozenset({"solved", "iteration_limit"})
"""Statuses of solutions that the solver considers valid."""


@dataclass(frozen=True)
class SafetyTestResult:
    """Outcome of the safety test of a solution.

    Attributes
    ----------
    solution
        The solution with the variants that passed; none if the main variant failed.
    status, reason
        Of the trial: `ok`, `no_solution_found`, or the solver's status if it has no valid solution.
    certificates
        Records of all tests, passed or not, as JSON values.
    """

    solution: Solution
    status: str
    reason: str
    certificates: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class SafetyRows:
    """Held-out rows with the test to pass on them; `seed` is the trial's."""

    rows: TrialData
    spec: SafetyTestSpec
    label_range: tuple[float, float]
    seed: int

    def verdict(
        self, solution: Solution, answers: Mapping[str, Predictions], rules: Sequence[Goal]
    ) -> SafetyTestResult:
        """Test every variant; `answers` are their predictions on all rows, by name.

        If the solver has no valid solution, its status is kept whatever the tests show.
        """
        goals = [without_split_condition(goal) for goal in rules]
        found = {name: self._tested(name, goals, said) for name, said in answers.items()}
        records = tuple(record for tests in found.values() for record in tests)
        passed = [name for name, tests in found.items() if all(test["passed"] for test in tests)]
        main = next(iter(answers), None)
        status, reasons = solution.status, [solution.reason] if solution.reason else []
        variants: dict[str, Classifier] = {}
        if status in ACCEPTED_STATUSES and main in passed:
            status, variants = "ok", {name: solution.variants[name] for name in passed}
        elif status in ACCEPTED_STATUSES and main is not None:
            status = "no_solution_found"
            reasons += [test["explanation"] for test in found[main] if not test["passed"]]
        solution = replace(solution, variants=variants)
        return SafetyTestResult(solution, status, "; ".join(reasons), records)

    def _tested(
        self, variant: str, goals: Sequence[Goal], said: Predictions
    ) -> list[dict[str, Any]]:
        leaves = goal_leaves(goals)
        # settings of the test are chosen on unfiltered rows, like those that are tested
        rows, candidate = (
            self._measured(leaves, said, sample, split)
            for sample, split in ((self.rows.sample, "safety"), (self.rows.unfiltered(), "train"))
        )
        rng = random_stream(self.seed, "safety test", variant)
        certificates = certify(goals, self.spec, rows, rng, candidate)
        return [each.record() | {"variant": variant} for each in certificates]

    def _measured(
        self, leaves: Sequence[Leaf], said: Predictions, sample: Sample, split: str
    ) -> MeasuredRows:
        """Return the rows of a split, measured for each kind of rate and by their decisions."""
        rates, rows = rates_on_split(leaves, sample, split)
        kinds = dict.fromkeys(["decision", *(leaf.rate.of for leaf in leaves)])
        label = self.rows.sample.label
        measurements = {of: said.measure(of, label)[rows] for of in kinds}
        return MeasuredRows(rates, measurements, self.label_range)


def goal_leaves(goals: Sequence[Goal]) -> list[Leaf]:
    """Return every rate of some goals, in their expressions and pieces."""
    return ex.leaves(*(each for goal in goals for each in (goal.expression, *goal.pieces)))


def rates_on_split(
    leaves: Sequence[Leaf], sample: Sample, split: str
) -> tuple[RateMatrix, NDArray[np.intp]]:
    """Return the rates on the rows of a split, and the positions of these rows."""
    rows = np.flatnonzero(sample.rows(ex.ALL_ROWS, split))
    return build_rate_matrix(leaves, sample, split).on(rows), rows


def without_split_condition(goal: Goal) -> Goal:
    """Return the goal without its `@split` conditions, so that it can be measured on any rows."""

    def free(part: ex.Expression) -> ex.Expression | None:
        return replace(part, split=None) if isinstance(part, Leaf) else None

    pieces = tuple(ex.transform(piece, free) for piece in goal.pieces)
    return replace(goal, expression=ex.transform(goal.expression, free), pieces=pieces)
