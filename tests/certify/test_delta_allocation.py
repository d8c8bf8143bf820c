from __future__ import annotations

import math

import numpy as np
import pytest
from oracles.certificates import rules, words

from ratecli.certify import trees as plan
from ratecli.certify.certificate import MIN_DELTA_SHARE, certify, optimize_delta_shares
from ratecli.certify.prediction import CandidateRows, ExpectedOutcome

M, F = "positive_rate[g=M]", "positive_rate[g=F]"
UNIT = (0.0, 1.0)


def beforehand(
    text, sizes, decisions, label=None, *, share=1.0, method="leaves", bound="student_t"
):
    columns = {"g": words("".join(name * size for name, size in sizes.items()))}
    test = rules(text, columns, label)
    promise = test.promise(method=method, bound=bound)
    given = plan.plan_goal_test(test.goals[0], promise, test.rates)
    rows = given.parts(test.rates, UNIT)
    return ExpectedOutcome.of(given, rows, {"decision": decisions}, bound).scaled(share)


def nodes(node):
    yield node
    for child in node["children"]:
        yield from nodes(child)


def uneven(seed=0, large=4000, small=100):
    """A large group of little spread, a small one of much."""
    rng = np.random.default_rng(seed)
    return np.r_[rng.uniform(0.4, 0.6, large), rng.random(small)]


def end_at(given, shares):
    asked = [
        plan.OneSidedBound(each.quantity, each.sign, 0.05 * share, each.tree)
        for each, share in zip(given.plan.bounds, shares, strict=True)
    ]
    limits = np.array([given.limit(each) for each in asked])
    return given.plan.upper(limits)[0].max()


@pytest.mark.parametrize("bound", ["student_t", "hoeffding"])
def test_two_shares_are_the_best_there_are(bound):
    given = beforehand(f"{M} - {F} <= 0.1", {"M": 4000, "F": 100}, uneven(), bound=bound)
    grid = np.linspace(MIN_DELTA_SHARE / 2, 1 - MIN_DELTA_SHARE / 2, 301)
    best = min(end_at(given, (share, 1 - share)) for share in grid)
    shares = optimize_delta_shares(given)
    assert sum(shares) == pytest.approx(1)
    assert end_at(given, shares) == pytest.approx(best, abs=1e-5)
    assert end_at(given, shares) < end_at(given, (0.5, 0.5)) - 1e-3
    assert shares[1] > 0.7  # the small group's


def test_three_shares_are_the_best_there_are():
    text = f"max({M} - {F}, 0.9 * {M}) + positive_rate <= 0.5"
    given = beforehand(text, {"M": 900, "F": 60}, uneven(1, 900, 60))
    assert len(given.plan.bounds) == 3
    grid = np.linspace(MIN_DELTA_SHARE / 3, 1, 30)
    ends = [
        end_at(given, (a, b, 1 - a - b))
        for a in grid
        for b in grid
        if a + b < 1 - MIN_DELTA_SHARE / 3
    ]
    assert end_at(given, optimize_delta_shares(given)) <= min(ends) + 1e-6


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "text",
    [
        f"abs({M} - {F}) <= 0.1",
        f"min({M} / {F}, {F} / {M}) >= 0.8",
        "abs(fnr[g=M] - fnr[g=F]) + abs(fpr[g=M] - fpr[g=F]) <= 0.35",
    ],
)
def test_no_division_is_worse_than_equal_shares(text, seed):
    label = (np.random.default_rng(seed).random(440) < 0.4).astype(float)
    given = beforehand(text, {"M": 400, "F": 40}, uneven(seed, 400, 40), label)
    shares = optimize_delta_shares(given)
    size = len(given.plan.bounds)
    assert sum(shares) == pytest.approx(1, abs=1e-12)
    assert min(shares) >= MIN_DELTA_SHARE / size - 1e-12
    assert end_at(given, shares) < end_at(given, [1 / size] * size)
    assert optimize_delta_shares(given) == shares


def test_equal_shares_where_nothing_finite_can_be_expected():
    given = beforehand(f"{M} - {F} <= 0.1", {"M": 50, "F": 1}, uneven(0, 50, 1))
    assert optimize_delta_shares(given) == (0.5, 0.5)


def test_every_tree_of_pieces_divides_the_whole_delta():
    text = (
        f"max({M} - positive_rate, {F} - positive_rate, {M}) <= 0.1"  # overlapping: two bounds each
    )
    given = beforehand(text, {"M": 900, "F": 60}, uneven(1, 900, 60), method="pieces")
    shares = np.array(optimize_delta_shares(given))
    trees = np.array([each.tree for each in given.plan.bounds])
    assert [shares[trees == tree].sum() for tree in range(3)] == pytest.approx([1, 1, 1])
    assert shares[trees == 1].max() > 0.6


def test_a_certificate_divides_by_the_candidate_s_rows_alone():
    sizes = {"g": words("M" * 400 + "F" * 40)}
    test = rules(f"{M} - {F} <= 0.1", sizes)
    candidate = CandidateRows(test.rates, {"decision": uneven(0, 400, 40)})
    uppers = {}
    for division in ("equal", "optimized"):
        promise = test.promise(method="leaves", bound="student_t", division=division)
        for seed in (1, 2):
            measured = {"decision": uneven(seed, 400, 40)}
            rng = np.random.default_rng(0)
            (found,) = certify(test.goals, promise, test.rates, measured, UNIT, rng, candidate)
            man, woman = found.tree["children"][0]["children"]
            deltas = man["delta"][1], woman["delta"][0]
            uppers[division, seed] = found.upper, deltas
    assert uppers["equal", 1][1] == (0.025, 0.025)
    assert uppers["optimized", 1][1] == uppers["optimized", 2][1] != (0.025, 0.025)
    assert math.fsum(uppers["optimized", 1][1]) == pytest.approx(0.05)
    assert uppers["optimized", 1][0] < uppers["equal", 1][0]


def test_groups_are_disjoint_where_neither_tested_nor_candidate_rows_are_common():
    text = "positive_rate[g=a] - positive_rate[h=y] <= 0.1"
    safety = rules(text, {"g": words("aaabbb"), "h": words("nnnyyy")})
    other = rules(text, {"g": words("aaabbb"), "h": words("nyynyy")})
    promise = safety.promise(division="optimized", bound="student_t")
    measured = {"decision": np.linspace(0, 1, 6)}

    def quantities(rates):
        (found,) = certify(
            safety.goals, promise, safety.rates, measured, UNIT, np.random.default_rng(0),
            CandidateRows(rates, measured),
        )  # fmt: skip
        return [node for node in nodes(found.tree) if "delta" in node]

    (both,) = quantities(safety.rates)
    assert both["delta"] == [None, 0.05]
    first, second = quantities(other.rates)
    assert first["delta"][1] + second["delta"][0] == pytest.approx(0.05)
