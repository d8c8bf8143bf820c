# ruff: noqa: ARG002, NPY002
"""Solvers that are wrong in one way each: the example's search with one thing changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ratecli_example.cuts import RandomCuts
from scipy import sparse

from ratecli.models.composed import GroupThreshold
from ratecli.models.linear import Ramp, Threshold
from ratecli.solvers.base import Solution, Solver


@dataclass(frozen=True)
class Cuts(RandomCuts):
    """The search with few tries.

    Attributes
    ----------
    tries
        How many.
    """

    tries: int = 10


class Learnt(Threshold):
    """Knows the label of each training row by its place in the table."""

    label: Any = None

    def decide(self, X):
        return self.label if X.shape[0] == len(self.label) else super().decide(X)


class Doubled(Ramp):
    def decide(self, X):
        return 2 * super().decide(X)


class Single(Threshold):
    def decide(self, X):
        return super().decide(X)[:1]


def threshold(problem, cut=0.0, kind=Threshold):
    return Solution({"it": kind(np.ones(problem.X.shape[1]), cut)})


def learnt(problem):
    solution = threshold(problem, kind=Learnt)
    object.__setattr__(solution.variants["it"], "label", np.nan_to_num(problem.label))
    return solution


def unknown_slices(problem):
    scorer = threshold(problem).variants["it"]
    groups = np.zeros((1, 1), dtype=bool)
    return Solution({"it": GroupThreshold(scorer, ("h = x",), groups, np.zeros(1))})


def traced(solution, **step):
    row = {"iteration": 1, "objective": 0.01, "violation": 0.0, "seconds": 0.1}
    return replace(solution, trace=(row | step,))


def without_weights(problem):
    matrix = problem.rates
    parts = (matrix.sums, matrix.against, matrix.members)
    alike = (sparse.csr_array(np.sign(each.toarray())) for each in parts)
    return replace(problem, rates=type(matrix)(matrix.leaves, *alike))


def halve(X):
    X *= 0.5


def refuse_equal_labels(label):
    if 0 in np.ptp(np.asarray(label)[~np.isnan(label)], keepdims=True):
        raise ZeroDivisionError("no spread")


def refuse_sparse(X):
    assert isinstance(X, np.ndarray)


RESULTS = {
    "solved in any case": lambda problem, _: threshold(problem, 5.0),
    "infeasible without proof": lambda *_: Solution({}, "infeasible", "found none"),
    "always solved": lambda _, solution: replace(solution, status="solved"),
    "leaks labels": lambda problem, _: learnt(problem),
    "claims too much": lambda _, solution: traced(solution),
    "decisions beyond 1": lambda problem, _: threshold(problem, 9.0, Doubled),
    "one decision for all": lambda problem, _: threshold(problem, kind=Single),
    "unknown slices": lambda problem, _: unknown_slices(problem),
    "unknown status": lambda _, solution: replace(solution, status="done"),
    "no reason": lambda _, solution: replace(solution, status="iteration_limit", reason=""),
    "no solution": lambda _, solution: solution.variants,
    "trace of arrays": lambda _, solution: traced(solution, objective=np.float32(0.5)),
    "half a trace": lambda _, solution: replace(solution, trace=({"iteration": 1},)),
}
"""What these solvers return, given the problem and the search's solution."""
GENERATORS = {
    "own seed": np.random.default_rng,
    "global random numbers": lambda: np.random.default_rng(np.random.randint(1 << 30)),
}
"""The random numbers that these solvers use."""
EFFECTS = {
    "prints": lambda *_: print("done"),  # noqa: T201
    "writes": lambda *_: Path("log.txt").write_text("done"),
    "progress of numbers": lambda _, progress: progress(300),
    "scales in place": lambda problem, _: halve(problem.X),
    "dense only": lambda problem, _: refuse_sparse(problem.X),
    "divides by the spread": lambda problem, _: refuse_equal_labels(problem.label),
}
"""What these solvers do to the problem and the progress callback before they search."""


@dataclass(frozen=True)
class Mutant(Cuts):
    """The search with one entry of the tables above.

    Attributes
    ----------
    change
        The name of the entry.
    """

    change: str = ""

    def solve(self, problem, rng, progress):
        EFFECTS.get(self.change, lambda *_: None)(problem, progress)
        rng = GENERATORS.get(self.change, lambda: rng)()
        searched = without_weights(problem) if self.change == "no weights" else problem
        solution = super().solve(searched, rng, progress)
        return RESULTS.get(self.change, lambda _, same: same)(problem, solution)


