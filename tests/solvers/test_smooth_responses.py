from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from ratecli.rates.analysis import monotonicity
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import Scope, resolve
from ratecli.solvers.players.atoms import SmoothAtom

SMOOTH = [
    "exp(tpr)",
    "exp(tpr + fpr)",
    "fpr * fpr",
    "-log(tpr)",
    "-sqrt(fpr)",
    "exp(rms(fpr, fnr))",
    "-log(0.2 * tpr + 0.1 * tnr)",
]


def atom_of(text: str) -> SmoothAtom:
    node = resolve(parse_expression(text), Scope(values=lambda _: ["a"], columns=frozenset({"g"})))
    signs = monotonicity(node)
    index = {leaf: k for k, leaf in enumerate(signs)}
    return SmoothAtom(lines=(), expression=node, index=index, signs=tuple(signs.values()))


def pulls_of(atom: SmoothAtom, lanes: int):
    """Weights and signed pulls, some of them zero."""
    rng = np.random.default_rng(0)
    weight, pull = rng.uniform(0, 2, lanes), rng.exponential(0.7, (len(atom.signs), lanes))
    weight[:2], pull[:, 2:4] = 0.0, 0.0
    return weight, np.array(atom.signs)[:, None] * pull


def old(atom: SmoothAtom, weight: float, pull: np.ndarray) -> float:
    """The least value by L-BFGS-B, held to its last digits."""

    def loss(x):
        value, slopes = atom._loss(np.array([weight]), pull[:, None], x[:, None])
        return float(value[0]), slopes[:, 0]

    ends = [(0.0, 1.0)] * len(pull)
    exact = {"ftol": 1e-16, "gtol": 1e-13}
    starts = (np.full(len(pull), start) for start in (0.5, 0.02))
    return min(
        minimize(loss, start, jac=True, method="L-BFGS-B", bounds=ends, options=exact).fun
        for start in starts
    )


@pytest.mark.parametrize("text", SMOOTH)
def test_responses_of_all_lanes_are_those_of_each(text):
    atom = atom_of(text)
    weight, pull = pulls_of(atom, 24)
    found = atom.respond(weight, pull)
    assert ((found >= 0) & (found <= 1)).all()
    values, _ = atom._loss(weight, pull, found)
    for b in range(24):
        assert values[b] == pytest.approx(old(atom, weight[b], pull[:, b]), abs=1e-9)


@pytest.mark.parametrize("text", SMOOTH)
def test_responses_do_not_depend_on_where_they_are_sought_from(text):
    atom = atom_of(text)
    weight, pull = pulls_of(atom, 16)
    found = atom.respond(weight, pull)
    again = atom.respond(weight, pull, np.random.default_rng(1).random(found.shape))
    values, others = (atom._loss(weight, pull, slacks)[0] for slacks in (found, again))
    np.testing.assert_allclose(values, others, atol=1e-9)
    np.testing.assert_array_equal(atom.respond(np.zeros(16), 0 * pull, again), again)


def test_a_response_may_be_a_kink():
    """`w max(.2, x) - p x` with 0 < p < w is least at .2, at 1 where p > w and at 0 for none."""
    atom = atom_of("max(0.2, tpr)")
    found = atom.respond(np.array([1.0, 1.0, 2.0]), np.array([[0.5, 1.5, 1.999]]))
    np.testing.assert_allclose(found, [[0.2, 1.0, 0.2]], atol=1e-12)


def test_two_arguments_of_max_are_no_worse_than_one_lane_at_a_time():
    atom = atom_of("max(exp(tpr), exp(2 * fpr))")
    weight, pull = pulls_of(atom, 8)
    values, _ = atom._loss(weight, pull, atom.respond(weight, pull))
    for b in range(8):
        start = np.full((2, 1), 0.5)
        assert values[b] <= atom._loss(weight[[b]], pull[:, [b]], start)[0][0] + 1e-12
