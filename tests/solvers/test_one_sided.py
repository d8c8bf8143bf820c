"""Goals that three players can hold: what is said of a rule before data is read is what they can do."""

from __future__ import annotations

import pytest
from oracles.goals import Rules, grid_rows, problem

from ratecli.errors import FaultError
from ratecli.rates.analysis import find_two_sided_rate
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.players.atoms import QuadraticMean
from ratecli.solvers.players.lagrangian import ProgramLagrangian
from ratecli.solvers.players.solver import ThreePlayer
from ratecli.solvers.problem import Problem


def form_of(given: Problem) -> ProgramLagrangian:
    return ProgramLagrangian(RateProgram.of(given), RowKinds.by(given.rates))


SIDES = {
    "error + kl(base_rate, positive_rate[g=a])": True,
    "kl(0.5 * base_rate, 0.5 * positive_rate[g=a] + 0.5 * fpr)": True,
    "1 - g_mean + exp(fpr - tpr)": True,
    "max(fpr, fnr) + exp(fpr)": True,
    "rms(fpr, fnr[g=a], 1 - tpr[g=b])": True,
    "1 - geo_mean(1 + tpr - fpr, 1)": True,
    "error + abs(tpr[g=a] - tpr[g=b])": False,
    "kl(tpr, fpr)": False,
    "rms(tpr[g=a] - tpr[g=b], fpr)": False,
    "0.5 * exp(abs(fpr - 0.2))": False,
    "(tpr - fpr) * (tpr - fpr) + error": False,
}


@pytest.mark.parametrize(("text", "fits"), SIDES.items())
def test_what_the_rules_say_of_sides_is_what_the_game_can_hold(text, fits):
    given = problem(grid_rows(0), Rules({}, text))
    assert given.objective.shape in ThreePlayer.objectives
    assert (find_two_sided_rate(given.objective.expression) is None) == fits
    if fits:
        form_of(given)
    else:
        with pytest.raises(FaultError, match="neither grows nor falls"):
            form_of(given)


def test_slacks_of_means_beyond_1_are_not_held_at_1():
    """The best of rms(2 fpr, 2 fnr) is not what shares of at most 1 would have it be."""
    form = form_of(problem(grid_rows(0), Rules({}, "rms(2 * fpr, 2 * fnr)")))
    (atom,) = form.atoms
    assert not isinstance(atom, QuadraticMean)
    form = form_of(problem(grid_rows(0), Rules({}, "rms(fpr, fnr)")))
    assert isinstance(form.atoms[0], QuadraticMean)
