"""The paper's split: the most progress towards the target, as a rate-constrained problem (Algorithm 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ratecli.models.base import Array
from ratecli.models.mixture import MixtureClassifier
from ratecli.solvers.filtering.aim import FilterTarget
from ratecli.solvers.filtering.split import LeafSplit, SplitOptions, TreeLeaf
from ratecli.solvers.filtering.weights import SamplingWeights, optimal_sampling_weights
from ratecli.solvers.hull.forms import LinearTerm, ProgramForm, RateProgram
from ratecli.solvers.mixture.pool import ClassifierPool
from ratecli.solvers.mixture.search import ColumnGeneration

OFFSET_CHOICES = {"zero": (False,), "literal": (True,), "both": (False, True)}


@dataclass(frozen=True)
class ProgressSplitter:
    """Splits a leaf by the most progress `<R(V1) - R(V), U - U'> w(V1)` that keeps both children secret.

    R are the shares of groups in a leaf, w its mass, U the target and U' its projection on the hull of the
    leaves. With the offset `literal` each unit of mass has to bring `|U - U'| f(gamma)` (Lemma 4, the
    sign of its last term corrected). Progress and limits are linear in the split: the program is one of
    `mixture`, on the rows of the leaf with their chances as weights.
    """

    aim: FilterTarget
    terms: SplitOptions
    offset: str
    gamma: float

    def __call__(self, leaves: Sequence[TreeLeaf], own: int) -> LeafSplit | None:
        """Of the offsets that are tried, the split after which the hull is nearest to the target."""
        found = (self._split(leaves, own, literal) for literal in OFFSET_CHOICES[self.offset])
        return min((each for each in found if each), key=lambda each: each.distance, default=None)

    def _split(self, leaves: Sequence[TreeLeaf], own: int, literal: bool) -> LeafSplit | None:
        leaf = leaves[own]
        program = self._program(
            leaf, self._weights([each.mass for each in leaves]).nearest, literal
        )
        search = ColumnGeneration(
            program, ClassifierPool(leaf.ground), leaf.oracle, self.terms.gap, self.terms.calls
        )
        search.start(program.objective.line.slopes)
        while search.goes_on():
            search.step()
        classifier = MixtureClassifier(*search.pool.some(search.found.weights))
        yes = search.found.rates
        if min(yes[-1], leaf.mass[-1] - yes[-1]) <= self.terms.child:
            return None
        others = [each.mass for k, each in enumerate(leaves) if k != own]
        after = self._weights([*others, leaf.mass - yes, yes])
        return LeafSplit(classifier, after.imbalance, float(search.trace[-1]["gap"]))

    def _weights(self, masses: Sequence[Array]) -> SamplingWeights:
        A, sizes = self.aim.values(np.stack(masses))
        return optimal_sampling_weights(
            A, sizes, self.aim.target, kept=self.terms.kept, relaxed=self.terms.relaxed
        )

    def _program(self, leaf: TreeLeaf, projection: Array, literal: bool) -> RateProgram:
        """In masses (R,) of the yes child, over the mass of the leaf."""
        away = projection - self.aim.target
        shares = leaf.mass[self.aim.balanced] / leaf.mass[-1]
        step = float(shares @ away)
        if literal:
            off = float(np.linalg.norm(shares - projection))
            step -= float(np.linalg.norm(away)) * required_progress(self.gamma, off)
        slopes = np.zeros(self.aim.masses)
        slopes[self.aim.balanced], slopes[-1] = away, -step
        none = np.zeros(0)
        limits = tuple(
            ProgramForm(line * (1 / leaf.mass[-1]), none) for line in self._secrets(leaf)
        )
        names = ("secret",) * len(limits)
        index = self.aim.kinds.matrix.index()
        return RateProgram(
            ProgramForm(LinearTerm(slopes / leaf.mass[-1], 0.0), none), limits, (), names, index
        )

    def _secrets(self, leaf: TreeLeaf) -> Iterator[LinearTerm]:
        """The four families of appendix A.4 for each group, multiplied by their denominators."""
        for slopes in self.aim.beyond(np.eye(self.aim.masses)):
            yield LinearTerm(slopes, 0.0)
            yield LinearTerm(-slopes, float(slopes @ leaf.mass))


def required_progress(gamma: float, off: float) -> float:
    """f(gamma) of Lemma 3, where the leaf is `off` away from the projection."""
    g = 2 * gamma - gamma**2
    inner = float(np.sqrt(max(2 - g * off**2, 0.0)))
    return float(np.sqrt(g * max(2 - off**2 + 2 * off * (1 - gamma) * inner, 0.0)))
