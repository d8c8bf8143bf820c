"""The safety test of whole goals: numbers of the Seldonian Toolkit, and failure rates."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from oracles.certificates import groups, rules, words
from oracles.goals import evaluate
from scipy import stats

from ratecli.certify.certificate import certify
from ratecli.certify.trees import SafetyTestSpec
from ratecli.rates import expression as ex

ALL = (-math.inf, math.inf)

# fmt: off
P = np.array([.12, .75, .44, .70, .93, .53, .50, .11, .29, .50, .66, .77,
              .39, .11, .31, .87, .24, .46, .89, .07, .59, .91, .26, .54])
Y = np.array([0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 0, 1, 1, 0, 0.])
# fmt: on
SMALL = groups(M=12, F=12)
M, F = "positive_rate[g=M]", "positive_rate[g=F]"
GAP, RATIO = f"abs({M} - {F})", f"min({M} / {F}, {F} / {M}) >= 0.8"
TUTORIAL = {"method": "leaves", "bound": "student_t"}


def one(text, columns, measurements, label=None, **options):
    (found,) = rules(text, columns, label).certify(measurements, **options)
    return found


def node_of(found, text):
    """The node of a certificate's tree with this text."""
    waiting = [found.tree]
    while waiting:
        node = waiting.pop()
        if node["text"].replace(" = ", "=") == text:
            return node
        waiting += node["children"]
    raise AssertionError(text)


SOFT = ((0.3330224956, 0.7169775044), (0.2479408093, 0.6920591907), 0.4190366951, 0.4541860689)
HARD = ((0.2981005217, 1.0), (0.0312109659, 0.8021223675), 0.9187890341, 0.7687890341)


@pytest.mark.parametrize(
    ("decisions", "kind", "expect"), [(P, "randomized", SOFT), (P >= 0.5, "deterministic", HARD)]
)
def test_numbers_of_the_tutorial(decisions, kind, expect):
    man, woman, gap, ratio = expect
    found = one(f"{GAP} - 0.05 <= 0", SMALL, decisions, Y, **TUTORIAL)
    assert node_of(found, M)["interval"] == pytest.approx(man, rel=1e-8)
    assert node_of(found, F)["interval"] == pytest.approx(woman, rel=1e-8)
    assert node_of(found, M)["delta"] == [0.0125, 0.0125]
    assert found.upper == pytest.approx(gap, rel=1e-8)
    assert (found.passed, found.classifier, found.exact) == (False, kind, False)
    assert one(RATIO, SMALL, decisions, Y, **TUTORIAL).upper == pytest.approx(ratio, rel=1e-8)


