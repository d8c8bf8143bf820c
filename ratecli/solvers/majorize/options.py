"""The solver `majorize`: ramp rates under affine constraints (Goh et al. 2016)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from ratecli.rates.analysis import Shape
from ratecli.solvers.base import RandomizableSolver, Variant

ROUGH_GAP = 1e-3
"""Gap with which the training is repeated to judge a margin: far below the noise of rows."""


@dataclass(frozen=True)
class Majorize(RandomizableSolver):
    """Ramp rates under affine constraints (Goh et al. 2016, Algorithms 1 and 2).

    Each iteration replaces every ramp by a convex bound that is tight at the current classifier,
    and solves that problem to a certified gap. If an iterate is feasible, all later ones are, and
    the ramp objective never rises. The first iterates may be infeasible. Each is then the best
    compromise between the constraints, and bounds that are tight there may allow a feasible one.

    The model is the best threshold on the score. With `randomize`, it is the paper's randomized
    ramp, whose expected rates the steps bound.

    Upper and lower bounds of a rate are equal only where they are tight. An exact equality
    therefore leaves almost no room for improvement: allow a difference, such as `<= 0.001`.

    Attributes
    ----------
    iterations
        Maximum number of majorization steps (the paper's T), counted from the first feasible one. A
        step without any change is the last.
    gap
        Accuracy of the last convex problem, relative to its objective. Those before may have a gap
        of .2% of the progress that they make.
    intercept
        `regularized` (a constant feature), `unregularized` (appendix F.2) or `none`. The threshold
        of a deterministic model is chosen afterwards in any case.
    inner
        Solver of each convex problem: `newton`, the method of multipliers with all constraints at
        once; `cutting_plane`, the paper's Algorithm 2 over exact SVMs; `liblinear`, the same over
        LIBLINEAR's SVMs.
    chooser
        Where Algorithm 2 cuts: `center` (of mass, appendix E.2; with more than four constraints,
        of the largest ball inside) or `maximization` (E.1).
    cuts
        Maximum number of SVMs that Algorithm 2 fits for one convex problem.
    """

    iterations: Annotated[int, Ge(1)] = 8
    gap: Annotated[float, Gt(0)] = 1e-4
    intercept: Literal["regularized", "unregularized", "none"] = "regularized"
    inner: Literal["newton", "cutting_plane", "liblinear"] = "newton"
    chooser: Literal["center", "maximization"] = "center"
    cuts: Annotated[int, Ge(1)] = 100

    version: ClassVar[int] = 10
    runs: ClassVar[str] = "ratecli.solvers.majorize.majorization:solve_by_majorization"
    offers: ClassVar[Collection[Variant]] = ("deterministic", "stochastic", "hashed")
    objectives: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner == "liblinear" and self.intercept == "unregularized":
            raise ValueError("LIBLINEAR cannot leave the intercept unregularized")

    @property
    def rough(self) -> Majorize:
        return replace(self, gap=max(self.gap, ROUGH_GAP))
