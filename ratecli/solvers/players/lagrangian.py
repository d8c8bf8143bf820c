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

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.affine import affine
from ratecli.rates.analysis import KINKED, monotonicity
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.matrix import RowKinds
from ratecli.rates.rate_function import ARRAY_FUNCTIONS, RateFunction
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


@dataclass(frozen=True)
class AtomKind:
    """A convex function of n slacks; kinds of the same name are equal.

    Attributes
    ----------
    signs
        (n,) +1 where it increases in a slack, -1 where it decreases.
    value, slopes
        Map the slacks (n, A, B) of A atoms in B lanes to values (A, B) and derivatives (n, A, B).
    respond
        Maps weights (A, B) and pulls (n, A, B) to the slacks that minimize `weight * f - pull @
        slacks`. Without it, slacks take gradient steps.
    least
        (n,) the smallest slack of the box of each argument.
    start
        The first slack: the assumed value of an argument before any rate is known.
    kinked
        Whether it has kinks, such as a maximum.
    """

    name: str
    signs: tuple[int, ...]
    value: Callable[[Array], Array] = field(compare=False)
    slopes: Callable[[Array], Array] = field(compare=False)
    respond: Callable[[Array, Array], Array] | None = field(default=None, compare=False)
    least: tuple[float, ...] = (MIN_SHARE, MIN_SHARE)
    start: float = 0.5
    kinked: bool = False

    @classmethod
    def named(cls, name: str, signs: tuple[int, ...], **others: Any) -> AtomKind:
        """Return a function of `rates.functions`, or its negative if the first sign is -1."""
        value, slopes, _ = ARRAY_FUNCTIONS[name]
        sign = signs[0]
        ends = (lambda x: sign * value(x)), (lambda x: sign * slopes(x))
        return cls(f"{sign:+} {name}", signs, *ends, **others)


@dataclass(frozen=True)
class Atom:
    """A atoms of one kind in B lanes, with their scales (A, 1 or B), at least 0.

    Their slacks are at most `most` (n, A, 1 or B).
    """

    kind: AtomKind
    scale: Array
    most: Array

    @classmethod
    def of(cls, kind: AtomKind, scale: float = 1.0, most: Sequence[float] = (1.0,)) -> Atom:
        """Return a single atom; `most` is one number for all slacks, or one for each."""
        ends = np.resize(np.array(most, dtype=float), len(kind.signs))
        return cls(kind, np.array([[scale]]), ends[:, None, None])

    @classmethod
    def together(cls, atoms: Sequence[Atom], axis: int) -> Atom:
        """Return atoms of one kind as one, side by side (axis -2) or in lanes of their own (-1)."""
        scale = np.concatenate([atom.scale for atom in atoms], axis=axis)
        most = np.concatenate([atom.most for atom in atoms], axis=axis)
        return cls(atoms[0].kind, scale, most)

    @cached_property
    def _least(self) -> Array:
        return np.array(self.kind.least[: len(self.kind.signs)])[:, None, None]

    def value(self, slacks: Array) -> Array:
        """Return the values (A, B) at slacks (n, A, B)."""
        return self.scale * self.kind.value(slacks)

    def slopes(self, slacks: Array) -> Array:
        """Return the derivatives (n, A, B)."""
        return self.scale * self.kind.slopes(np.maximum(slacks, self._least))

    def boxed(self, slacks: Array) -> Array:
        """Project slacks (n, A, B) onto the box."""
        return np.minimum(np.maximum(slacks, self._least), self.most)

    def respond(self, weight: Array, pull: Array) -> Array:
        """Return the best slacks (n, A, B) if the kind has a closed form for them."""
        assert self.kind.respond is not None
        return self.kind.respond(self.scale * weight, pull)


def _log_response(weight: Array, pull: Array) -> Array:
    best = weight / np.maximum(-pull, TINY_DENOMINATOR)
    return np.asarray(np.minimum(np.maximum(best, MIN_SHARE), 1.0))


