"""Goals and the rows that they are tested on, for safety tests."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from oracles.goals import constraint_goals

from ratecli.certify.certificate import Certificate, certify
from ratecli.certify.forms import MeasuredRows
from ratecli.certify.trees import SafetyTestSpec
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.functions import Interval
from ratecli.rates.matrix import RateMatrix, build_rate_matrix
from ratecli.rates.sample import Sample
from ratecli.rates.scope import Scope

GROUPS = frozenset({"g", "h"})


@dataclass(frozen=True)
class Test:
    """Constraints, and their rates on rows."""

    __test__ = False

    goals: tuple[Goal, ...]
    rates: RateMatrix

    def spec(self, delta: float = 0.05, **options: object) -> SafetyTestSpec:
        deltas = {goal.name: delta for goal in self.goals}
        return SafetyTestSpec(deltas, self.rates.members.shape[1], **options)

    def rows(
        self, measurements: dict[str, Array] | Array, label_range: Interval = (0.0, 1.0)
    ) -> MeasuredRows:
        """The rows with their measurements; a single array is of decisions."""
        if not isinstance(measurements, dict):
            measurements = {"decision": np.asarray(measurements, dtype=float)}
        return MeasuredRows(self.rates, measurements, label_range)

    def certify(
        self,
        measurements: dict[str, Array] | Array,
        delta: float = 0.05,
        *,
        label_range: Interval = (0.0, 1.0),
        candidate: MeasuredRows | None = None,
        rng: np.random.Generator | None = None,
        **options: object,
    ) -> tuple[Certificate, ...]:
        rows, rng = self.rows(measurements, label_range), rng or np.random.default_rng(0)
        return certify(self.goals, self.spec(delta, **options), rows, rng, candidate)


def rules(
    texts: Mapping[str, str] | str,
    columns: Mapping[str, NDArray[np.object_]],
    label: Array | None = None,
    weight: Array | None = None,
    deployed: Array | None = None,
) -> Test:
    """Return the constraints of a file on arrays; a single constraint is called `goal`."""
    n = len(next(iter(columns.values())))
    label = np.zeros(n) if label is None else label
    weight = np.ones(n) if weight is None else weight
    sample = Sample(columns, label, np.full(n, "d"), np.full(n, "safety"), weight, deployed)
    scope = Scope(
        values=lambda name: sorted(set(columns[name].tolist())), columns=frozenset(columns)
    )
    goals = constraint_goals({"goal": texts} if isinstance(texts, str) else texts, scope)
    leaves = ex.leaves(*(node for goal in goals for node in (goal.expression, *goal.pieces)))
    return Test(goals, build_rate_matrix(leaves, sample, "safety"))


def groups(**sizes: int) -> dict[str, NDArray[np.object_]]:
    """A column of groups with so many rows each."""
    return {"g": words("".join(name * size for name, size in sizes.items()))}


def words(text: str) -> NDArray[np.object_]:
    """Return the letters as values of a column."""
    return np.array(list(text), dtype=object)
