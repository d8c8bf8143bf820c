"""The solver interface: `Solver`, its result `Solution`, and the types of options and progress."""

from __future__ import annotations

import math
import time
from abc import ABC
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, NewType

from ratecli.errors import Diagnostic
from ratecli.rates.analysis import Goal

if TYPE_CHECKING:  # numpy is slow to import
    import numpy as np

    from ratecli.models.base import Array, Classifier
    from ratecli.rates.matrix import RateMatrix
    from ratecli.solvers.problem import Problem

Progress = Callable[[str], None]
Role = Literal["enforces", "reads", "ignores"]
"""How an algorithm treats the goals of a file.

`enforces`
    Receives the goals and aims to satisfy the constraints.
`reads`
    Receives the goals without aiming to satisfy them: a baseline that takes only the groups or one
    limit from them.
`ignores`
    Receives plain error as its objective and no constraints, whatever the file says.

All algorithms are evaluated on the goals. A trial that received a constraint and violates it on the
training set gets the status `not_met`; an algorithm that ignores constraints never does.
"""

ConstraintName = NewType("ConstraintName", str)
"""Type of an option that names a constraint of the file.

The name is checked before the run; in a trial's key it is replaced by the constraint's rule.
"""


class JudgedRows(NamedTuple):
    """Rows, and decisions (n,) on them by models that have not seen them; estimates of numbers."""

    rows: Problem
    decisions: Array

    def violations(self) -> dict[str, float]:
        """Return by how much each constraint is violated, by name; NaN where it is undefined."""
        return self.rows.violations(self.rows.measured(self.decisions))


SOLUTION_STATUSES = ("solved", "iteration_limit", "infeasible", "no_solution_found", "diverged")
USABLE_STATUSES = frozenset({"solved", "iteration_limit"})
"""Statuses of solutions with a classifier that may be used."""


@dataclass(frozen=True)
class Solution:
    """Result of a solver: named classifiers, status and trace.

    Raises ValueError if the status is unknown or requires a classifier and there is none, if a name
    of a variant is not an identifier, or if a multiplier is not a finite number; TypeError if a
    field has another type than stated.

    Attributes
    ----------
    variants
        The classifiers, the main one first. Status, trace and `judged` describe the main one.
    status
        `solved`, `iteration_limit`, `infeasible`, `no_solution_found` or `diverged`. A `solved`
        solution satisfies the constraints on the training set, or as `solvers.margin` moved them.
    reason
        One sentence if the status is not `solved`.
    multipliers
        Final multiplier of each constraint, by name (objective units per unit of the constraint).
    trace
        One mapping per iteration: `iteration`, `objective`, `violation` (of the worst constraint,
        at least 0) on the training set, `seconds` since the start, and solver-specific values such
        as `gap`. Before these, one mapping for each setting that was tried: `setting`, `chosen`,
        and `loss`, or `objective`, `violation` and `unsolved` (see `solvers.tuned`).
    judged
        The rows by which the main variant was chosen, with its decisions, if these are not the
        training rows as its model saw them.
    bolder
        Further candidates for the safety test, by variant: each less likely to pass than the one
        before it, the first less likely than `variants` (see `SafetyRows.verdict`).
    near
        The classifier from which the search for a similar problem may start (`Problem.near`), if it
        is not the main one.
    """

    variants: Mapping[str, Classifier]
    status: str = "solved"
    reason: str = ""
    multipliers: Mapping[str, float] = field(default_factory=dict)
    trace: tuple[Mapping[str, Any], ...] = ()
    judged: JudgedRows | None = None
    bolder: tuple[Mapping[str, Classifier], ...] = ()
    near: Classifier | None = None

    def __post_init__(self) -> None:
        if self.status not in SOLUTION_STATUSES:
            listed = ", ".join(SOLUTION_STATUSES)
            raise ValueError(f"the status of a solution is {self.status!r}, not one of {listed}")
        if not isinstance(self.variants, Mapping) or (
            self.status in USABLE_STATUSES and not self.variants
        ):
            what = f"{self.variants!r} instead of at least one classifier by its name"
            raise ValueError(f"a solution of status '{self.status}' has {what}")
        if not isinstance(self.reason, str):
            raise TypeError(f"the reason of a solution is {self.reason!r}, not text")
        if not all(isinstance(row, Mapping) for row in self.trace):
            raise TypeError("a row of the trace is not a mapping")
        named = (each for some in (self.variants, *self.bolder) for each in some.items())
        for name, model in named:
            if not (isinstance(name, str) and name.isidentifier()):
                raise ValueError(f"the name {name!r} of a classifier is not an identifier")
            if not hasattr(model, "decide"):
                raise TypeError(f"the classifier '{name}' is of the type {type(model).__name__}")
        for name, value in self.multipliers.items():
            if not (isinstance(value, float | int) and math.isfinite(value)):
                raise ValueError(f"the multiplier of {name!r} is {value!r}, not a finite number")

    @property
    def main(self) -> Classifier:
        """The main variant of a solution that has one."""
        return next(iter(self.variants.values()))