def _mean(name: str, sign: int, other: Callable[[Array, Array], Array]) -> AtomKind:
    """Return a mean of two shares, or its negative.

    The function is homogeneous: it doubles when both arguments do. So the best point is 0 or has an
    argument that is 1; `other` maps weights (A, B), and pulls of the other argument, to its best
    share.
    """

    def respond(weight: Array, pull: Array) -> Array:
        ones = np.ones_like(weight)
        first_is_1 = np.stack([ones, other(weight, pull[1])])
        second_is_1 = np.stack([other(weight, pull[0]), ones])
        sides = np.stack([np.zeros_like(pull), first_is_1, second_is_1])
        worth = [weight * kind.value(side) - (pull * side).sum(axis=0) for side in sides]
        chosen = np.argmin(worth, axis=0)
        return np.asarray(np.take_along_axis(sides, chosen[None, None], axis=0)[0])

    kind = AtomKind.named(name, (sign, sign), respond=respond)
    return kind


def _other_in_geometric(weight: Array, pull: Array) -> Array:
    half = 0.5 * weight / np.maximum(-pull, TINY_DENOMINATOR)
    return np.asarray(np.minimum(half, 1.0) ** 2)


def _other_in_harmonic(weight: Array, pull: Array) -> Array:
    square = 2 * weight / np.maximum(-pull, TINY_DENOMINATOR)
    return np.asarray(np.clip(np.sqrt(square) - 1, 0.0, 1.0))


def _other_in_quadratic(weight: Array, pull: Array) -> Array:
    sine = np.sqrt(2) * pull / np.maximum(weight, TINY_DENOMINATOR)
    sine = np.clip(sine, 0.0, np.sqrt(0.5))  # the share is 1 at the upper bound
    return np.asarray(np.minimum(sine / np.sqrt(1 - sine**2), 1.0))


NEGATIVE_LOG = AtomKind.named("log", (-1,), respond=_log_response)
NEGATIVE_GEOMETRIC_MEAN = _mean("geo_mean", -1, _other_in_geometric)  # vector 9.8
NEGATIVE_HARMONIC_MEAN = _mean("harmonic_mean", -1, _other_in_harmonic)
QUADRATIC_MEAN = _mean("rms", 1, _other_in_quadratic)
_BOX = {"least": (0.0, MIN_SHARE), "start": 1.0}
RATIO = AtomKind.named("quotient", (1, -1), **_BOX)
"""`x / y`, which is not convex. The box is that of Algorithm 3: y is at least `MIN_SHARE`."""
NEGATIVE_RATIO = AtomKind.named("quotient", (-1, 1), **_BOX)
"""`-x / y`. It is concave in y, so no slack descends to a stationary point. The game plays tangents
of ratios at the mean of the arguments so far, see `ThreePlayerGame`.
"""


def smooth_atom(expression: Expression, signs: Mapping[Leaf, int]) -> Atom:
    """Return any other expression that is convex in its rates and monotone in each.

    The box leaves out the end of [0, 1] towards which the function grows: it may be infinite there.
    """
    function = RateFunction.of([expression], {leaf: k for k, leaf in enumerate(signs)})
    parts = ex.walk(expression)
    kind = AtomKind(
        ex.to_text(expression),
        tuple(signs.values()),
        lambda x: function.values(x[:, 0]),
        lambda x: function.tangents(x[:, 0]).slopes[0][:, None],
        least=tuple(MIN_SHARE * (sign < 0) for sign in signs.values()),
        kinked=any(isinstance(part, ex.Apply) and part.function in KINKED for part in parts),
    )
    return Atom.of(kind, most=[1 - MIN_SHARE * (sign > 0) for sign in signs.values()])


OBJECTIVE_ROW = 0
"""The row of the objective among the multipliers; constraint j has row 1 + j."""


class _OwnedAtom(NamedTuple):
    """A single atom, its arguments as functions of the rates, and the row of its goal."""

    atom: Atom
    lines: tuple[LinearTerm, ...]
    owner: int


