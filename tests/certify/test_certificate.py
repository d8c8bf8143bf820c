"""The safety test of whole goals: numbers of the toolkit, and its defects as facts that do not hold."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from oracles.certificates import rules, words
from scipy import stats

from ratecli.certify.certificate import certify
from ratecli.certify.safety_test import SafetyTestSpec

UNIT = (0.0, 1.0)
ALL = (-math.inf, math.inf)

# fmt: off
P = np.array([.12, .75, .44, .70, .93, .53, .50, .11, .29, .50, .66, .77,
              .39, .11, .31, .87, .24, .46, .89, .07, .59, .91, .26, .54])
Y = np.array([0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 0, 1, 1, 0, 0.])
# fmt: on
SMALL = {"g": words("M" * 12 + "F" * 12)}
M, F = "positive_rate[g=M]", "positive_rate[g=F]"
TUTORIAL = {"method": "leaves", "bound": "student_t"}


def certified(test, measurements, delta=0.05, label_range=UNIT, candidate=None, **options):
    if not isinstance(measurements, dict):
        measurements = {"decision": np.asarray(measurements, dtype=float)}
    promise = test.promise(delta, **options)
    rng = np.random.default_rng(0)
    return certify(test.goals, promise, test.rates, measurements, label_range, rng, candidate)


def one(text, columns, decisions, label=None, **options):
    (found,) = certified(rules(text, columns, label), decisions, **options)
    return found


def groups(**sizes):
    """A column of groups, so many rows each."""
    return {"g": words("".join(name * size for name, size in sizes.items()))}


def nodes(node):
    yield node
    for child in node["children"]:
        yield from nodes(child)


def node_of(found, text):
    return next(node for node in nodes(found.tree) if node["text"].replace(" = ", "=") == text)


SOFT = ((0.3330224956, 0.7169775044), (0.2479408093, 0.6920591907), 0.4190366951, 0.4541860689)
HARD = ((0.2981005217, 1.0), (0.0312109659, 0.8021223675), 0.9187890341, 0.7687890341)


@pytest.mark.parametrize(
    ("decisions", "kind", "expect"),
    [(P, "randomized", SOFT), (P >= 0.5, "deterministic", HARD)],
)
def test_the_whole_small_problem(decisions, kind, expect):
    man, woman, gap, ratio = expect
    found = one(f"abs({M} - {F}) - 0.05 <= 0", SMALL, decisions, Y, **TUTORIAL)
    assert node_of(found, M)["interval"] == pytest.approx(man, rel=1e-8)
    assert node_of(found, F)["interval"] == pytest.approx(woman, rel=1e-8)
    assert node_of(found, M)["delta"] == [0.0125, 0.0125]
    assert found.upper == pytest.approx(gap, rel=1e-8)
    assert not found.passed
    assert found.classifier == kind
    assert not found.exact
    least = one(f"min({M} / {F}, {F} / {M}) >= 0.8", SMALL, decisions, Y, **TUTORIAL)
    assert least.upper == pytest.approx(ratio, rel=1e-8)


def with_moments(mean, deviation, size):
    """As many numbers, of an even count, with that mean and that deviation."""
    away = deviation * math.sqrt((size - 1) / size)
    return np.tile([mean - away, mean + away], size // 2)


def test_two_samples_by_intervals_and_by_their_difference():
    columns = groups(M=300, F=250)
    decisions = np.r_[with_moments(0.45, 0.2, 300), with_moments(0.41, 0.18, 250)]
    text = f"abs({M} - {F}) <= 0"
    found = one(text, columns, decisions, **TUTORIAL)
    assert node_of(found, M)["interval"] == pytest.approx([0.4239875191, 0.4760124809], rel=1e-8)
    assert node_of(found, F)["interval"] == pytest.approx([0.3843281953, 0.4356718047], rel=1e-8)
    assert found.upper == pytest.approx(0.0916842856, rel=1e-8)
    welch = one(text, columns, decisions, method="forms", bound="student_t")
    assert welch.upper == pytest.approx(0.0718520153, rel=1e-8)
    assert node_of(welch, f"{M} - {F}")["rows"] == [300, 250]
    pieces = one(text, columns, decisions, bound="student_t")
    assert pieces.upper == pytest.approx(
        0.04 + stats.t.ppf(0.95, 544.73956) * 0.0162152192, rel=1e-8
    )
    least = one(f"min({M} / {F}, {F} / {M}) >= 0.8", columns, decisions, **TUTORIAL)
    assert least.upper == pytest.approx(-0.0073910049, abs=1e-9)
    assert least.passed
    assert least.explanation == ""


@pytest.mark.parametrize("bound", ["auto", "student_t", "hoeffding"])
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_what_is_not_a_finite_number_never_passes(bound, broken):
    errors = np.full(50, -5.0)
    errors[7] = broken
    test = rules("mean_error <= 0", groups(a=50), np.zeros(50))
    (found,) = certified(test, {"error": errors}, label_range=(0.0, 6.0), bound=bound)
    assert not found.passed
    assert found.upper == math.inf
    assert "1 are not finite" in found.explanation
    text = json.dumps(found.record(), allow_nan=False)
    assert json.loads(text)["upper"] == "inf"


@pytest.mark.parametrize("bound", ["auto", "student_t", "hoeffding", "clopper_pearson"])
@pytest.mark.parametrize("size", [0, 1])
def test_too_few_rows_never_pass_not_even_what_cannot_fail(bound, size):
    found = one("tpr <= 1", groups(a=30), np.zeros(30), np.r_[np.ones(size), np.zeros(30 - size)],
                bound=bound)  # fmt: skip
    assert not found.passed
    assert found.upper == math.inf
    assert f"{size} safety row" in found.explanation


@pytest.mark.parametrize("text", ["precision >= 0.7", "min_ratio(positive_rate, by=g) >= 0.8"])
@pytest.mark.parametrize("bound", ["student_t", "bootstrap", "auto"])
def test_a_ratio_of_0_and_0_does_not_pass_though_its_cleared_form_is_0(text, bound):
    found = one(text, SMALL, np.zeros(24), Y, bound=bound)
    assert not found.passed
    assert "not defined" in found.explanation
    passing = one("fpr / tpr <= 0.5", SMALL, Y, Y, bound="student_t")
    assert passing.passed
    assert one("tpr / fpr >= 2", SMALL, Y, Y, bound="student_t").passed  # infinite, and well above


def test_an_end_of_exactly_0_passes():
    found = one("positive_rate <= 1", groups(a=30), np.ones(30))
    assert found.upper == 0
    assert found.passed


def test_no_event_among_few_rows_certifies_little():
    """Student's t has no width there: 5 negatives would show a false positive rate of 0."""
    test = rules("fpr <= 0.01", groups(a=5), np.zeros(5))
    (found,) = certified(test, np.zeros(5))
    assert (found.bound, found.exact) == ("clopper_pearson", True)
    assert found.upper == pytest.approx(1 - 0.05 ** (1 / 5) - 0.01, rel=1e-9)
    assert not found.passed


