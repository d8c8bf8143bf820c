"""Values and tangents of expressions at many points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_strategies import CONVEX, expression, value

from ratecli.rates import expression as ex
from ratecli.rates.analysis import Curvature, curvature
from ratecli.rates.tangent import tangent, values

SMOOTH = ["(tpr - fpr) ** 3", "f1", "precision / tpr", "tpr * fpr", "1 - f_score(2)"]
UNIT = st.floats(0, 1)


def at(text: str, rates: np.ndarray):
    node = expression(text)
    index = {leaf: k for k, leaf in enumerate(ex.leaves(node))}
    return node, index, rates[: len(index)]


@pytest.mark.parametrize("text", CONVEX)
@given(st.lists(UNIT, min_size=8, max_size=8))
def test_tangents_of_convex_expressions_are_lower_bounds(text, chosen):
    node, index, here = at(text, np.array(chosen[:4]))
    there = np.array(chosen[4:])[: len(index)]
    assert curvature(node) is Curvature.CONVEX
    line = tangent(node, here, index)
    (above,) = values(node, there[:, None], index)
    # the clipping of kl makes it flat, not convex, within 1e-10 of the ends
    assert line.value + line.slopes @ (there - here) <= above + 1e-9 + 1e-6 * abs(above)


@pytest.mark.parametrize("text", [*CONVEX, *SMOOTH])
def test_slopes_are_difference_quotients(text):
    rng = np.random.default_rng(0)
    for _ in range(20):
        node, index, here = at(text, rng.uniform(0.2, 0.8, 4))
        line = tangent(node, here, index)
        near = here[:, None] + 1e-6 * np.hstack([np.eye(len(here)), -np.eye(len(here))])
        up, down = np.split(values(node, near, index), 2)
        np.testing.assert_allclose((up - down) / 2e-6, line.slopes, atol=1e-5)


@pytest.mark.parametrize("text", [*CONVEX, *SMOOTH])
@given(st.lists(UNIT, min_size=4, max_size=4))
@settings(max_examples=20, deadline=None)
def test_vectorized_values_agree_with_evaluation(text, chosen):
    node, index, here = at(text, np.array(chosen))
    one = value(node, {leaf: float(here[k]) for leaf, k in index.items()})
    many = values(node, np.stack([here, 1 - here], axis=1), index)
    assert many[0] == pytest.approx(one, nan_ok=True)
    touched = tangent(node, np.clip(here, 0.01, 0.99), index).value
    (exact,) = values(node, np.clip(here, 0.01, 0.99)[:, None], index)
    assert touched == pytest.approx(exact)