class AtomBundle(NamedTuple):
    """A atoms of one kind that are evaluated together.

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

    atom: Atom
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
        All atoms, grouped by kind; those without a closed form or ratio are single.
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
            lines += [line * float(s) for line, s in zip(arguments, atom.kind.signs, strict=True)]
            alike.setdefault(atom.kind if atom.kind in KINDS else a, []).append(a)
        signs = [float(sign) for each in self.atoms for sign in each.atom.kind.signs]
        self.signs = np.array(signs).reshape(-1, 1)
        table = np.stack([line.vector for line in lines])
        self.slopes, self.constants = table[None, :, :-1].copy(), table[:, -1:]
        self.bundles = [self._bundle(members) for members in alike.values()]

    def _bundle(self, members: list[int]) -> AtomBundle:
        combined = Atom.together([self.atoms[a].atom for a in members], axis=-2)
        starts = np.cumsum([0, *(len(each.lines) for each in self.atoms)])[members]
        owners = np.array([self.atoms[a].owner for a in members], dtype=np.intp)
        shares = np.equal.outer(np.arange(self.constraints) + 1, owners).astype(float)
        slots = starts + np.arange(len(combined.kind.signs))[:, None]
        return AtomBundle(combined, owners, slots, shares if shares.any() else None)

    @property
    def structure(self) -> tuple[object, ...]:
        """What Lagrangians that differ in numbers alone have in common, see `in_lanes`."""
        kinds = ((owner, atom.kind) for atom, _, owner in self.atoms)
        return self.constraints, self.slopes.shape, *kinds

    @classmethod
    def in_lanes(cls, forms: Sequence[ProgramLagrangian]) -> ProgramLagrangian:
        """Return the Lagrangian that has one of `forms` in each lane; their structure is equal."""
        found = copy(forms[0])
        found.slopes = np.concatenate([form.slopes for form in forms])
        found.constants = np.concatenate([form.constants for form in forms], axis=-1)
        by_bundle = zip(*(form.bundles for form in forms), strict=True)
        found.bundles = [
            each[0]._replace(atom=Atom.together([bundle.atom for bundle in each], axis=-1))
            for each in by_bundle
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
                boxes = [max(each.reach()[1], 1.0) for each in (part, fraction.bottom)]
                atom = Atom.of(RATIO if side > 0 else NEGATIVE_RATIO, most=boxes)
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
        self.atoms += [
            _OwnedAtom(Atom.of(NEGATIVE_LOG, factor * s), (line,), owner) for s, line in shares
        ]
        return self._none + factor * float(sum(s * np.log(s) for s, _ in shares))

    def _smooth_atom(self, node: Expression, factor: float, owner: int) -> _OwnedAtom:
        """Return `factor * node`, which is monotone in each of its rates, as an atom over these."""
        scaled = ex.multiply(ex.Constant(factor), node)
        signs = monotonicity(scaled)
        assert all(signs.values())
        units = np.eye(len(self._program.index))
        lines = tuple(LinearTerm(units[self._program.index[leaf]], 0.0) for leaf in signs)
        return _OwnedAtom(smooth_atom(scaled, signs), lines, owner)


def multiply_lanes(tables: Array, columns: Array) -> Array:
    """Return the products (N, B) of tables (1 or B, N, M), the same or one a lane, and (M, B).

    The numbers of a lane do not depend on the other lanes, nor on whether these share its table.
    """
    lanes = np.ascontiguousarray(columns.T)[:, :, None]
    return np.ascontiguousarray((tables @ lanes)[:, :, 0].T)


CLOSED_FORMS: Mapping[tuple[str, bool], AtomKind] = {
    ("geo_mean", False): NEGATIVE_GEOMETRIC_MEAN,
    ("harmonic_mean", False): NEGATIVE_HARMONIC_MEAN,
    ("rms", True): QUADRATIC_MEAN,
}
"""Kinds of functions of two arguments in [0, 1], by name and whether the factor is positive."""
KINDS = (NEGATIVE_LOG, *CLOSED_FORMS.values(), RATIO, NEGATIVE_RATIO)
"""Kinds whose atoms are evaluated together."""


def _closed_form(name: str, arguments: tuple[LinearTerm, ...], factor: float) -> Atom | None:
    """Return `factor` times a function as an atom with a closed form, None if there is none."""
    kind = CLOSED_FORMS.get((name, factor > 0))
    reaches = [line.reach() for line in arguments]
    inside = all(-ROUNDING <= low <= high <= 1 + ROUNDING for low, high in reaches)
    if kind is None or len(arguments) != 2 or not inside:
        return None
    return Atom.of(kind, abs(factor))