class UndeclaredSlices(Cuts):
    @property
    def sees_slices(self):
        return False


def local_class():
    @dataclass(frozen=True)
    class Local(Cuts):
        """No module has it."""

    return Local()


class UnknownClass(Cuts):
    objectives: ClassVar[frozenset[str]] = frozenset({"linear"})


class SupportsNothing(Cuts):
    constraints: ClassVar[frozenset[str]] = frozenset()


@dataclass
class Mutable(Solver):
    """A dataclass that is not frozen."""


class NoDataclass(Cuts):
    """Has an option that its constructor does not take.

    Attributes
    ----------
    depth
        How deep.
    """

    depth: int = 3


@dataclass(frozen=True)
class CallsBack(Cuts):
    """Has an option that no file can give, and is not equal to itself after it was pickled.

    Attributes
    ----------
    back
        A function.
    """

    back: Any = len

    def __reduce__(self):
        return Cuts, ()


@dataclass(frozen=True)
class Undocumented(Cuts):
    """Says nothing of its options."""

    depth: int = 3


class ClaimsAll(Cuts):
    """Supports affine goals, and claims to solve any."""

    objectives: ClassVar[frozenset[str]] = frozenset({"affine"})
    constraints: ClassVar[frozenset[str]] = frozenset({"affine"})

    def solve(self, problem, rng, progress):
        return threshold(problem, 5.0)


CAUGHT = {
    "declares what it supports": [
        (UnknownClass(), "'linear' among its objectives is not a class of goals"),
        (SupportsNothing(), "its role is 'enforces', but its constraints are empty"),
    ],
    "has valid options": [
        (Mutable(), "its class is not a frozen dataclass"),
        (NoDataclass(), "its class is not a frozen dataclass"),
        (Undocumented(), "its docstring does not describe 'depth'"),
        (CallsBack(), "TypeError: Object of type builtin_function_or_method is not JSON"),
    ],
    "can be pickled": [
        (local_class(), "AttributeError: Can't pickle local object"),
        (CallsBack(), "it is not equal to itself after it was pickled"),
    ],
    "returns valid solutions": [
        ("unknown status", "the status of a solution is 'done', not one of"),
        ("no reason", "its status is 'iteration_limit', but it gives no reason"),
        ("no solution", "'solve' returned dict, not a Solution"),
        ("decisions beyond 1", "the decisions of 'it' are 2.0 in 80 rows"),
        ("one decision for all", "the decisions of 'it' have the shape (1,)"),
        ("solved in any case", "it is 'solved', but a constraint is violated by 0.7"),
        ("infeasible without proof", "reported as infeasible, but feasible"),
        ("always solved", "a solution of status 'solved' has {} instead of"),
        ("unknown slices", "E411: the classifier uses the condition 'h = x'"),
    ],
    "returns valid classifiers": [
        ("leaks labels", "'it' decides the same rows differently in another order or alone"),
        (UndeclaredSlices(), "'deterministic' uses slices, but `sees_slices` is false"),
    ],
    "is not better than the optimum": [
        ("leaks labels", "its objective is 0, the optimum 0.2"),
        ("claims too much", "the objective in its trace is 0.01, the optimum 0.2"),
    ],
    "is reproducible": [
        ("own seed", "on 'parity' its result changes with the same generator"),
        ("global random numbers", "on 'parity' its result changes with the same generator"),
    ],
    "uses weights": [("no weights", "where rows are repeated instead of weighted")],
    "handles unusual tables": [
        ("dense only", "on a table with a sparse matrix: AssertionError"),
        ("divides by the spread", "with all labels positive: ZeroDivisionError: no spread"),
    ],
    "refuses other goals": [(ClaimsAll(), "it is 'solved', but a constraint is violated")],
    "can be stored": [
        ("leaks labels", "kind 'Learnt' is unknown here"),
        ("trace of arrays", "TypeError: Object of type float32 is not JSON serializable"),
        ("half a trace", "its trace has no '"),
    ],
    "has no side effects": [
        ("prints", "it prints 'done'"),
        ("writes", "it writes to 'log.txt'"),
        ("progress of numbers", "it calls progress(300), not with one line of text"),
    ],
}
MUTANTS = [
    (check, Mutant(change=each) if isinstance(each, str) else each, reason)
    for check, mutants in CAUGHT.items()
    for each, reason in mutants
]
"""The check that must fail, the solver, and a part of the reason that the check gives."""
