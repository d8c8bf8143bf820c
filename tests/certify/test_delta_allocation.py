from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from oracles.certificates import groups, rules, words

from ratecli.certify.certificate import MIN_DELTA_SHARE, ExpectedOutcome, optimize_delta_shares
from ratecli.certify.trees import plan_goal_test

M, F = "positive_rate[g=M]", "positive_rate[g=F]"


def expected_outcome(text, sizes, seed=0, label=None, *, method="leaves", bound="student_t"):
    test = rules(text, groups(**sizes), label)
    plan = plan_goal_test(test.goals[0], test.spec(method=method, bound=bound), test.rates)
    return ExpectedOutcome.of(plan, test.rows(uneven(seed, *sizes.values())), bound)


def uneven(seed, large, small):
    """Decisions with a small deviation in a large group and a large one in a small group."""
    rng = np.random.default_rng(seed)
    return np.r_[rng.uniform(0.4, 0.6, large), rng.random(small)]


def end_at(expected, shares):
    pairs = zip(expected.plan.bounds, shares, strict=True)
    bounds = [replace(each, delta=0.05 * share) for each, share in pairs]
    return expected.plan.upper(np.array([expected.limit(each) for each in bounds]))[0].max()


@pytest.mark.parametrize("bound", ["student_t", "hoeffding"])
def test_two_shares_are_optimal(bound):
    expected = expected_outcome(f"{M} - {F} <= 0.1", {"M": 4000, "F": 100}, bound=bound)
    grid = np.linspace(MIN_DELTA_SHARE / 2, 1 - MIN_DELTA_SHARE / 2, 301)
    best = min(end_at(expected, (share, 1 - share)) for share in grid)
    shares = optimize_delta_shares(expected)
    assert sum(shares) == pytest.approx(1)
    assert end_at(expected, shares) == pytest.approx(best, abs=1e-5)
    assert end_at(expected, shares) < end_at(expected, (0.5, 0.5)) - 1e-3
    assert shares[1] > 0.7  # of the small group


def test_three_shares_are_optimal():
    text = f"max({M} - {F}, 0.9 * {M}) + positive_rate <= 0.5"
    expected = expected_outcome(text, {"M": 900, "F": 60}, 1)
    assert len(expected.plan.bounds) == 3
    least = MIN_DELTA_SHARE / 3
    pairs = [(a, b) for a in np.linspace(least, 1, 30) for b in np.linspace(least, 1, 30)]
    ends = [end_at(expected, (a, b, 1 - a - b)) for a, b in pairs if a + b < 1 - least]
    assert end_at(expected, optimize_delta_shares(expected)) <= min(ends) + 1e-6


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "text",
    [
        f"abs({M} - {F}) <= 0.1",
        f"min({M} / {F}, {F} / {M}) >= 0.8",
        "abs(fnr[g=M] - fnr[g=F]) + abs(fpr[g=M] - fpr[g=F]) <= 0.35",
    ],
)
def test_optimized_shares_are_better_than_equal_ones(text, seed):
    label = (np.random.default_rng(seed).random(440) < 0.4).astype(float)
    expected = expected_outcome(text, {"M": 400, "F": 40}, seed, label)
    shares = optimize_delta_shares(expected)
    size = len(expected.plan.bounds)
    assert sum(shares) == pytest.approx(1, abs=1e-12)
    assert min(shares) >= MIN_DELTA_SHARE / size - 1e-12
    assert end_at(expected, shares) < end_at(expected, [1 / size] * size)
    assert optimize_delta_shares(expected) == shares


def test_shares_are_equal_if_an_expected_limit_is_infinite():
    expected = expected_outcome(f"{M} - {F} <= 0.1", {"M": 50, "F": 1})
    assert optimize_delta_shares(expected) == (0.5, 0.5)


def test_every_tree_of_pieces_divides_the_whole_delta():
    # the groups overlap, so the first two trees need two bounds each
    text = f"max({M} - positive_rate, {F} - positive_rate, {M}) <= 0.1"
    expected = expected_outcome(text, {"M": 900, "F": 60}, 1, method="pieces")
    shares = np.array(optimize_delta_shares(expected))
    trees = np.array([each.tree for each in expected.plan.bounds])
    assert [shares[trees == tree].sum() for tree in range(3)] == pytest.approx([1, 1, 1])
    assert shares[trees == 1].max() > 0.6


def test_the_division_depends_on_candidate_rows_alone():
    test = rules(f"{M} - {F} <= 0.1", groups(M=400, F=40))
    candidate = test.rows(uneven(0, 400, 40))
    uppers = {}
    for division in ("equal", "optimized"):
        options = {"method": "leaves", "bound": "student_t", "division": division}
        for seed in (1, 2):
            (found,) = test.certify(uneven(seed, 400, 40), candidate=candidate, **options)
            man, woman = found.tree["children"][0]["children"]
            uppers[division, seed] = found.upper, (man["delta"][1], woman["delta"][0])
    assert uppers["equal", 1][1] == (0.025, 0.025)
    assert uppers["optimized", 1][1] == uppers["optimized", 2][1] != (0.025, 0.025)
    assert math.fsum(uppers["optimized", 1][1]) == pytest.approx(0.05)
    assert uppers["optimized", 1][0] < uppers["equal", 1][0]


def test_groups_are_disjoint_if_neither_tested_nor_candidate_rows_are_in_both():
    text = "positive_rate[g=a] - positive_rate[h=y] <= 0.1"
    safety = rules(text, {"g": words("aaabbb"), "h": words("nnnyyy")})
    other = rules(text, {"g": words("aaabbb"), "h": words("nyynyy")})
    decisions = np.linspace(0, 1, 6)

    def deltas(candidate):
        options = {"division": "optimized", "bound": "student_t"}
        (found,) = safety.certify(decisions, candidate=candidate.rows(decisions), **options)
        difference = found.tree["children"][0]
        nodes = difference["children"] or [difference]
        return [node["delta"] for node in nodes if "delta" in node] or [difference["delta"]]

    assert deltas(safety) == [[None, 0.05]]
    (_, upper), (lower, _) = deltas(other)
    assert upper + lower == pytest.approx(0.05)
