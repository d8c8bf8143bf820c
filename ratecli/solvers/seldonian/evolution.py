"""Search without slopes by CMA-ES (Hansen 2016), with a barrier where a candidate does not pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.seldonian.selection import CandidatePoint, CandidateSelection, CandidateTracker

INITIAL_SIGMA = 0.2
"""Deviation of the first candidates, in coordinates in which the objective is round."""
FAILED_PENALTY, INFINITE_BOUND_PENALTY = 1e5, 1e4
"""Objective of what does not pass, beside the sum of its ends above 0; what an infinite end counts."""


@dataclass(frozen=True)
class CmaEvolution:
    """CMA-ES by the package `cma`: seeded, and quiet."""

    selection: CandidateSelection
    track: CandidateTracker
    seed: int

    def run(self, start: CandidatePoint, steps: int) -> tuple[CandidatePoint, Array]:
        """The last mean, and no multipliers: zeros (P,)."""
        import cma  # noqa: PLC0415  slow to import

        options = {
            "seed": self.seed, "maxiter": steps, "verbose": -9, "verb_log": 0, "verb_disp": 0,
            "tolfun": 1e-7, "tolfunhist": 1e-8, "tolx": 1e-6,
        }  # fmt: skip
        search = cma.CMAEvolutionStrategy(start.v, INITIAL_SIGMA, options)
        while not search.stop():
            places = search.ask()
            points = [self.selection.at(np.asarray(place)) for place in places]
            for point in points:
                self.track.see(point)
            search.tell(places, [self.barred(point) for point in points])
            self.track.step(min(points, key=self.barred))
        return self.selection.at(np.asarray(search.result.xfavorite)), np.zeros(len(start.upper))

    def barred(self, point: CandidatePoint) -> float:
        """The objective where a candidate passes, and more than any where it does not."""
        if point.passes:
            return point.objective
        missed = np.nan_to_num(np.maximum(point.upper, 0.0), posinf=INFINITE_BOUND_PENALTY)
        return FAILED_PENALTY + float(np.minimum(missed, INFINITE_BOUND_PENALTY).sum())
