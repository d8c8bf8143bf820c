"""The Lagrangian of a program over rates: affine terms, atoms and multipliers.

A curved goal is a sum of atoms `w f(xi)`. Each argument of an atom is affine in the rates and has a
slack of its own: where f increases, the argument must not exceed its slack; where f decreases, it
must not fall below it. With a multiplier mu >= 0 for each, the slack player minimizes

    w f(xi) - sum of sign * mu * xi    over a box,

the box that contains the arguments (Narasimhan, Cotter, Gupta 2019, section 3, where the conjugate
of f must be restricted to the box). It plays the best response where that has a closed form, and
descends elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.affine import affine
from ratecli.rates.analysis import KINKED, monotonicity
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.matrix import RowKinds
from ratecli.rates.rate_function import RateFunction
from ratecli.solvers.hull.forms import (
    ROUNDING,
    Fraction,
    LinearTerm,
    ProgramForm,
    RateProgram,
    linear_term_of,
)

MIN_SHARE = 1e-3
"""Smallest share whose logarithm is taken: bounds multipliers by 1 / MIN_SHARE (protocols 3.3)."""
TINY_DENOMINATOR = 1e-300

Parameter = float | Array
"""A parameter of a single atom; (A, 1) or (A, B) those of A atoms that are evaluated together."""


class ConvexAtom(ABC):
    """A convex function of n slacks in B lanes, or A functions of one class at once.

    `signs` (n,) are +1 where it increases in a slack, -1 where it decreases.
    """

    signs: tuple[int, ...]

    @abstractmethod
    def value(self, slacks: Array) -> Array:
        """Return the values (A, B) at slacks (n, A, B)."""

    @abstractmethod
    def slopes(self, slacks: Array) -> Array:
        """Return the derivatives (n, A, B)."""

    @abstractmethod
    def boxed(self, slacks: Array) -> Array:
        """Project slacks (n, A, B) onto the box."""


@dataclass(frozen=True)
class ClosedFormAtom(ConvexAtom):
    """An atom whose best response has a closed form: `scale` times a function of shares."""

    scale: Parameter

    def boxed(self, slacks: Array) -> Array:
        return np.clip(slacks, MIN_SHARE, 1.0)

    @abstractmethod
    def respond(self, weight: Array, pull: Array) -> Array:
        """Return the slacks (n, A, B) that minimize `weight * f - pull @ slacks`.

        Weights are (A, B), pulls (n, A, B).
        """


class DescendingAtom(ConvexAtom):
    """An atom whose slacks take gradient steps, from `start` and projected onto a box."""

    start: ClassVar[float]


class NegativeLog(ClosedFormAtom):
    """`-scale * log(x)` of a share x."""

    signs = (-1,)

    def value(self, slacks: Array) -> Array:
        return np.asarray(-self.scale * np.log(slacks[0]))

    def respond(self, weight: Array, pull: Array) -> Array:
        best = self.scale * weight / np.maximum(-pull, TINY_DENOMINATOR)
        return np.asarray(np.minimum(np.maximum(best, MIN_SHARE), 1.0))

    def slopes(self, slacks: Array) -> Array:
        return -self.scale / np.maximum(slacks, MIN_SHARE)


class _MeanAtom(ClosedFormAtom):
    """A mean of two shares, or its negative.

    The function is homogeneous: it doubles when both arguments do. So the best point is 0 or has an
    argument that is 1.
    """

    def respond(self, weight: Array, pull: Array) -> Array:
        ones, none = np.ones_like(weight), np.zeros_like(pull)
        sides = [
            none,
            np.stack([ones, self._other(weight, pull[1])]),
            np.stack([self._other(weight, pull[0]), ones]),
        ]
        worth = [weight * self.value(side) - (pull * side).sum(axis=0) for side in sides]
        chosen = np.argmin(worth, axis=0)
        return np.asarray(np.take_along_axis(np.stack(sides), chosen[None, None], axis=0)[0])

    @abstractmethod
    def _other(self, weight: Array, pull: Array) -> Array:
        """Return the best share in [0, 1] of the other argument when one is 1."""


class NegativeGeometricMean(_MeanAtom):
    """`-scale * sqrt(x y)` (vector 9.8)."""

    signs = (-1, -1)

    def value(self, slacks: Array) -> Array:
        return np.asarray(-self.scale * np.sqrt(slacks[0] * slacks[1]))

    def _other(self, weight: Array, pull: Array) -> Array:
        half = 0.5 * self.scale * weight / np.maximum(-pull, TINY_DENOMINATOR)
        return np.asarray(np.minimum(half, 1.0) ** 2)

    def slopes(self, slacks: Array) -> Array:
        x, y = np.maximum(slacks, MIN_SHARE)
        return np.asarray(-0.5 * self.scale * np.stack([np.sqrt(y / x), np.sqrt(x / y)]))


class NegativeHarmonicMean(_MeanAtom):
    """`-scale * 2 x y / (x + y)`."""

    signs = (-1, -1)

    def value(self, slacks: Array) -> Array:
        total = slacks.sum(axis=0)
        return np.asarray(
            -2 * self.scale * slacks[0] * slacks[1] / np.maximum(total, TINY_DENOMINATOR)
        )

    def _other(self, weight: Array, pull: Array) -> Array:
        square = 2 * self.scale * weight / np.maximum(-pull, TINY_DENOMINATOR)
        return np.asarray(np.clip(np.sqrt(square) - 1, 0.0, 1.0))

    def slopes(self, slacks: Array) -> Array:
        x, y = np.maximum(slacks, MIN_SHARE)
        return np.asarray(-2 * self.scale * np.stack([(y / (x + y)) ** 2, (x / (x + y)) ** 2]))


class QuadraticMean(_MeanAtom):
    """`scale * sqrt((x^2 + y^2) / 2)`."""

    signs = (1, 1)

    def value(self, slacks: Array) -> Array:
        return np.asarray(self.scale * np.sqrt(0.5 * (slacks**2).sum(axis=0)))

    def _other(self, weight: Array, pull: Array) -> Array:
        sine = np.sqrt(2) * pull / np.maximum(self.scale * weight, TINY_DENOMINATOR)
        sine = np.clip(sine, 0.0, np.sqrt(0.5))  # the share is 1 at the upper bound
        return np.asarray(np.minimum(sine / np.sqrt(1 - sine**2), 1.0))

    def slopes(self, slacks: Array) -> Array:
        size = np.sqrt(2 * (slacks**2).sum(axis=0))
        return np.asarray(self.scale * slacks / np.maximum(size, TINY_DENOMINATOR))


@dataclass(frozen=True)
class RatioAtom(DescendingAtom):
    """`x / y` of an upper slack x and a lower slack y, which is not convex.

    The box is that of Algorithm 3: numerator and denominator at most `most_top` and `most_bottom`,
    the denominator at least `MIN_SHARE`.
    """

    most_top: Parameter
    most_bottom: Parameter
    signs = (1, -1)
    start = 1.0

    def value(self, slacks: Array) -> Array:
        return np.asarray(slacks[0] / slacks[1])

    def slopes(self, slacks: Array) -> Array:
        found = np.empty_like(slacks)
        found[0] = 1 / slacks[1]
        found[1] = -slacks[0] * found[0] ** 2
        return found

    def boxed(self, slacks: Array) -> Array:
        found = np.empty_like(slacks)
        np.minimum(np.maximum(slacks[0], 0.0), self.most_top, out=found[0])
        np.minimum(np.maximum(slacks[1], MIN_SHARE), self.most_bottom, out=found[1])
        return found


class NegativeRatioAtom(RatioAtom):
    """`-x / y` of a lower slack x and an upper slack y.

    It is concave in y, so no slack descends to a stationary point. The game plays tangents of
    ratios at the mean of the arguments so far, see `ThreePlayerGame`.
    """

    signs = (-1, 1)

    def value(self, slacks: Array) -> Array:
        return -super().value(slacks)

    def slopes(self, slacks: Array) -> Array:
        return -super().slopes(slacks)


@dataclass(frozen=True)
class SmoothAtom(DescendingAtom):
    """Any other expression that is convex in its rates and monotone in each; A is 1.

    The box leaves out the end of [0, 1] towards which the function grows: it may be infinite there.
    """

    expression: Expression
    index: dict[Leaf, int]
    signs: tuple[int, ...]
    start = 0.5

    @property
    def kinked(self) -> bool:
        """Whether it has kinks, such as a maximum."""
        parts = ex.walk(self.expression)
        return any(isinstance(part, ex.Apply) and part.function in KINKED for part in parts)

    def value(self, slacks: Array) -> Array:
        return self._function.values(slacks[:, 0])

    def slopes(self, slacks: Array) -> Array:
        return np.asarray(self._function.tangents(slacks[:, 0]).slopes[0][:, None])

    @cached_property
    def _function(self) -> RateFunction:
        return RateFunction.of([self.expression], self.index)

    def boxed(self, slacks: Array) -> Array:
        signs = np.array(self.signs)[:, None, None]
        low, high = MIN_SHARE * (signs < 0), 1 - MIN_SHARE * (signs > 0)
        return np.clip(slacks, low, high)


OBJECTIVE_ROW = 0
"""The row of the objective among the multipliers; constraint j has row 1 + j."""


class _OwnedAtom(NamedTuple):
    """A single atom, its arguments as functions of the rates, and the row of its goal."""

    atom: ConvexAtom
    lines: tuple[LinearTerm, ...]
    owner: int


class AtomBundle(NamedTuple):
    """A atoms of one class that are evaluated together.

    Attributes
    ----------
    atom
        All of them combined.
    owners
        (A,) row of each one's goal among the multipliers.
    slots
        (n, A) indices of their arguments among all slacks.
    shares
        (J, A) 1 where an atom belongs to a constraint; None if none does.
    """

    atom: ConvexAtom
    owners: NDArray[np.intp]
    slots: NDArray[np.intp]
    shares: Array | None


class ProgramLagrangian:
    """The function that the three players play on.

        objective(r) + lambda @ constraints(r) + w @ atoms(xi) + sum of sign mu (arguments(r) - xi)

    Atoms of the objective have weight 1, those of constraint j have weight lambda_j (Narasimhan,
    Cotter, Gupta 2019, section 3, with a slack for each argument of each atom).

    Attributes
    ----------
    kinds
        The kinds of the rows that the rates count.
    constraints
        J, the number of constraints.
    owners
        (J,) the name of the goal that each belongs to.
    atoms
        The atoms of the goals; all together have S arguments.
    signs
        (S, 1) +1 where a slack bounds its argument from above, -1 where from below.
    slopes, constants
        (1, 1 + J + S, K) and (1 + J + S, 1), of the terms of the Lagrangian: the affine parts of
        the objective and of the constraints, and each argument times its sign. There are B lanes
        instead of 1 if each has a program of its own, see `in_lanes`.
    bundles
        All atoms, grouped by class; those without a closed form or ratio are single.
    """

    def __init__(self, program: RateProgram, kinds: RowKinds) -> None:
        """Split the goals of a program into affine parts and atoms.

        Rates that do not depend on decisions are moved to the constants. Each slack bounds its rate
        from one side only, so goals must be monotone in each rate (see `rates.analysis`).
        """
        self._program, self._none = program, program.objective.line * 0.0
        self.kinds = kinds
        fixed = np.logical_not(kinds.patterns.any(axis=1))
        self._fixed = np.where(fixed, np.nan_to_num(kinds.matrix.c), 0.0), fixed
        self.constraints, self.atoms = len(program.constraints), list[_OwnedAtom]()
        self.owners = program.owners
        constraints = [self._split(form, row) for row, form in enumerate(program.constraints, 1)]
        lines = [self._split(program.objective, OBJECTIVE_ROW), *constraints]
        alike = dict[object, list[int]]()
        for a, (atom, arguments, _) in enumerate(self.atoms):
            lines += [line * float(s) for line, s in zip(arguments, atom.signs, strict=True)]
            alike.setdefault(a if isinstance(atom, SmoothAtom) else type(atom), []).append(a)
        signs = [float(sign) for each in self.atoms for sign in each.atom.signs]
        self.signs = np.array(signs).reshape(-1, 1)
        table = np.stack([line.vector for line in lines])
        self.slopes, self.constants = table[None, :, :-1].copy(), table[:, -1:]
        self.bundles = [self._bundle(members) for members in alike.values()]

    def _bundle(self, members: list[int]) -> AtomBundle:
        atoms = [self.atoms[a].atom for a in members]
        combined = atoms[0]
        if not isinstance(combined, SmoothAtom):  # with parameters (A, 1)
            parameters = np.array([astuple(atom) for atom in atoms])  # type: ignore[call-overload]
            combined = type(combined)(*parameters.T[:, :, None])
        starts = np.cumsum([0, *(len(each.lines) for each in self.atoms)])[members]
        owners = np.array([self.atoms[a].owner for a in members], dtype=np.intp)
        shares = np.equal.outer(np.arange(self.constraints) + 1, owners).astype(float)
        slots = starts + np.arange(len(combined.signs))[:, None]
        return AtomBundle(combined, owners, slots, shares if shares.any() else None)

    @property
    def structure(self) -> tuple[object, ...]:
        """What Lagrangians that differ in numbers alone have in common, see `in_lanes`."""
        atoms = [
            (owner, atom if isinstance(atom, SmoothAtom) else type(atom))
            for atom, _, owner in self.atoms
        ]
        return self.constraints, self.slopes.shape, *atoms

    @classmethod
    def in_lanes(cls, forms: Sequence[ProgramLagrangian]) -> ProgramLagrangian:
        """Return the Lagrangian that has one of `forms` in each lane; their structure is equal."""
        found = copy(forms[0])
        found.slopes = np.concatenate([form.slopes for form in forms])
        found.constants = np.concatenate([form.constants for form in forms], axis=-1)
        by_bundle = zip(*(form.bundles for form in forms), strict=True)
        found.bundles = [
            each[0]._replace(atom=_in_lanes([bundle.atom for bundle in each])) for each in by_bundle
        ]
        return found

    def terms(self, rates: Array) -> Array:
        """Return the terms (1 + J + S, B) at rates (K, B)."""
        return multiply_lanes(self.slopes, rates) + self.constants

    def costs(self, prices: Array) -> Array:
        """Return the costs (K, B) of the rates at multipliers (1 + J + S, B)."""
        return multiply_lanes(self.slopes.swapaxes(1, 2), prices)

    def effects(self, kinds: RowKinds) -> Array:
        """Return (1 or B, 2 Q, 1 + J + S) effects of positive decisions on each term.

        The first Q rows are the increases of terms by a weight of 1 of each kind, the others the
        decreases, as positive numbers.
        """
        added = (self.slopes @ kinds.slopes).swapaxes(1, 2)
        return np.concatenate([np.maximum(added, 0.0), np.maximum(-added, 0.0)], axis=1)

    def values(self, slacks: Array) -> Array:
        """Return the sums (J, B) of the constraints' atoms at slacks (S, B)."""
        total = np.zeros((self.constraints, slacks.shape[1]))
        for bundle in self.bundles:
            if bundle.shares is not None:
                values = bundle.atom.value(slacks[bundle.slots])
                total += multiply_lanes(bundle.shares[None], values)
        return total

    def boxed(self, slacks: Array) -> Array:
        """Return slacks (S, B) projected onto the boxes of their atoms."""
        found = slacks.copy()
        for bundle in self.bundles:
            found[bundle.slots] = bundle.atom.boxed(slacks[bundle.slots])
        return found

    def slack_multipliers(self, prices: Array, slacks: Array) -> Array:
        """Return the multipliers (S, B) that make `slacks` (S, B) best responses: the slopes.

        `prices` (1 + J, B) are the multipliers of the objective and the constraints.
        """
        found = np.zeros_like(slacks)
        for bundle in self.bundles:
            slopes = bundle.atom.slopes(slacks[bundle.slots])
            found[bundle.slots] = prices[bundle.owners] * slopes
        return np.asarray(np.maximum(self.signs * found, 0.0))

    def _split(self, form: ProgramForm, owner: int) -> LinearTerm:
        """Return the affine part of the goal in row `owner`, and collect the atoms of the rest."""
        line = form.line
        for m in form.fractions:
            line += self._split_fraction(self._program.fractions[m], float(form.shares[m]), owner)
        for curve in form.curves:
            (node,) = curve.expressions
            line += self._split_convex(node, 1.0, owner)
        return line

    def _split_fraction(self, fraction: Fraction, share: float, owner: int) -> float:
        """Return the constant part of `share * fraction`, and collect its atoms.

        The end of the range that the goal prefers is the constant if it is finite: the rest is one
        ratio with a positive share. Otherwise positive and negative terms of the numerator have
        atoms of their own.
        """
        end = fraction.range[share < 0]
        finite = bool(np.isfinite(end))
        top = (fraction.top + fraction.bottom * -(end if finite else 0.0)) * share
        parts = {1.0: top} if finite else {side: top.part(side) for side in (1.0, -1.0)}
        for side, part in parts.items():
            if finite or part.vector.any():  # a numerator of 0 is kept: see `structure`
                boxes = (max(each.reach()[1], 1.0) for each in (part, fraction.bottom))
                atom = (RatioAtom if side > 0 else NegativeRatioAtom)(*boxes)
                self.atoms.append(_OwnedAtom(atom, (part, fraction.bottom), owner))
        return share * end if finite else 0.0

    def _line(self, node: Expression) -> LinearTerm | None:
        """Return an affine expression, fixed rates moved to its constant; None if not affine."""
        found = affine(node)
        if found is None:
            return None
        line = linear_term_of(found, self._program.index)
        constants, fixed = self._fixed
        still = np.where(fixed, line.slopes, 0.0)
        return LinearTerm(line.slopes - still, line.constant + float(still @ constants))

    def _split_convex(self, node: Expression, factor: float, owner: int) -> LinearTerm:
        """Return the affine part of `factor * node`, and collect its atoms."""
        flat = self._line(node)
        if flat is not None:
            return flat * factor
        match node:
            case ex.Apply("sum", terms):
                return sum((self._split_convex(term, factor, owner) for term in terms), self._none)
            case ex.Apply("product", (ex.Constant(value), right)):
                return self._split_convex(right, factor * value, owner)
            case ex.Apply(name, arguments):
                lines = tuple(line for line in map(self._line, arguments) if line)
                if len(lines) == len(arguments):
                    if name == "kl" and factor > 0 and not lines[0].slopes.any():
                        return self._split_divergence(lines[0].constant, lines[1], factor, owner)
                    atom = _closed_form(name, lines, factor)
                    if atom is not None:
                        self.atoms.append(_OwnedAtom(atom, lines, owner))
                        return self._none
        self.atoms.append(self._smooth_atom(node, factor, owner))
        return self._none

    def _split_divergence(self, p: float, q: LinearTerm, factor: float, owner: int) -> LinearTerm:
        """KL(p, q) = constant - p log q - (1 - p) log(1 - q), decreasing in q and in 1 - q."""
        shares = [(s, line) for s, line in ((p, q), (1 - p, q * -1.0 + 1.0)) if s > 0]
        self.atoms += [_OwnedAtom(NegativeLog(factor * s), (line,), owner) for s, line in shares]
        return self._none + factor * float(sum(s * np.log(s) for s, _ in shares))

    def _smooth_atom(self, node: Expression, factor: float, owner: int) -> _OwnedAtom:
        """Return `factor * node`, which is monotone in each of its rates, as an atom over these."""
        scaled = ex.multiply(ex.Constant(factor), node)
        signs = monotonicity(scaled)
        assert all(signs.values())
        units = np.eye(len(self._program.index))
        lines = tuple(LinearTerm(units[self._program.index[leaf]], 0.0) for leaf in signs)
        own = {leaf: k for k, leaf in enumerate(signs)}
        return _OwnedAtom(SmoothAtom(scaled, own, tuple(signs.values())), lines, owner)


