"""The goals that `ratecli init` can write for an own table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StarterGoal:
    """A constraint that `ratecli init` can write, and what to say about it.

    Attributes
    ----------
    means
        What the constraint requires, as a sentence.
    by_groups, whole
        The expression with groups, where `{by}` stands for the columns, and without groups; "" if
        it needs, or has no, groups.
    limit
        The default limit; None for a tenth of the spread of a numeric label (mean square for mse).
    at_least
        Whether the limit is a lower bound.
    numbers
        Whether labels are numbers.
    """

    name: str
    means: str
    by_groups: str
    whole: str = ""
    limit: float | None = 0.05
    at_least: bool = False
    numbers: bool = False

    def limits(self) -> list[float]:
        """Return five limits around that of the goal, from loose to strict."""
        assert self.limit is not None
        if self.at_least:
            found = [1 - (1 - self.limit) * factor for factor in LIMIT_FACTORS]
        else:
            found = [self.limit * factor for factor in LIMIT_FACTORS]
        kept = [float(f"{limit:.6g}") for limit in found]
        return [limit for limit in kept if limit > 0 and (self.numbers or limit < 1)]


LIMIT_FACTORS = (2, 1.5, 1, 0.5, 0.25)
"""Distances of the swept limits from perfection, as multiples of that of the target."""
_GOALS = (
    StarterGoal(
        "demographic-parity",
        "The lowest selection rate of a group must be at least `limit` times the highest.",
        "demographic_parity_ratio(by={by})",
        limit=0.8,
        at_least=True,
    ),
    StarterGoal(
        "equal-opportunity",
        "True positive rates of groups may differ by at most `limit`.",
        "equal_opportunity_difference(by={by})",
    ),
    StarterGoal(
        "equalized-odds",
        "True and false positive rates of groups may differ by at most `limit`.",
        "equalized_odds_difference(by={by})",
    ),
    StarterGoal(
        "predictive-parity",
        "Precisions of groups may differ by at most `limit`.",
        "predictive_parity_difference(by={by})",
    ),
    StarterGoal(
        "recall",
        "The recall, of each group if there are groups, must be at least `limit`.",
        "min(recall, by={by})",
        "recall",
        limit=0.8,
        at_least=True,
    ),
    StarterGoal(
        "precision",
        "The precision, of each group if there are groups, must be at least `limit`.",
        "min(precision, by={by})",
        "precision",
        limit=0.8,
        at_least=True,
    ),
    StarterGoal(
        "selection-rate",
        "At most a share `limit` of the decisions may be positive.",
        "",
        "selection_rate",
        limit=0.2,
    ),
    StarterGoal(
        "mean-error-difference",
        "Mean errors (estimate minus label) of groups may differ by at most `limit`.",
        "max_gap(mean_error, by={by})",
        limit=None,
        numbers=True,
    ),
    StarterGoal(
        "mse",
        "The mean squared error, of each group if there are groups, may be at most `limit`.",
        "max(mse, by={by})",
        "mse",
        limit=None,
        numbers=True,
    ),
)
GOALS = {goal.name: goal for goal in _GOALS}
"""Goals of `ratecli init --goal`; the first of each kind of label is the default."""
