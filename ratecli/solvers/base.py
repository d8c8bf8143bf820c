"""What a solver is given and what it gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NewType

import numpy as np

from ratecli.errors import Diagnostic
from ratecli.models.base import Classifier
from ratecli.rates.analysis import Goal
from ratecli.rates.matrix import RateMatrix
from ratecli.solvers.problem import Problem

Progress = Callable[[str], None]
Role = Literal["enforces", "reads", "ignores"]
"""What an algorithm does with the goals of a file.

`enforces`
    Is given them and promises to meet the constraints.
`reads`
    Is given them and promises nothing: a baseline that takes groups or one limit from them.
`ignores`
    Is given plain error and no constraints, whatever they are.

All of them are measured on the goals. A trial that was given a constraint and violates it on
training rows is `not_met`; what ignores constraints never is.
"""

ConstraintName = NewType("ConstraintName", str)
"""An option that names a constraint of the file: checked before the run; in a trial's key the rule
stands for its name.
"""


class OptionFaultError(Exception):
    """What is wrong with the value of an option, `loc` within that value; `key` if it is a key."""

    def __init__(self, loc: tuple[str, ...], fault: Diagnostic, *, key: bool = False) -> None:
        super().__init__(fault.message)
        self.loc, self.fault, self.key = loc, fault, key


@dataclass(frozen=True)
class OptionCheck:
    """Beside an option's type: `check` knows more of its values, and raises OptionFaultError."""

    check: Callable[[Any], None]


@dataclass(frozen=True)
class Solution:
    """Named classifiers and how they came about.

    Attributes
    ----------
    variants
        The classifiers, the main one first: its rates are what the solver optimized.
    status
        `solved`, `iteration_limit`, `infeasible`, `no_solution_found` or `diverged`. What is `solved`
        meets the constraints on training rows.
    reason
        One sentence where the status is not `solved`.
    multipliers
        Constraint name to its final multiplier (rate units of the objective per unit of constraint).
    trace
        One mapping an iteration: `iteration`, `objective`, `violation` (the worst, at least 0) on
        training rows, `seconds` since the solver began, and what else it knows, such as `gap`.
    """

    variants: Mapping[str, Classifier]
    status: str = "solved"
    reason: str = ""
    multipliers: Mapping[str, float] = field(default_factory=dict)
    trace: tuple[Mapping[str, Any], ...] = ()


class Solver(ABC):
    """Hyper-parameters as dataclass fields, one method. `version` is part of every trial's key.

    `role` says what it does with goals. `objectives` and `constraints` name the classes of goals
    (see `rates.analysis.Shape`) it takes; goals of other classes are refused (E308) unless it
    `ignores` them all. `one_sided` says that it holds each rate from one side, so that goals must grow
    or fall in it (see `rates.analysis.find_two_sided_rate`). `needs_promise` and `needs_deployed` say that it trains
    for a safety test (`Problem.promise`), or takes the deployed model (`Problem.deployed`). `hides_groups`
    says that the columns by which its goals tell groups are none of its features. `streams` are the options
    without which it does not learn from rows that are in no memory (`Problem.stream`); None where it never
    does.
    """

    version: ClassVar[int] = 1
    role: ClassVar[Role] = "enforces"
    one_sided: ClassVar[bool] = False
    needs_promise: ClassVar[bool] = False
    needs_deployed: ClassVar[bool] = False
    hides_groups: ClassVar[bool] = False
    objectives: ClassVar[frozenset[str]] = frozenset()
    constraints: ClassVar[frozenset[str]] = frozenset()
    numbers: ClassVar[Mapping[str, Any] | None] = None
    streams: ClassVar[Mapping[str, Any] | None] = None

    def obstacle(self, goal: Goal, rates: RateMatrix) -> Diagnostic | None:  # noqa: ARG002
        """Why a constraint cannot be taken though its class can: a fault of which only rows tell.

        Asked before any trial for each constraint, with the rates of its pieces on training rows,
        unless it hangs on what a trial will find.
        """
        return None

    @property
    def sees_slices(self) -> bool:
        """Whether its classifiers look at the slices that goals name: these must not tell the label."""
        return False

    @property
    def takes_numbers(self) -> bool:
        """Whether it learns labels that are numbers with the options that it has."""
        wanted = type(self).numbers
        return wanted is not None and all(getattr(self, key) == wanted[key] for key in wanted)

    @property
    def takes_streams(self) -> bool:
        """Whether it learns from rows that are in no memory with the options that it has."""
        wanted = type(self).streams
        return wanted is not None and all(getattr(self, key) == wanted[key] for key in wanted)

    @property
    def takes_classes(self) -> bool:
        """Whether it learns labels of two classes with the options that it has."""
        return True

    @property
    def idle(self) -> Mapping[str, str]:
        """Options that have no part in what it does, by what others say: a file that gives one is refused
        with the reason (E104).
        """
        return {}

    @property
    def chooses_by(self) -> str:
        """The option, if any, by which settings are chosen on validation rows (E410 without any)."""
        return ""

    @abstractmethod
    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution: ...
