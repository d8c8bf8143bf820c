from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.certificates import rules, words

from ratecli.certify.forms import disjoint_groups, independent_parts
from ratecli.errors import FaultError
from ratecli.rates.affine import affine

GROUP = words("aaaabbbbbb")
LABEL = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1, 0.0])
OLD = np.array([0, 1, 0, 0, 1, 1, 0, 1, 0, 1.0])
UNIT, UNKNOWN = (0.0, 1.0), (-math.inf, math.inf)


def form_of(text, label=LABEL, **columns):
    """The affine form of the first piece of a rule, and its rates."""
    test = rules(text, {"g": GROUP, **columns}, label, deployed=OLD)
    return affine(test.goals[0].pieces[0]), test.rates


def parts(text, label_range=UNIT, label=LABEL, **columns):
    return independent_parts(*form_of(text, label, **columns), label_range)


def ends(part):
    """Minimum and maximum of the measurement that is bounded."""
    return pytest.approx(tuple(part.coefficient * end for end in part.range))


def test_one_rate_keeps_decisions_of_0_and_1_and_its_coefficient():
    (part,) = parts("3 * fnr[g=b] <= 1")
    assert (part.coefficient, part.rows.tolist()) == (3, [4, 7, 8])
    assert (part.slope == -1).all()
    assert (part.offset == 1).all()
    found = part.measured({"decision": np.array([0, 0, 0, 0, 1, 0, 0, 0, 1, 0.0])})
    assert found.values.tolist() == [0, 1, 0]


def test_each_of_two_disjoint_groups_is_a_part():
    men, women = parts("positive_rate[g=a] - positive_rate[g=b] <= 0.1")
    assert (men.coefficient, women.coefficient) == (1, -1)
    assert men.rows.tolist() == [0, 1, 2, 3]
    assert women.rows.tolist() == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("text", "decided"),
    [
        ("share[g=a] >= 0.4", np.where(np.array(GROUP) == "a", -0.6, 0.4)),
        ("precision >= 0.7", np.where(LABEL == 1, -0.3, 0.7)),
    ],
)
def test_a_cleared_ratio_is_one_sample_over_the_rows_of_its_denominator(text, decided):
    (part,) = parts(text)
    assert part.rows.tolist() == list(range(10))
    assert ends(part) == (min(decided), max(decided))
    found = part.coefficient * part.values({"decision": np.ones(10)})
    np.testing.assert_allclose(found, decided)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wins - losses >= 0", (-1, 1)),
        ("0.5 * true_positives + 0.5 * false_positives <= 0.4", (0, 0.5)),  # a row is not both
        ("0.25 * churn + 0.5 * agreement <= 0.4", (0.25, 0.5)),
        # no given row is in both slices, but other rows may be
        ("joint_rate[g=a] - 2 * joint_rate[h=c] <= 0.4 * positive_rate", (-2.4, 0.6)),
    ],
)
def test_ranges_cover_all_rows_that_could_occur(text, expected):
    (part,) = parts(text, h=words("ddddccccdd"))
    assert ends(part) == expected


SPLIT = {"h": words("yyyynnnnnn")}  # the same rows as those of g=a
UNLABELLED = np.where(np.arange(10) < 1, np.nan, LABEL)


@pytest.mark.parametrize(
    ("text", "label", "count"),
    [
        ("tpr[g=a] - tpr <= 0.1", LABEL, None),
        ("error - positive_rate[g=a] <= 0.1", LABEL, None),
        ("mean_error - positive_rate <= 0.1", LABEL, None),  # another measurement of the same rows
        # rows in one slice only may occur, and so may negative rows
        ("positive_rate[g=a] + negative_rate[h=y] <= 0.5", np.ones(10), None),
        ("positive_rate - tpr <= 0.1", np.ones(10), None),
        # the given rows show whether rows have labels and deployed decisions
        ("positive_rate[g=a] - error[g=a] + churn[g=a] <= 0.5", LABEL, 1),
        ("positive_rate[g=a] - error[g=a] <= 0.5", UNLABELLED, None),
    ],
)
def test_groups_that_may_overlap_have_no_joint_bound(text, label, count):
    found = disjoint_groups(*form_of(text, label, **SPLIT))
    assert (found and len(found)) == count


@pytest.mark.parametrize(
    ("rate", "label_range", "expected"),
    [
        ("mean_error", (0.0, 4.0), (-4.0, 4.0)),
        ("mse", (0.0, 4.0), (0.0, 16.0)),
        ("base_rate", (0.0, 4.0), (0.0, 1.0)),
        ("mean_error", UNKNOWN, UNKNOWN),
        ("mse", UNKNOWN, (0, math.inf)),
    ],
)
def test_ranges_of_estimates_follow_from_the_range_of_labels(rate, label_range, expected):
    (part,) = parts(f"{rate} <= 0.5", label_range)
    assert part.range == expected


@pytest.mark.parametrize(("error", "high"), [(4.5, math.inf), (4 + 1e-12, 4)])
def test_an_error_outside_the_range_makes_the_range_infinite(error, high):
    (part,) = parts("mean_error <= 0.5", (0.0, 4.0))
    errors = np.zeros(10)
    errors[3] = error
    assert part.measured({"error": errors}).range == (-4, high)


def test_moments_of_rows_and_of_no_rows():
    (part,) = parts("positive_rate[g=b] <= 0.5")
    decisions = np.array([9, 9, 9, 9, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    found = part.measured({"decision": np.clip(decisions, 0, 1)}).moments()
    deviation = np.std(decisions[4:], ddof=1)
    assert (found.rows, found.mean, found.deviation) == (6, *map(pytest.approx, (0.35, deviation)))
    (part,) = parts("tpr[g=a] <= 0.5", label=np.zeros(10))
    found = part.measured({"decision": np.ones(10)}).moments()
    assert found.rows == 0
    assert math.isnan(found.mean)
    assert math.isnan(found.deviation)


def test_unequal_weights_are_refused():
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