def trace_row(
    iteration: int, objective: float, violation: float, begun: float, **others: Any
) -> dict[str, Any]:
    """Return a row of a trace; `begun` is what `time.perf_counter` returned at the start."""
    seconds = time.perf_counter() - begun
    row = {"iteration": iteration, "objective": objective, "violation": violation}
    return row | {"seconds": seconds} | others


class Solver(ABC):  # noqa: B024  type checkers take no other class for hashable
    """Base class of algorithms: a frozen dataclass of hyperparameters with one method, `solve`.

    `version` is part of every trial's key. `runs` names the function that solves, `module:function`
    with the arguments of `solve`; so the options are listed without importing it. `role` says how
    the algorithm treats goals. `objectives` and `constraints` are the classes of goals (see
    `rates.analysis.Shape`) that it accepts; other goals are rejected (E308) unless the algorithm
    `ignores` all of them. A `one_sided` algorithm bounds each rate from one side only, so goals
    must be monotone in it (see `rates.analysis.find_two_sided_rate`). `needs_safety_test` is set if
    it trains for a safety test (`Problem.safety_test`), `needs_deployed` if it requires the
    deployed model (`Problem.deployed`), and `hides_groups` if the columns that define the groups of
    its goals are excluded from its features. `absent` maps options of other algorithms that it
    does not have to what to do instead. Settings are chosen by the goals, except that an algorithm
    chooses among values of the options `tunes` itself, by an option `tune`, and that parameters of
    its model, if no option is tuned, are chosen by the model's loss if it `tunes_by_loss`.
    `needs` names the optional distributions that it imports: without them a file that names it is
    rejected (E202), and their versions are part of every trial's key.
    `numbers`, `streams` and `episodes` are the option values with which it learns numeric labels,
    rows that are not held in memory (`Problem.stream`) and policies of episodes
    (`Problem.episodes`), or None if it never does.
    """

    version: ClassVar[int] = 1
    runs: ClassVar[str] = ""
    role: ClassVar[Role] = "enforces"
    one_sided: ClassVar[bool] = False
    needs_safety_test: ClassVar[bool] = False
    needs_deployed: ClassVar[bool] = False
    tunes: ClassVar[Collection[str]] = ()
    tunes_by_loss: ClassVar[bool] = False
    hides_groups: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()
    objectives: ClassVar[frozenset[str]] = frozenset()
    constraints: ClassVar[frozenset[str]] = frozenset()
    absent: ClassVar[Mapping[str, str]] = {}
    numbers: ClassVar[Mapping[str, Any] | None] = None
    streams: ClassVar[Mapping[str, Any] | None] = None
    episodes: ClassVar[Mapping[str, Any] | None] = None

    @classmethod
    def refusal(cls, objective: Goal | None, constraints: Sequence[Goal]) -> str:  # noqa: ARG003
        """Return why goals of accepted classes are not supported, "" if they are.

        Called without data: with the objective and no constraints; then with None and one
        constraint, for each; and with None and all constraints of an experiment.
        """
        return ""

    def obstacle(self, goal: Goal, rates: RateMatrix) -> Diagnostic | None:  # noqa: ARG002
        """Return a diagnostic if a constraint of an accepted class is not enforceable on the rows.

        Called before any trial for each constraint, with the rates of its pieces on the training
        set, unless the constraint depends on the result of another trial.
        """
        return None

    @property
    def sees_slices(self) -> bool:
        """Whether classifiers use the slices named in goals, which must not reveal the label."""
        return False

    def learns(self, rows: Literal["numbers", "streams", "episodes"]) -> bool:
        """Whether the algorithm, with its current options, learns from such labels or rows."""
        options: Mapping[str, Any] | None = getattr(type(self), rows)
        return options is not None and all(getattr(self, key) == options[key] for key in options)

    @property
    def takes_classes(self) -> bool:
        """Whether the algorithm, with its current options, learns labels of two classes."""
        return True

    @property
    def score_column(self) -> str:
        """The column of scores that is the only feature, "" if features are as in the data set."""
        return ""

    @property
    def needs_probabilities(self) -> bool:
        """Whether scores of the `score_column` are compared with the default threshold."""
        return False

    @property
    def idle(self) -> Mapping[str, str]:
        """Options without effect under the other options, each with the reason.

        A file that sets one is rejected (E104).
        """
        return {}

    @property
    def chooses_by(self) -> str:
        """The option, if any, that decides how settings are chosen on validation rows.

        Validation rows are then required (E410).
        """
        return ""

    @property
    def rough(self) -> Solver:
        """The algorithm as it repeats the training to judge a margin: no more exact than needed."""
        return self

    @property
    def most_together(self) -> int:
        """How many problems `solve_together` solves in about the time of one."""
        return 1

    def solve_together(
        self, problems: Sequence[Problem], rng: np.random.Generator, progress: Progress
    ) -> list[Callable[[], Solution] | None]:
        """Do the common work of problems with the same rows and rates.

        Return for each problem a function that does the rest: it returns what `solve` does, bit for
        bit. None stands for a problem that must be solved alone, which the first never is.
        """
        return [partial(self.solution, problems[0], rng, progress), *[None for _ in problems[1:]]]

    def solution(
        self, problem: Problem, rng: np.random.Generator, progress: Progress = lambda _: None
    ) -> Solution:
        """Return what `solve` does; raise TypeError if that is not a `Solution`."""
        found: object = self.solve(problem, rng, progress)
        if not isinstance(found, Solution):
            raise TypeError(f"'solve' returned {type(found).__name__}, not a Solution")
        return found

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        """Return a solution of the problem, whose arrays are read-only.

        All random numbers come from `rng`; `progress` is called with short messages. Algorithms of
        other packages replace this method; those of ratecli name the function that `runs`.
        """
        solution: Solution = resolve_name(self.runs)(self, problem, rng, progress)
        return solution