def with_moments(mean, deviation, size):
    """An even number of values with this mean and deviation."""
    away = deviation * math.sqrt((size - 1) / size)
    return np.tile([mean - away, mean + away], size // 2)


def test_two_samples_by_intervals_and_by_their_difference():
    columns = groups(M=300, F=250)
    decisions = np.r_[with_moments(0.45, 0.2, 300), with_moments(0.41, 0.18, 250)]
    found = one(f"{GAP} <= 0", columns, decisions, **TUTORIAL)
    assert node_of(found, M)["interval"] == pytest.approx([0.4239875191, 0.4760124809], rel=1e-8)
    assert node_of(found, F)["interval"] == pytest.approx([0.3843281953, 0.4356718047], rel=1e-8)
    assert found.upper == pytest.approx(0.0916842856, rel=1e-8)
    welch = one(f"{GAP} <= 0", columns, decisions, method="forms", bound="student_t")
    assert welch.upper == pytest.approx(0.0718520153, rel=1e-8)
    assert node_of(welch, f"{M} - {F}")["rows"] == [300, 250]
    pieces = one(f"{GAP} <= 0", columns, decisions, bound="student_t")
    width = stats.t.ppf(0.95, 544.73956) * 0.0162152192
    assert pieces.upper == pytest.approx(0.04 + width, rel=1e-8)
    least = one(RATIO, columns, decisions, **TUTORIAL)
    assert least.upper == pytest.approx(-0.0073910049, abs=1e-9)
    assert (least.passed, least.explanation) == (True, "")


@pytest.mark.parametrize("bound", ["auto", "student_t", "hoeffding"])
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_measurements_that_are_not_finite_never_pass(bound, broken):
    errors = np.full(50, -5.0)
    errors[7] = broken
    found = one("mean_error <= 0", groups(a=50), {"error": errors}, np.zeros(50),
                label_range=(0.0, 6.0), bound=bound)  # fmt: skip
    assert (found.passed, found.upper) == (False, math.inf)
    assert "50 safety rows, 49 of them with a finite number" in found.explanation
    text = json.dumps(found.record(), allow_nan=False)
    assert json.loads(text)["upper"] == "inf"


@pytest.mark.parametrize("bound", ["auto", "student_t", "hoeffding", "clopper_pearson"])
@pytest.mark.parametrize("size", [0, 1])
def test_groups_of_too_few_rows_never_pass(bound, size):
    label = np.r_[np.ones(size), np.zeros(30 - size)]
    found = one("tpr <= 1", groups(a=30), np.zeros(30), label, bound=bound)
    assert (found.passed, found.upper) == (False, math.inf)
    assert f"measured on {size} safety rows" in found.explanation


@pytest.mark.parametrize("text", ["precision >= 0.7", "min_ratio(positive_rate, by=g) >= 0.8"])
@pytest.mark.parametrize("bound", ["student_t", "bootstrap", "auto"])
def test_a_ratio_of_0_and_0_does_not_pass(text, bound):
    found = one(text, SMALL, np.zeros(24), Y, bound=bound)
    assert not found.passed
    assert "not defined" in found.explanation


@pytest.mark.parametrize("text", ["fpr / tpr <= 0.5", "tpr / fpr >= 2", "tpr <= 1"])
def test_infinite_and_zero_ratios_and_an_upper_end_of_exactly_0_pass(text):
    assert one(text, SMALL, Y, Y, bound="student_t").passed


def test_five_rows_without_an_event_certify_little():
    """The bound of Student's t has a width of 0 there."""
    found = one("fpr <= 0.01", groups(a=5), np.zeros(5), np.zeros(5))
    assert (found.bound, found.exact, found.passed) == ("clopper_pearson", True, False)
    assert found.upper == pytest.approx(1 - 0.05 ** (1 / 5) - 0.01, rel=1e-9)


def test_the_order_of_rows_does_not_matter():
    rng = np.random.default_rng(3)
    label, decisions = (rng.random((2, 60)) < 0.5).astype(float)
    order = np.argsort(label)
    texts = {"gap": f"{GAP} <= 0.3", "ratio": "precision >= 0.2"}
    column = words("MF" * 30)
    for bound in ("clopper_pearson", "student_t"):
        uppers = [
            found.upper
            for rows in (np.arange(60), order)
            for found in rules(texts, {"g": column[rows]}, label[rows]).certify(
                decisions[rows], bound=bound
            )
        ]
        assert uppers[:2] == pytest.approx(uppers[2:])


def test_each_constraint_has_its_own_delta():
    test = rules({"a": "tpr >= 0.5", "b": "fpr <= 0.5"}, groups(a=40), np.tile([0.0, 1], 20))
    spec = SafetyTestSpec({"a": 0.1, "b": 0.01}, 40)
    rows = test.rows(np.tile([0.0, 1.0], 20))
    first, second = certify(test.goals, spec, rows, np.random.default_rng(0))
    assert (first.constraint, first.delta) == ("a", 0.1)
    assert first.upper == pytest.approx(0.5 - 0.1**0.05)
    assert (second.constraint, second.delta) == ("b", 0.01)
    assert second.upper == pytest.approx(1 - 0.01**0.05 - 0.5)


@pytest.mark.parametrize(("sign", "bound"), [("+", "student_t"), ("-", "betting")])
def test_an_approximate_bound_makes_the_certificate_approximate(sign, bound):
    """One of two quantities is a squared error, of which only the lower end is known."""
    measured = {"decision": np.tile([0.0, 1.0], 20), "squared_error": np.linspace(0, 1, 40)}
    label = np.tile([0.0, 1.0], 20)
    found = one(f"tpr {sign} 0.1 * mse <= 1", groups(a=40), measured, label, label_range=ALL)
    assert found.bound == f"clopper_pearson, {bound}"
    assert (found.exact, found.classifier) == (bound == "betting", "deterministic")


PLAIN = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: a**b,
    "abs": abs,
    "max": max,
}
RATE_M, RATE_F = "positive_rate[g = M]", "positive_rate[g = F]"


