from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.certificates import rules, words

from ratecli.certify.bounds import BOUNDS
from ratecli.certify.forms import has_joint_bound, independent_parts
from ratecli.errors import FaultError
from ratecli.rates.affine import affine

GROUP = words("aaaabbbbbb")
LABEL = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1, 0.0])
OLD = np.array([0, 1, 0, 0, 1, 1, 0, 1, 0, 1.0])
UNIT = (0.0, 1.0)


def form_of(text, label=LABEL, **columns):
    """The affine form of the first piece of a rule, and the rates it is of."""
    test = rules(text, {"g": GROUP, **columns}, label, deployed=OLD)
    return affine(test.goals[0].pieces[0]), test.rates


def parts(text, label_range=UNIT, label=LABEL):
    return independent_parts(*form_of(text, label), label_range)


def ends(part):
    """Least and largest value of what is bounded."""
    return tuple(part.coefficient * end for end in part.range)


def test_one_rate_keeps_decisions_at_0_and_1_and_its_coefficient_outside():
    (part,) = parts("3 * fnr[g=b] <= 1")
    assert part.coefficient == 3
    assert part.rows.tolist() == [4, 7, 8]
    assert (part.slope == -1).all()
    assert (part.offset == 1).all()
    found = part.measured({"decision": np.array([0, 0, 0, 0, 1, 0, 0, 0, 1, 0.0])})
    assert found.binary
    assert found.values.tolist() == [0, 1, 0]


def test_rates_of_disjoint_groups_are_a_part_each():
    men, women = parts("positive_rate[g=a] - positive_rate[g=b] <= 0.1")
    assert (men.coefficient, women.coefficient) == (1, -1)
    assert men.rows.tolist() == [0, 1, 2, 3]
    assert women.rows.tolist() == [4, 5, 6, 7, 8, 9]


def test_a_share_is_one_sample_over_all_rows_in_its_slice_or_not():
    (part,) = parts("share[g=a] >= 0.4")
    assert part.rows.tolist() == list(range(10))
    assert ends(part) == pytest.approx((-0.6, 0.4))
    decided = part.coefficient * part.values({"decision": np.ones(10)})
    np.testing.assert_allclose(decided, np.where(np.array(GROUP) == "a", -0.6, 0.4))


def test_slices_of_shares_may_have_rows_in_common():
    """Of those at hand they have none: whether one can be in both is not said."""
    text = "joint_rate[g=a] - 2 * joint_rate[h=c] <= 0.4 * positive_rate"
    (part,) = independent_parts(*form_of(text, h=words("ddddccccdd")), UNIT)
    assert ends(part) == pytest.approx((-2.4, 0.6))


def test_a_precision_is_one_sample_over_the_rows_of_its_denominator():
    (part,) = parts("precision >= 0.7")
    assert part.coefficient == 0.5  # a power of 2 near the largest
    assert len(part.rows) == 10
    assert ends(part) == pytest.approx((-0.3, 0.7))
    decided = part.coefficient * part.values({"decision": np.ones(10)})
    assert decided == pytest.approx(np.where(LABEL == 1, -0.3, 0.7))


def test_ranges_are_of_rows_that_can_be_not_of_those_at_hand():
    (part,) = parts("wins - losses >= 0")
    assert ends(part) == (-1, 1)
    (part,) = parts("0.5 * true_positives + 0.5 * false_positives <= 0.4")
    assert ends(part) == (0, 0.5)  # a row is not both
    (part,) = parts("0.25 * churn + 0.5 * agreement <= 0.4")
    assert ends(part) == (0.25, 0.5)


def test_coefficients_of_any_size_leave_numbers_to_square():
    (part,) = parts("1e160 * true_positives - 1e160 * base_rate <= 3e160")
    assert max(map(abs, part.range)) <= 2
    sample = [part.measured({"decision": np.ones(10)})]
    upper = BOUNDS["hoeffding"].upper(sample, 0.05, np.random.default_rng(0))
    assert -1e160 <= upper <= 1e160


@pytest.mark.parametrize(
    "text",
    [
        "tpr[g=a] - tpr <= 0.1",
        "error - positive_rate[g=a] <= 0.1",
        "mean_error - positive_rate <= 0.1",  # the same rows, but something else is measured
    ],
)
def test_groups_that_overlap_have_no_joint_bound(text):
    form, rates = form_of(text)
    assert not has_joint_bound(form, rates)
    assert independent_parts(form, rates, UNIT) is None