Variant = Literal["deterministic", "stochastic", "voted", "hashed", "last", "uniform"]


@dataclass(frozen=True, kw_only=True)
class RandomizableSolver(Solver):
    """Base of algorithms that find a randomized and a deterministic classifier.

    Attributes
    ----------
    randomize
        Whether the model makes random decisions (`stochastic`): the rates are then those expected,
        and the objective may be smaller. By default the model is `deterministic`.
    variants
        Further classifiers to return, for comparison: the other of `deterministic` and
        `stochastic`, and depending on the algorithm, `voted`, `hashed`, `last` or `uniform` (see
        `ratecli ls variants`). The constraints are enforced for the model only.
    """

    randomize: bool = False
    variants: tuple[Variant, ...] = ()

    offers: ClassVar[Collection[Variant]] = ("deterministic", "stochastic")

    def __post_init__(self) -> None:
        if unknown := set(self.variants).difference(self.offers):
            raise ValueError(f"variants: '{min(unknown)}' is none of {', '.join(self.offers)}")

    @property
    def wanted(self) -> tuple[Variant, ...]:
        """The names of the variants to return, the main one first."""
        main: Variant = "stochastic" if self.randomize else "deterministic"
        return tuple(dict.fromkeys((main, *self.variants)))

    def select(self, makers: Mapping[str, Callable[[], Classifier]]) -> dict[str, Classifier]:
        """Return the wanted variants by name."""
        return {name: makers[name]() for name in self.wanted}