def outline(node):
    """The texts of a tree, after a check that its intervals follow from those below them."""
    below = node["children"]
    if not below:
        return node["text"]
    if node["text"] not in PLAIN:
        return f"{node['text']} of {' and '.join(map(outline, below))}"
    operation = PLAIN[node["text"]]
    ends = [operation(*point) for point in itertools.product(*(each["interval"] for each in below))]
    if node["text"] == "abs":
        ends.append(0)  # between the ends
    assert node["interval"] == pytest.approx([min(ends), max(ends)])
    return f"{node['text']}({', '.join(map(outline, below))})"


@pytest.mark.parametrize(
    ("text", "measurements", "options", "expected"),
    [
        (f"{GAP} - 0.05 <= 0", P, TUTORIAL, f"+(abs({RATE_M} - {RATE_F} of {RATE_M} and {RATE_F}), -0.05)"),
        (f"{GAP} <= 0.05", P, {},
         (f"max({RATE_M} - {RATE_F} - 0.05 of {RATE_M} - {RATE_F}, "
          f"-{RATE_M} + {RATE_F} - 0.05 of {RATE_M} - {RATE_F})")),
        ("2 * mse - 0.5 <= 1", {"squared_error": np.full(24, 0.3)}, {"label_range": ALL},
         "2 * mse - 1.5 of mse"),
        ("0.3 - positive_rate <= 0", np.ones(24), {}, "-positive_rate + 0.3 of positive_rate"),
        (f"{M} ** 3 / {F} <= 2", np.ones(24), {"method": "leaves"},
         f"+(/(**({RATE_M}, 3), {RATE_F}), -2)"),
    ],
)  # fmt: skip
def test_trees_of_certificates(text, measurements, options, expected):
    found = one(text, SMALL, measurements, Y, **options)
    assert outline(found.tree) == expected
    assert found.tree["interval"][1] == found.upper


def test_the_record_of_a_quantity_and_of_one_bounded_on_one_side():
    assert node_of(one(f"{GAP} - 0.05 <= 0", SMALL, P, Y, **TUTORIAL), F) == {
        "text": RATE_F,
        "interval": pytest.approx([0.2479408093, 0.6920591907]),
        "children": [],
        "estimate": pytest.approx(0.47),
        "rows": [12],
        "delta": [0.0125, 0.0125],
        "bound": "student_t",
    }
    quantity = node_of(one(f"0.05 >= {M} - {F}", SMALL, P, Y), f"{M} - {F}")
    assert (quantity["delta"], quantity["interval"][0]) == ([None, 0.05], -1)


@pytest.mark.parametrize(
    ("text", "decisions", "bound", "fragment"),
    [
        ("positive_rate <= 0.3", np.ones(24), "auto",
         ("'goal': the upper bound on the violation is 0.7 > 0. On the safety rows, the constraint's "
          "value is 0.7: more rows would not help this candidate")),
        ("positive_rate <= 0.3", np.full(24, 0.3 - 1e-7), "hoeffding", "more than 1,000,000,000"),
        (f"{M} / {F} <= 1.2", np.zeros(24), "auto", "not defined"),
    ],
)  # fmt: skip
def test_explanation_where_no_number_of_rows_is_enough(text, decisions, bound, fragment):
    found = one(text, SMALL, decisions, bound=bound, method="leaves")
    assert fragment in found.explanation
    assert (found.passed, math.isnan(found.estimate)) == (False, "defined" in fragment)


def rows_needed(found):
    return int(found.explanation.split("about ")[1].split()[0].replace(",", ""))


