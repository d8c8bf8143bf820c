"""The goals that `ratecli init` can write for an own table."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.experiment.starters.options import StarterOptions
from ratecli.rates.syntax import parse_number


@dataclass(frozen=True)
class StarterGoal:
    """A constraint that `ratecli init` can write, and what to say about it.

    Attributes
    ----------
    means
        What the constraint requires, as a sentence.
    by_groups
        The expression with groups, where `{by}` stands for the columns; "" if the constraint is
        always on all rows.
    whole
        The expression without groups; "" if it needs groups.
    limit
        The default limit; None, for numeric labels, for a tenth of the label's spread (mse: its
        mean square).
    at_least
        Whether the limit is a lower bound.
    numbers
        Whether labels are numbers.
    rate
        The rate of each group that the constraint compares.
    """

    name: str
    means: str
    by_groups: str = ""
    whole: str = ""
    limit: float | None = None
    at_least: bool = False
    numbers: bool = False
    rate: str = "selection_rate"

    def __str__(self) -> str:
        return f"{self.name} {self.limit_text}"

    @property
    def limit_text(self) -> str:
        """The limit with all of its digits."""
        return f"{self.limit:.12g}"

    def requirement(self) -> str:
        """Return what the constraint requires, with the limit."""
        return self.means.replace("`limit`", self.limit_text)

    def rule(self, measure: str, limit: str) -> str:
        """Return the constraint on a measure."""
        return f"{measure} {'>=' if self.at_least else '<='} {limit}"

    def limits(self) -> list[float]:
        """Return five limits around that of the goal, from loose to strict."""
        assert self.limit is not None
        if self.at_least:
            found = [1 - (1 - self.limit) * factor for factor in LIMIT_FACTORS]
        else:
            found = [self.limit * factor for factor in LIMIT_FACTORS]
        kept = [float(f"{limit:.12g}") for limit in found]
        return [limit for limit in kept if limit > 0 and (self.numbers or limit < 1)]


SYNONYMS = {
    "disparate-impact": "demographic-parity",
    "fpr": "predictive-equality",
    "tpr": "equal-opportunity",
}
"""Other names of goals."""
LIMIT_FACTORS = (4, 2, 1.5, 1, 0.5)
"""How far the swept limits are from a perfect value, in multiples of the target's distance."""
_FILE = Path(__file__).with_suffix(".toml")
GOALS = {
    name: StarterGoal(name, **row) for name, row in tomllib.loads(_FILE.read_text("utf-8")).items()
}
"""Goals of `ratecli init --goal`; the first of each kind of label is the default."""


def goal_meanings() -> dict[str, str]:
    """Return what each goal requires, by name."""
    return {name: goal.means.replace("`limit`", "LIMIT") for name, goal in GOALS.items()}


def find_goals(request: StarterOptions, spread: float) -> list[StarterGoal]:
    """Return the goals of the options, with the required limits or default ones.

    `spread` is the standard deviation of the label. Raises E104 for goals that are not possible.
    """
    numbers = bool(request.target)
    known = [
        name
        for name, goal in GOALS.items()
        if goal.numbers == numbers and (goal.whole or request.group)
        if name != "churn" or request.deployed
    ]
    found = dict[str, StarterGoal]()
    for text in request.goal or known[:1]:
        name, _, limit = re.sub(r"[<>=]+", " ", text).strip().partition(" ")
        name = SYNONYMS.get(name, name)
        if name not in known:
            hint = f"{did_you_mean(name, known, 'goals')}; other rules can be written in the file"
            if name in GOALS and GOALS[name].numbers == numbers:
                hint = "name a column: --group COLUMN"
            if name == "churn":
                hint = "name the column with the decisions of the model in use: --deployed COLUMN"
            raise FaultError(Diagnostic("E104", f"'{name}' is not a goal here", hint))
        if name in found:
            message = f"the goal '{name}' is given twice"
            raise FaultError(Diagnostic("E104", message, "give each goal once"))
        found[name] = _with_limit(GOALS[name], limit.strip(), spread)
    return list(found.values())


def _with_limit(goal: StarterGoal, limit: str, spread: float) -> StarterGoal:
    if not limit:
        default = spread / 10 if "mean_error" in goal.by_groups else spread**2
        return replace(goal, limit=float(f"{goal.limit or default:.2g}"))
    percent = limit.endswith("%")
    value = parse_number(limit.rstrip("% ")) / (100 if percent else 1)
    if not 0 < value < (math.inf if goal.numbers else 1):
        wanted = "positive" if goal.numbers else "between 0 and 1"
        message = f"the limit of a goal must be {wanted}, not '{limit}'"
        example = f"for example --goal '{goal.name} {goal.limit or 1:g}'"
        raise FaultError(Diagnostic("E104", message, example))
    return replace(goal, limit=value)