def test_order_of_rows_does_not_matter():
    rng = np.random.default_rng(3)
    label, decisions = (rng.random((2, 60)) < 0.5).astype(float)
    order = np.argsort(label)
    texts = {"gap": f"abs({M} - {F}) <= 0.3", "ratio": "precision >= 0.2"}
    column = words("MF" * 30)
    for bound in ("clopper_pearson", "student_t"):
        here = certified(rules(texts, {"g": column}, label), decisions, bound=bound)
        there = certified(
            rules(texts, {"g": column[order]}, label[order]), decisions[order], bound=bound
        )
        assert [found.upper for found in here] == pytest.approx([found.upper for found in there])


def test_each_constraint_has_its_own_delta():
    test = rules({"a": "tpr >= 0.5", "b": "fpr <= 0.5"}, groups(a=40), np.tile([0.0, 1], 20))
    promise = SafetyTestSpec({"a": 0.1, "b": 0.01}, 40)
    measured = {"decision": np.tile([0.0, 1.0], 20)}
    first, second = certify(
        test.goals, promise, test.rates, measured, UNIT, np.random.default_rng(0)
    )
    assert (first.constraint, first.delta, first.upper) == (
        "a",
        0.1,
        pytest.approx(0.5 - 0.1**0.05),
    )
    assert (second.constraint, second.delta) == ("b", 0.01)
    assert second.upper == pytest.approx(1 - 0.01**0.05 - 0.5)


