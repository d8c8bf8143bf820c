"""What is bounded of a goal: vectors of the toolkit's tutorial and its own tests, section by section."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from oracles.certificates import rules, words

from ratecli.certify import trees
from ratecli.errors import FaultError
from ratecli.rates import expression as ex

COLUMNS = {"g": words("MMMMMMFFFFFF"), "h": words("xyxyxyxyxyxy")}
LABEL = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1.0])
METHODS = ("leaves", "forms", "pieces")
M, F = "positive_rate[g=M]", "positive_rate[g=F]"
BOTH = frozenset({1, -1})


def planned(text, method="leaves", delta=0.05, **options):
    test = rules(text, COLUMNS, LABEL)
    promise = test.promise(delta, method=method, **options)
    return trees.plan_goal_test(test.goals[0], promise, test.rates)


def asked(found):
    """Per tree, the delta of each side of each quantity."""
    result = [{} for _ in found.trees]
    for each in found.bounds:
        text = ex.to_text(found.quantities[each.quantity].expression())
        result[each.tree][text.replace(" = ", "="), each.sign] = each.delta
    return result


def both(delta, *leaves):
    return {(leaf, sign): delta for leaf in leaves for sign in (1, -1)}


ME_M, ME_F = "mean_error[g=M]", "mean_error[g=F]"
FNR_M, FNR_F, FPR_M, FPR_F = "fnr[g=M]", "fnr[g=F]", "fpr[g=M]", "fpr[g=F]"


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        (f"abs({ME_M} - {ME_F}) - 0.05 <= 0", both(0.0125, ME_M, ME_F)),
        ("mse - 2.0 <= 0", {("mse", 1): 0.05}),
        ("0.88 <= tpr", {("tpr", -1): 0.05}),
        (f"{M} - {F} - 0.1 <= 0", {(M, 1): 0.025, (F, -1): 0.025}),
        ("fpr + fnr <= 0.5", {("fpr", 1): 0.025, ("fnr", 1): 0.025}),
        (f"min({M} / {F}, {F} / {M}) >= 0.8", both(0.0125, M, F)),
        (
            f"abs({FNR_M} - {FNR_F}) + abs({FPR_M} - {FPR_F}) <= 0.35",
            both(0.00625, FNR_M, FNR_F, FPR_M, FPR_F),
        ),
        (f"max({M} - {F}, {F} - {M}) <= 0.1", both(0.0125, M, F)),
        ("2 * positive_rate - 1 <= 0", {("positive_rate", 1): 0.05}),
        ("-positive_rate + 0.3 <= 0", {("positive_rate", -1): 0.05}),
        (f"abs({M} - 0.5) + {F} <= 1", both(0.05 / 3, M) | {(F, 1): 0.05 / 3}),
        # a rate is bounded once, however often it is named, and a constant costs nothing
        (f"2 * {M} - {M} + {F} - {F} <= 0.5", {(M, 1): 0.05}),
        (f"max({M} - {F}, -7) <= 0.1", {(M, 1): 0.025, (F, -1): 0.025}),
        (f"{M} - {F} + 3 - 3 * 1 <= 0.1", {(M, 1): 0.025, (F, -1): 0.025}),
        # the share of positives is as unknown as a rate of decisions
        ("positive_rate - base_rate <= 0.1", {("positive_rate", 1): 0.025, ("base_rate", -1): 0.025}),
    ],
)  # fmt: skip
def test_sides_and_deltas_of_single_rates(text, expect):
    (found,) = asked(planned(text))
    assert found == pytest.approx(expect)


def test_a_maximum_of_differences_is_as_good_as_their_size():
    limits = {(M, 1): 0.5, (M, -1): 0.4, (F, 1): 0.45, (F, -1): 0.42}
    ends = []
    for text in (f"max({M} - {F}, {F} - {M}) <= 0.1", f"abs({M} - {F}) <= 0.1"):
        found = planned(text)
        ends.append(found.upper(limits_of(found, limits))[0])
    assert ends == [pytest.approx([0.5 - 0.42 - 0.1])] * 2


def limits_of(found, limits):
    """Limits in the order in which they were asked for."""
    names = [ex.to_text(form.expression()).replace(" = ", "=") for form in found.quantities]
    return np.array([limits[names[each.quantity], each.sign] for each in found.bounds])


def test_the_ratio_of_the_toolkit_s_own_example():
    found = planned(f"min({M} / {F}, {F} / {M}) >= 0.8")
    limits = {(M, -1): 0.444518, (M, 1): 0.450803, (F, -1): 0.484884, (F, 1): 0.491347}
    (end,), _ = found.upper(limits_of(found, limits))
    assert end == pytest.approx(-0.1047, abs=1e-4)


def test_a_lower_end_of_0_makes_a_ratio_worthless():
    found = planned(f"{M} / {F} <= 1.2")
    assert found.upper(limits_of(found, {(M, 1): 0.5, (F, -1): 0.0}))[0] == [math.inf]


GAP = f"{M} - {F}"


@pytest.mark.parametrize(
    ("text", "method", "expect"),
    [
        (f"abs({GAP}) <= 0.1", "forms", [both(0.025, GAP)]),
        (f"max({M} - {F}, {F} - {M}) <= 0.1", "forms", [both(0.025, GAP)]),
        (f"{M} - 0.9 * {F} <= 0.1", "forms", [{(f"{M} - 0.9 * {F}", 1): 0.05}]),
        # both pieces must pass: each has the whole delta
        (f"abs({GAP}) <= 0.1", "pieces", [{(GAP, 1): 0.05}, {(GAP, -1): 0.05}]),
        # overlapping groups
        (f"{M} - positive_rate <= 0.1", "forms", [{(M, 1): 0.025, ("positive_rate", -1): 0.025}]),
        (f"{M} - positive_rate <= 0.1", "pieces", [{(M, 1): 0.025, ("positive_rate", -1): 0.025}]),
        # affine terms beside others
        (f"abs({FNR_M} - {FNR_F}) + {M} - {F} <= 0.35", "forms",
         [both(0.05 / 3, f"{FNR_M} - {FNR_F}") | {(GAP, 1): 0.05 / 3}]),
    ],
)  # fmt: skip
def test_what_is_bounded_as_one(text, method, expect):
    assert asked(planned(text, method)) == [pytest.approx(each) for each in expect]


def test_ratios_are_cleared_of_denominators():
    found = planned(f"min({M} / {F}, {F} / {M}) >= 0.8", "pieces")
    assert [ex.to_text(tree).replace(" = ", "=") for tree in found.trees] == [
        f"-{M} + 0.8 * {F}",
        f"-{F} + 0.8 * {M}",
    ]
    assert [each.delta for each in found.bounds] == [0.05, 0.05]
    assert [each.tree for each in found.bounds] == [0, 1]


def test_small_coefficients_tell_quantities_apart_and_a_rate_is_itself():
    text = f"max({M} + 1e-14 * {F}, {M} - 1e-14 * {F}, 49 * {M} - 48) <= 0.5"
    found = planned(text, "pieces")
    assert [ex.to_text(form.expression()).replace(" = ", "=") for form in found.quantities] == [
        f"{M} + 1e-14 * {F}",
        f"{M} - 1e-14 * {F}",
        M,
    ]


def test_pieces_that_say_the_same_are_tested_once():
    assert len(planned(f"max({GAP}, {GAP}, {M} - {F} - 0) <= 0.1", "pieces").trees) == 1


def test_shares_divide_the_delta_otherwise():
    found = planned(f"{GAP} <= 0.1", "leaves").with_shares(0.05, [0.8, 0.2])
    assert asked(found) == [pytest.approx({(M, 1): 0.04, (F, -1): 0.01})]


def test_a_constant_needs_no_bound():
    found = planned(f"max({GAP}, -0.2) <= 0.1", "pieces")
    assert [each.tree for each in found.bounds] == [0]
    ends, slopes = found.upper(np.array([0.05]))
    assert ends == pytest.approx([-0.05, -0.3])
    assert slopes.tolist() == [[1.0], [0.0]]


def test_a_goal_of_nothing_but_constants():
    found = planned(f"{M} - {M} <= 0.1")
    ends, slopes = found.upper(np.zeros(0))
    assert ends == pytest.approx([-0.1])
    assert slopes.shape == (1, 0)


def test_what_no_bound_is_known_for_is_refused():
    with pytest.raises(FaultError) as caught:
        planned("roc_auc >= 0.7")
    (fault,) = caught.value.faults
    assert fault.code == "E308"
    assert "roc_auc" in fault.message


RULES = [
    f"abs({M} - {F}) <= 0.1",
    f"min({M} / {F}, {F} / {M}) >= 0.8",
    f"{M} * {F} + {FPR_M} / {FPR_F} - tpr <= 1",
    f"max(abs({FNR_M} - {FNR_F}), {M} - {F}, log({M}), 0.1) <= 0.4",
    "sqrt(tpr * tnr) >= 0.7",
    f"exp({M} - {F}) + {M} ** 2 - ({F} - 0.4) ** 2 <= 1.1",
    "precision >= 0.7",
    "kl(base_rate, positive_rate) <= 0.1",
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("text", RULES)
def test_deltas_of_a_tree_add_up_to_that_of_the_goal(text, method):
    found = planned(text, method)
    total = defaultdict(float)
    for each in found.bounds:
        assert each.delta > 0
        total[each.tree] += each.delta
    assert total.values()
    assert all(value == pytest.approx(0.05, rel=1e-12) for value in total.values())
    if method != "pieces":
        assert len(found.trees) == 1


def limits_around(found, values, slack):
    """Limits that hold, a little away from the true values of what they bound."""
    return np.array(
        [
            ex.evaluate(found.quantities[each.quantity].expression(), values.get) + each.sign * s
            for each, s in zip(found.bounds, slack, strict=False)
        ]
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("text", RULES)
def test_where_limits_hold_no_tree_is_above_its_end(text, method):
    found = planned(text, method)
    leaves = ex.leaves(*found.trees)
    rng = np.random.default_rng(0)
    for _ in range(40):
        rates = dict(zip(leaves, rng.uniform(0.05, 0.95, len(leaves)).tolist(), strict=True))
        slack = 0.05 * rng.uniform(size=len(found.bounds)) ** 3
        ends, _ = found.upper(limits_around(found, rates, slack))
        for end, value in zip(ends, found.values(rates.get), strict=True):
            assert value <= end + 1e-9


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("text", RULES)
def test_slopes_are_those_of_the_ends(text, method):
    found = planned(text, method)
    rng = np.random.default_rng(1)
    leaves = ex.leaves(*found.trees)
    for _ in range(3):
        rates = dict(zip(leaves, rng.uniform(0.3, 0.7, len(leaves)).tolist(), strict=True))
        limits = limits_around(found, rates, rng.uniform(0.01, 0.1, len(found.bounds)))
        _, slopes = found.upper(limits)
        for b, step in enumerate(1e-6 * np.eye(len(limits))):
            change = (found.upper(limits + step)[0] - found.upper(limits - step)[0]) / 2e-6
            assert slopes[:, b] == pytest.approx(change, abs=1e-5)


def test_forms_whose_coefficients_have_no_ratio_are_not_one_quantity():
    """1e-310 divides to infinity: two forms with it were once bounded as one, and a goal of .56 passed."""
    text = f"exp(1e-310 * {M} + 0.1 * {F}) + exp(1e-310 * {M} + {F}) <= 3"
    assert len(planned(text, "forms").quantities) == 2
    assert len(planned(text.replace("1e-310 * ", ""), "forms").quantities) == 2
    assert len(planned(text.replace("0.1", "1"), "forms").quantities) == 1
