"""Failure rates of certificates: how often the upper end is below the true value."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from oracles.certificates import groups, rules
from scipy import stats

from ratecli.rates import expression as ex

A, B = "positive_rate[g=a]", "positive_rate[g=b]"
DELTA = 0.1
DRAWS = 100


def truth(goal, rates):
    """The value of a goal if groups have these rates."""
    return ex.evaluate(goal.expression, lambda leaf: rates[str(leaf.where).removeprefix("g = ")])


def upper_of(test, decisions, rng, **options):
    """The upper end of a certificate that must be exact."""
    (found,) = test.certify(decisions, DELTA, rng=rng, **options)
    assert (found.exact, found.classifier) == (True, "deterministic")
    return found.upper


def sampled_uppers(test, chance, **options):
    """Upper ends (DRAWS,) for decisions sampled with these probabilities."""
    rng = np.random.default_rng(0)
    draws = (rng.random((DRAWS, len(chance))) < chance).astype(float)
    return np.array([upper_of(test, decisions, rng, **options) for decisions in draws])


def consistent(failures):
    """Whether so many failures have a probability above 1/1000 at a failure rate of DELTA."""
    return stats.binom.sf(failures - 1, DRAWS, DELTA) > 1e-3


@pytest.mark.parametrize(
    ("text", "method", "bound"),
    [
        (f"{A} - {B} <= 0", "forms", "hoeffding"),
        (f"abs({A} - {B}) <= 0.1", "pieces", "clopper_pearson"),
        (f"2 * {A} + {B} <= 1.5", "leaves", "clopper_pearson"),
        (f"{A} * {B} <= 0.2", "pieces", "clopper_pearson"),
        (f"max({A}, 1 - {B}) <= 0.6", "pieces", "clopper_pearson"),
    ],
)
def test_failure_rate_summed_over_all_outcomes(text, method, bound):
    first, second = 9, 14
    test, rng = rules(text, groups(a=first, b=second)), np.random.default_rng(0)
    uppers = np.empty((first + 1, second + 1))
    for i, j in itertools.product(range(first + 1), range(second + 1)):
        decisions = np.concatenate([np.arange(first) < i, np.arange(second) < j]).astype(float)
        uppers[i, j] = upper_of(test, decisions, rng, method=method, bound=bound)
    missed = []
    for low, high in itertools.product(np.linspace(0.03, 0.97, 21), repeat=2):
        chances = np.outer(
            stats.binom.pmf(np.arange(first + 1), first, low),
            stats.binom.pmf(np.arange(second + 1), second, high),
        )
        true = truth(test.goals[0], {"a": low, "b": high})
        missed.append(float(chances[uppers < true].sum()))
    assert 0.01 * DELTA < max(missed) <= DELTA


def test_pieces_fail_at_most_delta_at_the_boundary_and_pass_more_often_inside():
    """Each side of the difference has the whole delta: only one of them can be violated."""
    test = rules(f"max({A} - {B}, {B} - {A}) <= 0.3", groups(a=100, b=100))
    boundary, within = {"a": 0.8, "b": 0.5}, {"a": 0.5, "b": 0.5}
    assert truth(test.goals[0], boundary) == pytest.approx(0)
    passed = {}
    for method in ("leaves", "pieces"):
        at_boundary, inside = (
            sampled_uppers(
                test, np.repeat([*rates.values()], 100), method=method, bound="hoeffding"
            )
            for rates in (boundary, within)
        )
        assert consistent(int((at_boundary <= 0).sum()))
        passed[method] = (inside <= 0).mean()
    assert passed["pieces"] > passed["leaves"] + 0.4


def test_slices_that_rarely_differ_are_not_treated_as_equal():
    """One row in a thousand is in the first slice alone and positive, so the goal is violated."""
    rng = np.random.default_rng(3)
    differing, passed = 0, 0
    for _ in range(20):
        odd = rng.random(300) < 1e-3
        columns = groups(a=300) | {"h": np.where(odd, "n", "y").astype(object)}
        test = rules("positive_rate[g=a] - positive_rate[h=y] <= 0", columns)
        (found,) = test.certify(odd | (rng.random(300) < 0.3), DELTA, rng=rng)
        differing += odd.any()
        passed += found.passed
    assert differing < 10
    assert consistent(passed)
