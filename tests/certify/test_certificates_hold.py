"""The promise itself, simulated: how often a certificate is below what it certifies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from oracles.certificates import rules, words
from scipy import stats

from ratecli.certify.certificate import certify
from ratecli.rates import expression as ex

A, B = "positive_rate[g=a]", "positive_rate[g=b]"
UNIT = (0.0, 1.0)
DELTA = 0.1
DRAWS = 100


def truth(goal, rates):
    """The goal's own value, groups having these rates."""

    def value(leaf):
        name = str(leaf.where).removeprefix("g = ")
        return rates[name]

    return ex.evaluate(goal.expression, value)


def found(text, sizes, rates, seed=0, **options):
    """Upper ends (DRAWS,) and the true value."""
    test = rules(text, {"g": words("".join(name * size for name, size in sizes.items()))})
    promise = test.promise(DELTA, **options)
    rng = np.random.default_rng(seed)
    chance = np.repeat([rates[name] for name in sizes], list(sizes.values()))
    draws = (rng.random((DRAWS, len(chance))) < chance).astype(float)
    uppers = []
    for decisions in draws:
        (one,) = certify(test.goals, promise, test.rates, {"decision": decisions}, UNIT, rng)
        assert one.exact
        assert one.classifier == "deterministic"
        uppers.append(one.upper)
    return np.array(uppers), truth(test.goals[0], rates)


def consistent(failures):
    """No more than a binomial with probability DELTA has, but in one case of a thousand."""
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
def test_uppers_are_below_the_truth_at_most_so_often(text, method, bound):
    """Exactly, over all outcomes: certificates hang on counts alone, whatever the rates are."""
    first, second = 9, 14
    test = rules(text, {"g": words("a" * first + "b" * second)})
    promise, rng = test.promise(DELTA, method=method, bound=bound), np.random.default_rng(0)
    uppers = np.empty((first + 1, second + 1))
    for i, j in itertools.product(range(first + 1), range(second + 1)):
        decisions = np.concatenate([np.arange(first) < i, np.arange(second) < j]).astype(float)
        (one,) = certify(test.goals, promise, test.rates, {"decision": decisions}, UNIT, rng)
        assert one.exact
        assert one.classifier == "deterministic"
        uppers[i, j] = one.upper
    missed = []
    for low, high in itertools.product(np.linspace(0.03, 0.97, 21), repeat=2):
        chances = np.outer(
            stats.binom.pmf(np.arange(first + 1), first, low),
            stats.binom.pmf(np.arange(second + 1), second, high),
        )
        true = truth(test.goals[0], {"a": low, "b": high})
        missed.append(float(chances[uppers < true].sum()))
    assert 0.01 * DELTA < max(missed) <= DELTA


def test_pieces_at_the_boundary_fail_at_most_delta_and_pass_more_often_within():
    """Each side of the difference has the whole delta, and one of them only can be the broken one."""
    text, sizes = f"max({A} - {B}, {B} - {A}) <= 0.3", {"a": 100, "b": 100}
    boundary = {"a": 0.8, "b": 0.5}
    within = {"a": 0.5, "b": 0.5}
    passed = {}
    for method in ("leaves", "pieces"):
        uppers, true = found(text, sizes, boundary, method=method, bound="hoeffding")
        assert true == pytest.approx(0)
        assert consistent(int((uppers <= 0).sum()))
        uppers, _ = found(text, sizes, within, method=method, bound="hoeffding")
        passed[method] = (uppers <= 0).mean()
    assert passed["pieces"] > passed["leaves"] + 0.4


def test_slices_that_hardly_differ_are_not_taken_for_one():
    """A row in a thousand is in the first slice alone, and it is decided yes: the goal is broken."""
    rng = np.random.default_rng(3)
    told, passed = 0, 0
    for _ in range(20):
        odd = rng.random(300) < 1e-3
        columns = {"g": words("a" * 300), "h": np.where(odd, "n", "y").astype(object)}
        test = rules("positive_rate[g=a] - positive_rate[h=y] <= 0", columns)
        decisions = {"decision": (odd | (rng.random(300) < 0.3)).astype(float)}
        (one,) = certify(test.goals, test.promise(DELTA), test.rates, decisions, UNIT, rng)
        told += odd.any()
        passed += one.passed
    assert told < 10
    assert consistent(passed)
