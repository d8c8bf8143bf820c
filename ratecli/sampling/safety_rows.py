"""The safety test of a trial: which variants of a solution pass, and the certificates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.certify.certificate import Certificate, certify
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
from ratecli.solvers.base import USABLE_STATUSES, Solution

NOT_EXACT = (
    "the certificate is approximate, since propensities are estimated or importance weights are "
    "limited by max_weight"
)
"""Why a certificate about values of logged decisions is not exact."""


@dataclass(frozen=True)
class SafetyTestResult:
    """Outcome of the safety test of a solution.

    Attributes
    ----------
    solution
        The solution with the variants that passed; none if the main variant failed.
    predictions
        Predictions of these variants on all rows.
    status, reason
        Of the trial: `ok`, `no_solution_found`, or the solver's status if it has no valid solution.
    certificates
        Records of all tests, passed or not, as JSON values.
    """

    solution: Solution
    predictions: Mapping[str, Predictions]
    status: str
    reason: str
    certificates: tuple[dict[str, Any], ...]


class _Tested(NamedTuple):
    """A candidate of a variant, with the records of its tests."""

    classifier: Classifier
    predictions: Predictions
    records: list[dict[str, Any]]

    @property
    def passed(self) -> bool:
        return all(record["passed"] for record in self.records)


@dataclass(frozen=True)
class SafetyRows:
    """Held-out rows with the test to pass on them; `seed` is the trial's."""

    rows: TrialData
    spec: SafetyTestSpec
    label_range: tuple[float, float]
    seed: int

    def verdict(
        self,
        solution: Solution,
        first: Mapping[str, Predictions],
        rules: Sequence[Goal],
        *,
        predicted: bool = False,
    ) -> SafetyTestResult:
        """Test every variant; `first` are their predictions on all rows, by name.

        Candidates of a variant are tested in their order, safest first, until one fails; the last
        one that passed is returned. The first candidate that violates a constraint must pass for
        any such candidate to be returned, which happens with a probability of at most the
        constraint's delta: it is not divided among candidates (fixed-sequence testing; Angelopoulos
        et al. 2021, "Learn then Test"). The order does not depend on the tested rows.

        If the solver has no valid solution, its status is kept whatever the tests show. If it
        `predicted` the failure of the test, its reason says how many rows some candidate needs, and
        the tests' explanations, which are about the tested candidate, are left out.
        """
        goals = [without_split_condition(goal) for goal in rules]
        found = {name: self._tested(name, goals, solution, first) for name in first}
        records = tuple(record for tested in found.values() for record in tested.records)
        passed = {name: tested for name, tested in found.items() if tested.passed}
        main = next(iter(first), None)
        status, reasons = solution.status, [solution.reason] if solution.reason else []
        if status in USABLE_STATUSES and main in passed:
            status, reasons = "ok", []
        else:
            passed = {}
            if status in USABLE_STATUSES and main is not None:
                status = "no_solution_found"
                tests = () if predicted and reasons else found[main].records
                reasons += [test["explanation"] for test in tests if not test["passed"]]
        variants = {name: tested.classifier for name, tested in passed.items()}
        predictions = {name: tested.predictions for name, tested in passed.items()}
        ended = solution.status if variants else status
        solution = replace(solution, variants=variants, status=ended, bolder=())
        return SafetyTestResult(solution, predictions, status, "; ".join(reasons), records)

    def _tested(
        self,
        variant: str,
        goals: Sequence[Goal],
        solution: Solution,
        first: Mapping[str, Predictions],
    ) -> _Tested:
        """Test the candidates of a variant until one fails; return the last one that passed.

        If the first one fails, return that one.
        """
        spec, count = self.spec, 1
        if spec.joint:  # a user may choose among variants, too
            delta = {name: each / len(first) for name, each in spec.delta.items()}
            spec, count = replace(spec, delta=delta), spec.joint * len(first)
        path = [solution.variants[variant]]
        path += [variants[variant] for variants in solution.bolder if variant in variants]
        last: _Tested | None = None
        for step, classifier in enumerate(path, 1):
            answers = first if step == 1 else self.rows.answers({variant: classifier})
            more: dict[str, Any] = {"variant": variant}
            more |= {"candidate": step, "candidates": len(path)} if len(path) > 1 else {}
            more |= {"models": count} if spec.joint else {}
            tests = self._certificates(variant, goals, answers[variant], spec)
            records = [each.record() | more for each in tests]
            tested = _Tested(classifier, answers[variant], records)
            if not tested.passed:
                return last or tested
            last = tested
        assert last is not None
        return last

    def _certificates(
        self, variant: str, goals: Sequence[Goal], said: Predictions, spec: SafetyTestSpec
    ) -> tuple[Certificate, ...]:
        leaves = goal_leaves(goals)
        # settings of the test are chosen on unfiltered rows, like those that are tested
        rows, candidate = (
            self._measured(leaves, said, sample, split)
            for sample, split in ((self.rows.sample, "safety"), (self.rows.unfiltered(), "train"))
        )
        rng = random_stream(self.seed, "safety test", variant)
        found = certify(goals, spec, rows, rng, candidate)
        logs = self.rows.sample.logs
        if logs is None or logs.exact:
            return found
        return tuple(
            replace(
                each,
                exact=False,
                explanation="; ".join(filter(None, [each.explanation, NOT_EXACT])),
            )
            if any(leaf.rate.weight_power for leaf in goal_leaves([goal]))
            else each
            for goal, each in zip(goals, found, strict=True)
        )

    def _measured(
        self, leaves: Sequence[Leaf], said: Predictions, sample: Sample, split: str
    ) -> MeasuredRows:
        """Return the rows of a split, measured for each kind of rate and by their decisions."""
        rates, rows = rates_on_split(leaves, sample, split)
        kinds = dict.fromkeys(["decision", *(leaf.rate.of for leaf in leaves), *said.returns])
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
