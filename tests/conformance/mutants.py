# ruff: noqa: ARG002, NPY002
"""Solvers that are wrong in one way each: all are the example's search, with something done to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ratecli_example.cuts import RandomCuts
from scipy import sparse

from ratecli.models.group_threshold import GroupThreshold
from ratecli.models.linear import Ramp, Threshold
from ratecli.solvers.base import Solution
from ratecli.solvers.problem import Problem

MUTANTS: dict[str, list[type[Cuts]]] = {}
"""The check that is to catch them, and who they are."""


@dataclass(frozen=True)
class Cuts(RandomCuts):
    """The search with few tries.

    Attributes
    ----------
    tries
        How many.
    """

    tries: int = 25


def caught_by(check):
    def noted(mutant):
        MUTANTS.setdefault(check, []).append(mutant)
        return mutant

    return noted


@caught_by("has a correct status")
class SolvedWhateverComesOut(Cuts):
    def solve(self, problem, rng, progress):
        return Solution({"it": Threshold(np.ones(problem.X.shape[1]), 5.0)})


@caught_by("has a correct status")
class InfeasibleWhereItFoundNone(Cuts):
    def solve(self, problem, rng, progress):
        return Solution({}, "infeasible", "found none")


@caught_by("recognizes infeasible goals")
class SolvedWithoutAnything(Cuts):
    def solve(self, problem, rng, progress):
        return replace(super().solve(problem, rng, progress), status="solved")


class Learnt(Threshold):
    """Knows the label of each training row by its place in the table."""

    kind: ClassVar[str] = "learnt"
    label: Any = None

    def decide(self, X):
        return self.label if X.shape[0] == len(self.label) else super().decide(X)


@caught_by("is not better than the optimum")
@caught_by("decides each row independently")
@caught_by("can be stored")
class LeaksLabels(Cuts):
    def solve(self, problem, rng, progress):
        model = Learnt(np.ones(problem.X.shape[1]))
        object.__setattr__(model, "label", np.nan_to_num(problem.label))
        return Solution({"it": model})


@caught_by("is not better than the optimum")
class PraisesItself(Cuts):
    def solve(self, problem, rng, progress):
        row = {"iteration": 1, "objective": 0.01, "violation": 0.0, "seconds": 0.1}
        return replace(super().solve(problem, rng, progress), trace=(row,))


@caught_by("is reproducible")
class NeverTheSame(Cuts):
    def solve(self, problem, rng, progress):
        return super().solve(problem, np.random.default_rng(), progress)


@caught_by("uses its own random numbers")
@caught_by("is reproducible")
class SharesItsNumbers(Cuts):
    def solve(self, problem, rng, progress):
        return super().solve(problem, np.random.default_rng(np.random.randint(1 << 30)), progress)


@caught_by("uses weights")
class IgnoresWeights(Cuts):
    """As if every row counted alike."""

    def solve(self, problem, rng, progress):
        matrix = problem.rates
        parts = (matrix.sums, matrix.against, matrix.members)
        alike = (sparse.csr_array(np.sign(each.toarray())) for each in parts)
        flat = replace(problem, rates=type(matrix)(matrix.leaves, *alike))
        return super().solve(flat, rng, progress)


@caught_by("has valid decisions")
class BeyondOne(Cuts):
    class Doubled(Ramp):
        def decide(self, X):
            return 2 * super().decide(X)

    def solve(self, problem, rng, progress):
        return Solution({"it": self.Doubled(np.ones(problem.X.shape[1]), 9.0)})


@caught_by("has valid decisions")
class OneDecisionForAll(Cuts):
    class Single(Threshold):
        def decide(self, X):
            return super().decide(X)[:1]

    def solve(self, problem, rng, progress):
        return Solution({"it": self.Single(np.ones(problem.X.shape[1]))})


@caught_by("has valid decisions")
class LooksAtSlicesUnsaid(Cuts):
    @property
    def sees_slices(self):
        return False


@caught_by("has valid decisions")
class LooksAtOtherSlices(Cuts):
    def solve(self, problem, rng, progress):
        scorer = Threshold(np.ones(problem.X.shape[1]))
        model = GroupThreshold(scorer, ("h = x",), np.zeros((1, 1), dtype=bool), np.zeros(1))
        return Solution({"it": model})


@caught_by("has no side effects")
class Prints(Cuts):
    def solve(self, problem, rng, progress):
        print("done")  # noqa: T201
        return super().solve(problem, rng, progress)


@caught_by("has no side effects")
class Writes(Cuts):
    def solve(self, problem, rng, progress):
        Path("log.txt").write_text("done")
        return super().solve(problem, rng, progress)


@caught_by("reports progress")
class TellsNumbers(Cuts):
    def solve(self, problem, rng, progress):
        progress(1, 300)
        return super().solve(problem, rng, progress)


@caught_by("does not change its input")
class ScalesInPlace(Cuts):
    def solve(self, problem: Problem, rng, progress):
        problem.X *= 0.5
        return super().solve(problem, rng, progress)


@caught_by("handles unusual tables")
class DenseOnly(Cuts):
    def solve(self, problem, rng, progress):
        assert isinstance(problem.X, np.ndarray)
        return super().solve(problem, rng, progress)


@caught_by("handles unusual tables")
class DividesBySpread(Cuts):
    def solve(self, problem, rng, progress):
        if 0 in np.ptp(np.asarray(problem.label)[~np.isnan(problem.label)], keepdims=True):
            raise ZeroDivisionError("no spread")
        return super().solve(problem, rng, progress)


@caught_by("solves supported goals")
class NoStatusOfOurs(Cuts):
    def solve(self, problem, rng, progress):
        return replace(super().solve(problem, rng, progress), status="done")


@caught_by("solves supported goals")
class NoReason(Cuts):
    def solve(self, problem, rng, progress):
        return replace(super().solve(problem, rng, progress), status="iteration_limit", reason="")


@caught_by("solves supported goals")
class NoSolution(Cuts):
    def solve(self, problem, rng, progress):
        return super().solve(problem, rng, progress).variants


@caught_by("can be recorded")
class TracesArrays(Cuts):
    def solve(self, problem, rng, progress):
        row = {"iteration": 1, "objective": np.float32(0.5), "violation": 0.0, "seconds": 0.1}
        return replace(super().solve(problem, rng, progress), trace=(row,))


@caught_by("can be recorded")
class TracesHalf(Cuts):
    def solve(self, problem, rng, progress):
        return replace(super().solve(problem, rng, progress), trace=({"iteration": 1},))


@caught_by("can be pickled")
@dataclass(frozen=True)
class LooksLikeAnother(Cuts):
    """What is pickled is not what it was.

    Attributes
    ----------
    tries
        How many.
    """

    def __reduce__(self):
        return Cuts, ()


def local_class():
    @dataclass(frozen=True)
    class Local(Cuts):
        """No module has it."""

    return Local


MUTANTS["can be pickled"].append(local_class())


@caught_by("declares what it supports")
class UnknownClass(Cuts):
    objectives: ClassVar[frozenset[str]] = frozenset({"linear"})


@caught_by("declares what it supports")
class TakesNothing(Cuts):
    constraints: ClassVar[frozenset[str]] = frozenset()


@caught_by("has options with defaults")
@dataclass(frozen=True)
class CallsBack(Cuts):
    """An option that no file can give."""

    back: Any = len


@caught_by("documents its options")
@dataclass(frozen=True)
class Undocumented(Cuts):
    """Says nothing of its options."""

    depth: int = 3


@caught_by("refuses other goals")
class ClaimsAll(Cuts):
    """Says that it takes affine goals, and that it solved any."""

    objectives: ClassVar[frozenset[str]] = frozenset({"affine"})
    constraints: ClassVar[frozenset[str]] = frozenset({"affine"})

    def solve(self, problem, rng, progress):
        return Solution({"it": Threshold(np.ones(problem.X.shape[1]), 5.0)})