def test_explanation_of_how_many_rows_it_would_take():
    """The failed bound would pass with this number of rows and the same rates."""
    found = one("positive_rate <= 0.3", groups(a=100), np.r_[np.ones(25), np.zeros(75)])
    assert found.upper > 0 > found.estimate
    assert f"upper bound on the violation is {found.upper:.4g} > 0" in found.explanation
    assert "On the safety rows, the constraint's value is -0.05" in found.explanation
    quarter = rows_needed(found) // 4
    for rows, passes in ((4 * quarter + 4, True), (4 * quarter - 8, False)):
        many = (np.arange(rows) < rows // 4).astype(float)
        assert one("positive_rate <= 0.3", groups(a=rows), many).passed == passes


@pytest.mark.parametrize("method", ["leaves", "forms", "pieces"])
@pytest.mark.parametrize("bound", ["auto", "student_t", "hoeffding"])
def test_every_bound_and_method_tells_how_many_rows_it_would_take(method, bound):
    decisions = np.random.default_rng(0).random(400)
    found = one(f"{GAP} <= 0.06", {"g": words("MF" * 200)}, decisions, bound=bound, method=method)
    assert not found.passed
    assert 400 < rows_needed(found) < 10**6


A, B = "positive_rate[g=a]", "positive_rate[g=b]"
DELTA = 0.1


def truth(goal, rates):
    """The value of a goal if groups have these rates."""
    leaves = ex.leaves(goal.expression)
    known = {leaf: rates[str(leaf.where).removeprefix("g = ")] for leaf in leaves}
    return evaluate(goal.expression, known)


def upper_of(test, decisions, rng, **options):
    """The upper end of a certificate that must be exact."""
    (found,) = test.certify(decisions, DELTA, rng=rng, **options)
    assert (found.exact, found.classifier) == (True, "deterministic")
    return found.upper


def sampled_uppers(test, chance, count, **options):
    """Upper ends (count,) for decisions sampled with these probabilities."""
    rng = np.random.default_rng(0)
    draws = (rng.random((count, len(chance))) < chance).astype(float)
    return np.array([upper_of(test, decisions, rng, **options) for decisions in draws])


def consistent(failures, draws):
    """Whether so many failures have a probability above 1/1000 at a failure rate of DELTA."""
    return stats.binom.sf(failures - 1, draws, DELTA) > 1e-3


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
    first, second = 4, 6
    test, rng = rules(text, groups(a=first, b=second)), np.random.default_rng(0)
    uppers = np.empty((first + 1, second + 1))
    for i, j in itertools.product(range(first + 1), range(second + 1)):
        decisions = np.concatenate([np.arange(first) < i, np.arange(second) < j]).astype(float)
        uppers[i, j] = upper_of(test, decisions, rng, method=method, bound=bound)
    missed, rates = [], np.linspace(0.03, 0.97, 21)
    chances = [stats.binom.pmf(np.arange(n + 1), n, rates[:, None]) for n in (first, second)]
    for (low, p), (high, q) in itertools.product(
        *(zip(rates, each, strict=True) for each in chances)
    ):
        true = truth(test.goals[0], {"a": low, "b": high})
        missed.append(float(np.outer(p, q)[uppers < true].sum()))
    assert 0.01 * DELTA < max(missed) <= DELTA


@pytest.mark.parametrize("draws", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_pieces_fail_at_most_delta_at_the_boundary_and_pass_more_often_inside(draws):
    """Each side of the difference has the whole delta: only one of them can be violated.

    Of 40 draws, 12 failures are too many.
    """
    test = rules(f"max({A} - {B}, {B} - {A}) <= 0.3", groups(a=100, b=100))
    boundary, within = {"a": 0.8, "b": 0.5}, {"a": 0.5, "b": 0.5}
    assert truth(test.goals[0], boundary) == pytest.approx(0)
    passed = {}
    for method in ("leaves", "pieces"):
        at_boundary, inside = (
            sampled_uppers(
                test, np.repeat([*rates.values()], 100), count, method=method, bound="hoeffding"
            )
            for rates, count in ((boundary, draws), (within, 20))
        )
        assert consistent(int((at_boundary <= 0).sum()), draws)
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
    assert consistent(passed, 20)