def test_slices_are_the_same_by_what_is_written_not_by_the_rows_at_hand():
    """Other rows may tell them apart; whether rows have labels and decisions is seen on those at hand."""
    columns = {"h": words("yyyynnnnnn")}
    for text in ("positive_rate[g=a] + negative_rate[h=y] <= 0.5", "positive_rate - tpr <= 0.1"):
        form, rates = form_of(text, np.ones(10), **columns)
        assert not has_joint_bound(form, rates)
    form, rates = form_of("positive_rate[g=a] - error[g=a] + churn[g=a] <= 0.5", **columns)
    assert len(independent_parts(form, rates, UNIT)) == 1
    label = np.where(np.arange(10) < 1, np.nan, LABEL)
    form, rates = form_of("positive_rate[g=a] - error[g=a] <= 0.5", label, **columns)
    assert not has_joint_bound(form, rates)


@pytest.mark.parametrize(
    ("rate", "low", "high"),
    [("mean_error", -4.0, 4.0), ("mse", 0.0, 16.0), ("base_rate", 0.0, 1.0)],
)
def test_ranges_of_estimates_follow_from_the_range_of_labels(rate, low, high):
    (part,) = parts(f"{rate} <= 0.5", (0.0, 4.0))
    assert part.range == (low, high)


def test_without_a_known_range_of_labels_there_is_none_of_errors():
    (part,) = parts("mean_error <= 0.5", (-math.inf, math.inf))
    assert part.range == (-math.inf, math.inf)
    (part,) = parts("mse <= 0.5", (-math.inf, math.inf))
    assert part.range == (0, math.inf)


def test_an_error_beyond_the_range_shows_that_the_range_was_not_known():
    (part,) = parts("mean_error <= 0.5", (0.0, 4.0))
    errors = np.zeros(10)
    errors[3] = 4.5
    assert part.measured({"error": errors}).range == (-4, math.inf)
    errors[3] = 4 + 1e-12
    assert part.measured({"error": errors}).range == (-4, 4)


def test_moments_are_those_of_the_rows():
    form, rates = form_of("positive_rate[g=b] <= 0.5")
    (part,) = independent_parts(form, rates, UNIT)
    decisions = np.array([9, 9, 9, 9, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    found = part.moments({"decision": decisions})
    assert found.rows == 6
    assert found.mean == pytest.approx(0.35)
    assert found.deviation == pytest.approx(np.std(decisions[4:], ddof=1))


def test_no_moments_without_rows():
    (part,) = parts("tpr[g=a] <= 0.5", label=np.zeros(10))
    found = part.moments({"decision": np.ones(10)})
    assert found.rows == 0
    assert math.isnan(found.mean)
    assert math.isnan(found.deviation)


def test_weights_are_refused_unless_they_are_equal():
    columns, label = {"g": GROUP}, LABEL
    weight = np.where(GROUP == "a", 2.0, 1.0)
    equal = rules("tpr[g=a] - tpr[g=b] <= 0.1", columns, label, weight)
    first, _ = independent_parts(affine(equal.goals[0].pieces[0]), equal.rates, UNIT)
    assert (first.slope == 1).all()
    unequal = rules("tpr <= 0.1", columns, label, weight)
    with pytest.raises(FaultError) as caught:
        independent_parts(affine(unequal.goals[0].pieces[0]), unequal.rates, UNIT)
    (fault,) = caught.value.faults
    assert fault.code == "E411"
    assert "tpr" in fault.message
    assert "weight" in fault.help


@settings(max_examples=40)
@given(
    coefficients=st.lists(st.floats(-3, 3), min_size=4, max_size=4),
    decisions=st.lists(st.floats(0, 1), min_size=10, max_size=10),
)
def test_parts_add_up_to_the_form(coefficients, decisions):
    a, b, c, d = coefficients
    text = (
        f"{a} * error[g=a] + {b} * false_positives[g=a] + {c} * tpr[g=b] + {d} * fpr[g=b] + 7 <= 9"
    )
    form, rates = form_of(text)
    p = np.array(decisions)
    found = independent_parts(form, rates, UNIT)
    means = [part.coefficient * part.values({"decision": p}).mean() for part in found]
    values = rates.rates(p)
    direct = sum(k * values[rates.index()[leaf]] for leaf, k in form.coefficients.items())
    assert sum(means) == pytest.approx(direct, abs=1e-12)
    for part in found:
        measured = part.measured({"decision": p})
        assert measured.range == part.range
