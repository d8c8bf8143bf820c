"""The Lagrangian of a program over rates: affine terms, atoms and multipliers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.affine import affine
from ratecli.rates.analysis import monotonicity
from ratecli.rates.expression import Expression
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.forms import (
    ROUNDING,
    LinearTerm,
    ProgramForm,
    RateProgram,
    linear_term_of,
)
from ratecli.solvers.players.atoms import (
    ConvexAtom,
    NegativeGeometricMean,
    NegativeHarmonicMean,
    NegativeLog,
    QuadraticMean,
    RatioAtom,
    SmoothAtom,
    combine_atoms,
)

OBJECTIVE_OWNER = -1
"""The owner of the objective's atoms."""


@dataclass(frozen=True)
class AtomBundle:
    """Atoms of one class that are evaluated together.

    Attributes
    ----------
    atom
        All of them combined, or a single one.
    members
        (A,) indices among all atoms; shape () for a single one.
    slots
        (n, A) indices of their arguments among all slacks; (n,) for a single one.
    shares
        (J, A) 1 where an atom belongs to a constraint; None if none does.
    """

    atom: ConvexAtom
    members: NDArray[np.intp]
    slots: NDArray[np.intp]
    shares: Array | None


class ProgramLagrangian:
    """The function that the three players play on.

        objective(r) + lambda @ constraints(r) + w @ atoms(xi) + sum of sign mu (arguments(r) - xi)

    Atoms of the objective have weight 1, those of constraint j have weight lambda_j (Narasimhan,
    Cotter, Gupta 2019, section 3, with a slack for each argument of each atom).

    Attributes
    ----------
    objective, constraints
        The affine part of each.
    atoms, owners
        The A atoms of the rest, and the constraint that each belongs to, or `OBJECTIVE_OWNER`.
    """

    def __init__(self, program: RateProgram, kinds: RowKinds) -> None:
        """Split the goals of a program into affine parts and atoms.

        Rates that do not depend on decisions are moved to the constants.

        Raises
        ------
        FaultError
            E308 where a goal is not monotone in a rate: each slack bounds its rate from one side
            only.
        """
        self._program, self._none = program, program.objective.line * 0.0
        fixed = np.logical_not(kinds.patterns.any(axis=1))
        self._fixed = np.where(fixed, np.nan_to_num(kinds.matrix.c), 0.0), fixed
        self.atoms, self.owners = list[ConvexAtom](), list[int]()
        self.constraints = [
            self._split(form, owner) for owner, form in enumerate(program.constraints)
        ]
        self.objective = self._split(program.objective, OBJECTIVE_OWNER)

    @cached_property
    def spans(self) -> tuple[slice, ...]:
        """The slacks of each atom among all S."""
        ends = np.cumsum([0, *(len(atom.lines) for atom in self.atoms)]).tolist()
        return tuple(slice(a, b) for a, b in pairwise(ends))

    @cached_property
    def signs(self) -> Array:
        """(S, 1) +1 where a slack bounds its argument from above, -1 where from below."""
        return np.array([[float(s)] for atom in self.atoms for s in atom.signs]).reshape(-1, 1)

    @cached_property
    def sides(self) -> tuple[Array, Array]:
        """Slopes (1 + J + S, K) and constants (1 + J + S, 1) of the terms of the Lagrangian.

        The terms are the objective, the constraints, and each argument times its sign.
        """
        signed = [
            line * float(sign)
            for atom in self.atoms
            for line, sign in zip(atom.lines, atom.signs, strict=True)
        ]
        table = np.stack([line.vector for line in (self.objective, *self.constraints, *signed)])
        return table[:, :-1].copy(), table[:, -1:]

    @cached_property
    def bundles(self) -> tuple[AtomBundle, ...]:
        """All atoms, grouped by class; those without a closed form are single."""
        alike = dict[object, list[int]]()
        for a, atom in enumerate(self.atoms):
            alike.setdefault(a if isinstance(atom, SmoothAtom) else type(atom), []).append(a)
        return tuple(map(self._bundle, alike.values()))

    def _bundle(self, members: list[int]) -> AtomBundle:
        atoms = [self.atoms[a] for a in members]
        first = np.array([self.spans[a].start for a in members], dtype=np.intp)
        slots = first + np.arange(len(atoms[0].signs))[:, None]
        shares = np.equal.outer(np.arange(len(self.constraints)) + 1, self._rows[members])
        owned = shares.astype(float) if shares.any() else None
        if isinstance(atoms[0], SmoothAtom):
            return AtomBundle(atoms[0], np.array(members[0]), slots[:, 0], owned)
        return AtomBundle(combine_atoms(atoms), np.array(members), slots, owned)

    @cached_property
    def _rows(self) -> NDArray[np.intp]:
        """(A,) row of each atom's owner among the multipliers."""
        return np.array([owner + 1 for owner in self.owners], dtype=np.intp)

    def weights(self, prices: Array) -> Array:
        """Return the weights (A, B) of the atoms.

        `prices` (1 + J, B) are the multipliers of objective and constraints.
        """
        return np.asarray(prices[self._rows])

    def values(self, slacks: Array) -> Array:
        """Return the sums (J, B) of the constraints' atoms at slacks (S, B)."""
        total = np.zeros((len(self.constraints), slacks.shape[1]))
        for bundle in self.bundles:
            if bundle.shares is not None:
                value = bundle.atom.value(slacks[bundle.slots])
                total += bundle.shares @ value.reshape(-1, slacks.shape[1])
        return total

    def slopes(self, weights: Array, slacks: Array) -> Array:
        """Return the derivatives (S, B) of the weighted atoms with respect to the slacks."""
        found = np.zeros_like(slacks)
        for bundle in self.bundles:
            slopes = bundle.atom.slopes(slacks[bundle.slots])
            found[bundle.slots] = weights[bundle.members] * slopes
        return found

    def _split(self, form: ProgramForm, owner: int) -> LinearTerm:
        """Return the affine part of a goal, and collect the atoms of the rest."""
        line = form.line
        for m in form.fractions:
            fraction, share = self._program.fractions[m], float(form.shares[m])
            low, high = fraction.range
            end = low if share > 0 else high
            top = (fraction.top + fraction.bottom * -end) * share  # never negative
            line += share * end
            most = (max(top.reach()[1], 1.0), max(fraction.bottom.reach()[1], 1.0))
            self.atoms.append(RatioAtom((top, fraction.bottom), most))
        for curve in form.curves:
            line += self._split_convex(curve.expression, 1.0)
        self.owners += [owner] * (len(self.atoms) - len(self.owners))
        return line

    def _line(self, node: Expression) -> LinearTerm | None:
        """Return an affine expression, fixed rates moved to its constant; None if not affine."""
        found = affine(node)
        if found is None:
            return None
        line = linear_term_of(found, self._program.index)
        constants, fixed = self._fixed
        still = np.where(fixed, line.slopes, 0.0)
        return LinearTerm(line.slopes - still, line.constant + float(still @ constants))

    def _split_convex(self, node: Expression, factor: float) -> LinearTerm:
        """Return the affine part of `factor * node`, and collect its atoms."""
        flat = self._line(node)
        if flat is not None:
            return flat * factor
        match node:
            case ex.Sum(terms=terms):
                return sum((self._split_convex(term, factor) for term in terms), self._none)
            case ex.Product(left=ex.Constant(value=value), right=right):
                return self._split_convex(right, factor * value)
            case ex.Apply(function=name, arguments=arguments):
                lines = [line for line in map(self._line, arguments) if line]
                if len(lines) == len(arguments):
                    offset = self._split_closed_form(name, lines, factor)
                    if offset is not None:
                        return offset
        self.atoms.append(self._smooth_atom(node, factor))
        return self._none

    def _split_closed_form(
        self, name: str, lines: list[LinearTerm], factor: float
    ) -> LinearTerm | None:
        """Split a function into atoms whose best responses have a closed form, or return None."""
        if name == "kl" and factor > 0 and not lines[0].slopes.any():
            return self._split_divergence(lines[0].constant, lines[1], factor)
        reaches = [line.reach() for line in lines]
        if not all(-ROUNDING <= low <= high <= 1 + ROUNDING for low, high in reaches):
            return None  # these atoms need arguments in [0, 1]
        pair = tuple(lines)
        if name == "geo_mean" and factor < 0:
            self.atoms.append(NegativeGeometricMean(pair, -factor))
        elif name == "harmonic_mean" and factor < 0:
            self.atoms.append(NegativeHarmonicMean(pair, -factor))
        elif name == "rms" and factor > 0 and len(lines) == 2:
            self.atoms.append(QuadraticMean(pair, factor))
        else:
            return None
        return self._none

    def _split_divergence(self, p: float, q: LinearTerm, factor: float) -> LinearTerm:
        """KL(p, q) = constant - p log q - (1 - p) log(1 - q), decreasing in q and in 1 - q."""
        shares = [(s, line) for s, line in ((p, q), (1 - p, q * -1.0 + 1.0)) if s > 0]
        self.atoms += [NegativeLog((line,), factor * share) for share, line in shares]
        return self._none + factor * float(sum(share * np.log(share) for share, _ in shares))

    def _smooth_atom(self, node: Expression, factor: float) -> SmoothAtom:
        """Return `factor * node` as an atom over its rates; raise E308 if not monotone in one."""
        scaled = ex.multiply(ex.Constant(factor), node)
        signs = monotonicity(scaled)
        for leaf, sign in signs.items():
            if sign == 0:
                message = f"'{ex.to_text(node)}' neither grows nor falls in '{ex.to_text(leaf)}'"
                hint = "take `mixture`, or write it with kl, max or rms"
                raise FaultError(Diagnostic("E308", message, hint))
        units = np.eye(len(self._program.index))
        lines = tuple(LinearTerm(units[self._program.index[leaf]], 0.0) for leaf in signs)
        own = {leaf: k for k, leaf in enumerate(signs)}
        return SmoothAtom(lines=lines, expression=scaled, index=own, signs=tuple(signs.values()))