def multiply_lanes(tables: Array, columns: Array) -> Array:
    """Return the products (N, B) of tables (1 or B, N, M), the same or one a lane, and (M, B).

    The numbers of a lane do not depend on the other lanes, nor on whether these share its table.
    """
    lanes = np.ascontiguousarray(columns.T)[:, :, None]
    return np.ascontiguousarray((tables @ lanes)[:, :, 0].T)


def _in_lanes(atoms: Sequence[ConvexAtom]) -> ConvexAtom:
    """Return A atoms that have the parameters of one of `atoms` in each lane."""
    if isinstance(atoms[0], SmoothAtom):  # all are equal
        return atoms[0]
    parameters = zip(*(vars(atom).values() for atom in atoms), strict=True)
    return type(atoms[0])(*(np.concatenate(each, axis=-1) for each in parameters))


CLOSED_FORMS: Mapping[tuple[str, bool], type[ClosedFormAtom]] = {
    ("geo_mean", False): NegativeGeometricMean,
    ("harmonic_mean", False): NegativeHarmonicMean,
    ("rms", True): QuadraticMean,
}
"""Atoms of functions of two arguments in [0, 1], by name and whether the factor is positive."""


def _closed_form(
    name: str, arguments: tuple[LinearTerm, ...], factor: float
) -> ClosedFormAtom | None:
    """Return `factor` times a function as an atom with a closed form, None if there is none."""
    atom = CLOSED_FORMS.get((name, factor > 0))
    reaches = [line.reach() for line in arguments]
    inside = all(-ROUNDING <= low <= high <= 1 + ROUNDING for low, high in reaches)
    if atom is None or len(arguments) != 2 or not inside:
        return None
    return atom(abs(factor))
