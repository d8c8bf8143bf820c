"""The bounds that the test of a goal needs, with vectors of a tutorial, and their deltas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles.certificates import rules, words
from oracles.goals import evaluate

from ratecli.certify import trees
from ratecli.errors import FaultError
from ratecli.rates import expression as ex

COLUMNS = {"g": words("MMMMMMFFFFFF"), "h": words("xyxyxyxyxyxy")}
LABEL = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1.0])
METHODS = ("leaves", "forms", "pieces")
M, F = "positive_rate[g=M]", "positive_rate[g=F]"


def planned(text, method="leaves", delta=0.05, **options):
    test = rules(text, COLUMNS, LABEL)
    spec = test.spec(delta, method=method, **options)
    return trees.plan_goal_test(test.goals[0], spec, test.rates)


def deltas(found):
    """For each tree, the delta of each end of each quantity."""
    result = [{} for _ in found.trees]
    for each in found.bounds:
        result[each.tree][quantities(found)[each.quantity], each.sign] = each.delta
    return result


def quantities(found):
    return [ex.to_text(form.expression()).replace(" = ", "=") for form in found.quantities]


def both(delta, *leaves):
    return {(leaf, sign): delta for leaf in leaves for sign in (1, -1)}


RATIO = f"min({M} / {F}, {F} / {M}) >= 0.8"
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
        (RATIO, both(0.0125, M, F)),
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
        ("tpr - base_rate <= 0.1", {("tpr", 1): 0.025, ("base_rate", -1): 0.025}),
    ],
)  # fmt: skip
def test_ends_and_deltas_of_single_rates(text, expect):
    (found,) = deltas(planned(text))
    assert found == pytest.approx(expect)


@pytest.mark.parametrize(
    ("text", "limits", "end"),
    [
        (f"max({M} - {F}, {F} - {M}) <= 0.1", (0.4, 0.5, 0.42, 0.45), -0.02),
        (f"abs({M} - {F}) <= 0.1", (0.4, 0.5, 0.42, 0.45), -0.02),
        # the toolkit's own example
        (RATIO, (0.444518, 0.450803, 0.484884, 0.491347), -0.1046926),
        (f"{M} / {F} <= 1.2", (0.0, 0.5, 0.0, 1.0), math.inf),
    ],
)
def test_upper_ends_of_known_limits(text, limits, end):
    found = planned(text)
    known = dict(zip([(M, -1), (M, 1), (F, -1), (F, 1)], limits, strict=True))
    own = [known[quantities(found)[each.quantity], each.sign] for each in found.bounds]
    assert found.upper(np.array(own))[0] == pytest.approx([end], abs=1e-6)


GAP = f"{M} - {F}"


@pytest.mark.parametrize(
    ("text", "method", "expect"),
    [
        (f"abs({GAP}) <= 0.1", "forms", [both(0.025, GAP)]),
        (f"max({M} - {F}, {F} - {M}) <= 0.1", "forms", [both(0.025, GAP)]),
        (f"{M} - 0.9 * {F} <= 0.1", "forms", [{(f"{M} - 0.9 * {F}", 1): 0.05}]),
        # both pieces must pass: each has the whole delta
        (f"abs({GAP}) <= 0.1", "pieces", [{(GAP, 1): 0.05}, {(GAP, -1): 0.05}]),
        # ratios are cleared of denominators, and equal pieces are tested once
        (RATIO, "pieces", [{(f"-{M} + 0.8 * {F}", 1): 0.05}, {(f"-{F} + 0.8 * {M}", 1): 0.05}]),
        (f"max({GAP}, {GAP}, {M} - {F} - 0) <= 0.1", "pieces", [{(GAP, 1): 0.05}]),
        # overlapping groups
        (f"{M} - positive_rate <= 0.1", "forms", [{(M, 1): 0.025, ("positive_rate", -1): 0.025}]),
        (f"{M} - positive_rate <= 0.1", "pieces", [{(M, 1): 0.025, ("positive_rate", -1): 0.025}]),
        # affine terms beside others
        (f"abs({FNR_M} - {FNR_F}) + {M} - {F} <= 0.35", "forms",
         [both(0.05 / 3, f"{FNR_M} - {FNR_F}") | {(GAP, 1): 0.05 / 3}]),
    ],
)  # fmt: skip
def test_forms_that_are_bounded_as_one_quantity(text, method, expect):
    assert deltas(planned(text, method)) == [pytest.approx(each) for each in expect]


def test_small_coefficients_make_different_quantities():
    text = f"max({M} + 1e-14 * {F}, {M} - 1e-14 * {F}, 49 * {M} - 48) <= 0.5"
    found = planned(text, "pieces")
    assert quantities(found) == [f"{M} + 1e-14 * {F}", f"{M} - 1e-14 * {F}", M]


@pytest.mark.parametrize(
    ("text", "limits", "ends", "slopes"),
    [
        (f"max({GAP}, -0.2) <= 0.1", [0.05], [-0.05, -0.3], [[1.0], [0.0]]),
        (f"{M} - {M} <= 0.1", [], [-0.1], [[]]),
    ],
)
def test_constants_need_no_bound(text, limits, ends, slopes):
    found_ends, found_slopes = planned(text, "pieces").upper(np.array(limits))
    assert found_ends == pytest.approx(ends)
    assert found_slopes.tolist() == slopes


def test_a_metric_without_a_bound_is_refused():
    with pytest.raises(FaultError) as caught:
        planned("roc_auc >= 0.7")
    (fault,) = caught.value.faults
    assert fault.code == "E308"
    assert "roc_auc" in fault.message


RULES = [
    f"abs({M} - {F}) <= 0.1",
    RATIO,
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
    assert all(each.delta > 0 for each in found.bounds)
    totals = [sum(own.values()) for own in deltas(found) if own]
    assert totals == pytest.approx([0.05] * len(totals), rel=1e-12)
    assert method == "pieces" or len(found.trees) == 1


def limits_around(found, values, slack):
    """Valid limits at a small distance from the true values."""
    true = [evaluate(form.expression(), values) for form in found.quantities]
    pairs = zip(found.bounds, slack, strict=False)
    return np.array([true[each.quantity] + each.sign * s for each, s in pairs])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("text", RULES)
def test_trees_are_below_their_ends_if_limits_hold(text, method):
    found = planned(text, method)
    leaves = ex.leaves(*found.trees)
    rng = np.random.default_rng(0)
    for _ in range(40):
        rates = dict(zip(leaves, rng.uniform(0.05, 0.95, len(leaves)).tolist(), strict=True))
        slack = 0.05 * rng.uniform(size=len(found.bounds)) ** 3
        ends, _ = found.upper(limits_around(found, rates, slack))
        for end, tree in zip(ends, found.trees, strict=True):
            assert evaluate(tree, rates) <= end + 1e-9


def test_forms_whose_coefficients_have_no_finite_ratio_are_different_quantities():
    """Dividing by 1e-310 gives infinity; such forms were once taken as multiples."""
    text = f"exp(1e-310 * {M} + 0.1 * {F}) + exp(1e-310 * {M} + {F}) <= 3"
    assert len(planned(text, "forms").quantities) == 2
    assert len(planned(text.replace("1e-310 * ", ""), "forms").quantities) == 2
    assert len(planned(text.replace("0.1", "1"), "forms").quantities) == 1


@pytest.mark.parametrize(("one", "other"), [(M, F), (F, M)])
def test_multiples_up_to_rounding_are_one_quantity(one, other):
    text = f"exp(0.1 * 3 * {one} - 0.3 * {other}) + exp({one} - {other}) <= 3"
    assert len(planned(text, "forms").quantities) == 1


def recorded_deltas(node):
    """The deltas of the lower and upper limit of each quantity in a certificate's tree."""
    below = [delta for child in node["children"] for delta in recorded_deltas(child)]
    return [node["delta"], *below] if "delta" in node else below


def test_groups_are_disjoint_if_neither_tested_nor_candidate_rows_are_in_both():
    text = "positive_rate[g=a] - positive_rate[h=y] <= 0.1"
    safety = rules(text, {"g": words("aaabbb"), "h": words("nnnyyy")})
    other = rules(text, {"g": words("aaabbb"), "h": words("nyynyy")})
    decisions = np.linspace(0, 1, 6)

    def deltas(candidate):
        (found,) = safety.certify(decisions, candidate=candidate.rows(decisions))
        return recorded_deltas(found.tree)

    assert deltas(safety) == [[None, 0.05]]
    (_, upper), (lower, _) = deltas(other)
    assert upper + lower == pytest.approx(0.05)