def test_an_approximate_bound_makes_the_certificate_approximate():
    """Of two quantities one is a squared error without a known range."""
    test = rules("tpr - 0.1 * mse <= 1", groups(a=40), np.tile([0.0, 1], 20))
    measured = {"decision": np.tile([0.0, 1.0], 20), "squared_error": np.linspace(0, 1, 40)}
    (found,) = certified(test, measured, label_range=ALL)
    assert found.bound == "clopper_pearson, student_t"
    assert not found.exact
    assert found.classifier == "deterministic"


class TestTree:
    def test_of_the_tutorial(self):
        found = one(f"abs({M} - {F}) - 0.05 <= 0", SMALL, P, Y, **TUTORIAL)
        root = found.tree
        assert root["text"] == "-"
        size, limit = root["children"]
        assert (size["text"], limit["text"]) == ("abs", "0.05")
        (difference,) = size["children"]
        assert difference["text"] == "-"
        man, woman = difference["children"]
        assert woman == {
            "text": "positive_rate[g = F]",
            "interval": pytest.approx([0.2479408093, 0.6920591907]),
            "children": [],
            "estimate": pytest.approx(0.47),
            "rows": [12],
            "delta": [0.0125, 0.0125],
            "bound": "student_t",
        }
        (a, b), (c, d) = man["interval"], woman["interval"]
        assert difference["interval"] == pytest.approx([a - d, b - c])
        assert size["interval"] == pytest.approx([0, b - c])
        assert root["interval"] == pytest.approx([-0.05, b - c - 0.05])
        assert root["interval"][1] == found.upper

    def test_of_pieces(self):
        found = one(f"abs({M} - {F}) <= 0.05", SMALL, P, Y)
        above, below = found.tree["children"]
        assert found.tree["text"] == "max"
        assert found.tree["interval"][1] == found.upper
        assert above["text"] == below["text"] == "-"
        (negated, _) = below["children"]
        (quantity,) = negated["children"]
        assert quantity["text"] == "positive_rate[g = M] - positive_rate[g = F]"
        assert quantity["delta"] == [0.05, None]
        assert quantity["interval"][1] == 1
        assert negated["interval"] == [-1, pytest.approx(-quantity["interval"][0])]

    def test_of_factors_and_sides_nobody_asked_for(self):
        found = one("2 * mse - 0.5 <= 1", groups(a=40), {"squared_error": np.full(40, 0.3)},
                    np.zeros(40), label_range=ALL)  # fmt: skip
        product, half = found.tree["children"]
        assert (found.tree["text"], product["text"], half["text"]) == ("-", "*", "1.5")
        assert [child["text"] for child in product["children"]] == ["2", "mse"]
        assert product["children"][1]["interval"] == [0, pytest.approx(0.3)]
        found = one("0.3 - positive_rate <= 0", groups(a=40), np.ones(40))
        assert [child["text"] for child in found.tree["children"]] == ["0.3", "positive_rate"]
        assert found.tree["interval"] == pytest.approx([0.3 - 1, 0.3 - 0.05 ** (1 / 40)])

    def test_of_powers_and_ratios(self):
        found = one(f"{M} ** 3 / {F} <= 2", groups(M=40, F=40), np.ones(80), method="leaves")
        ratio, _ = found.tree["children"]
        cube, woman = ratio["children"]
        assert (ratio["text"], cube["text"], woman["rows"]) == ("/", "**", [40])
        assert [child["text"] for child in cube["children"]] == ["positive_rate[g = M]", "3"]
        assert ratio["interval"][1] == pytest.approx(1 / woman["interval"][0])

    def test_of_many_pieces_shows_those_that_matter(self):
        rng = np.random.default_rng(0)
        columns = {"g": words("abcdef" * 50)}
        found = one("max_gap(positive_rate, by=g) <= 0.2", columns, rng.random(300) < 0.5)
        *shown, rest = found.tree["children"]
        assert len(shown) == 12
        assert rest["text"] == "18 others, all less"
        assert max(child["interval"][1] for child in shown) == found.upper
        assert rest["interval"][1] <= min(child["interval"][1] for child in shown)


class TestExplanation:
    def test_an_estimate_that_breaks_the_goal(self):
        found = one("positive_rate <= 0.3", groups(a=40), np.ones(40))
        assert found.explanation == (
            "'goal': the upper bound reached 0.7, it must be at most 0. Its estimate on the safety "
            "rows is 0.7 itself: no number of rows would be enough for this candidate"
        )

    def test_how_many_rows_it_would_take(self):
        """The count is where the bound that failed would pass, were rates as they were found."""
        columns, decisions = groups(a=100), np.r_[np.ones(25), np.zeros(75)]
        found = one("positive_rate <= 0.3", columns, decisions)
        assert found.upper > 0 > found.estimate
        needed = int(found.explanation.split("about ")[1].split()[0].replace(",", ""))
        assert f"upper bound reached {found.upper:.4g}, it" in found.explanation
        assert "Its estimate on the safety rows is -0.05" in found.explanation
        for rows, passes in ((needed // 4 * 4 + 4, True), (needed // 4 * 4 - 8, False)):
            many = np.zeros(rows)
            many[: rows // 4] = 1
            assert one("positive_rate <= 0.3", groups(a=rows), many).passed == passes

    def test_of_every_bound_and_method(self):
        rng = np.random.default_rng(0)
        decisions = rng.random(400)
        for method in ("leaves", "forms", "pieces"):
            for bound in ("auto", "student_t", "hoeffding"):
                found = one(f"abs({M} - {F}) <= 0.06", {"g": words("MF" * 200)}, decisions,
                            bound=bound, method=method)  # fmt: skip
                assert not found.passed
                needed = int(found.explanation.split("about ")[1].split()[0].replace(",", ""))
                assert 400 < needed < 10**6

    def test_too_many_rows_to_tell(self):
        rate = 0.3 - 1e-7
        decisions = np.full(10, rate)
        found = one("positive_rate <= 0.3", groups(a=10), decisions, bound="hoeffding")
        assert "more than 1,000,000,000" in found.explanation

    def test_a_value_that_is_not_defined(self):
        found = one(f"{M} / {F} <= 1.2", SMALL, np.zeros(24), method="leaves")
        assert not found.passed
        assert math.isnan(found.estimate)
        assert "not defined" in found.explanation


def test_irrelevant_constants_cost_nothing():
    for method in ("leaves", "forms", "pieces"):
        plain = one(f"{M} - {F} <= 0.1", SMALL, P, Y, method=method, bound="student_t")
        for text in (f"max({M} - {F}, -3) <= 0.1", f"{M} - {F} + 0 * tpr <= 0.1"):
            other = one(text, SMALL, P, Y, method=method, bound="student_t")
            assert other.upper == pytest.approx(plain.upper, rel=1e-12)


def test_the_same_stream_draws_the_same():
    test = rules(f"abs({M} - {F}) <= 0.1", SMALL, Y)
    first, second = (certified(test, P, bound="clopper_pearson") for _ in range(2))
    assert first == second
