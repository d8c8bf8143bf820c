"""Confidence bounds: vectors, edge cases, invariances, slopes and accuracy of predictions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from oracles.samples import UNKNOWN, decisions, rng, sample
from scipy import integrate, stats

from ratecli.certify.base import BoundedSample, SampleMoments
from ratecli.certify.betting import _one_sided_stakes
from ratecli.certify.bounds import BOUNDS, Bound, choose_bound

T = BOUNDS["student_t"]
EXACT = ["hoeffding", "clopper_pearson", "empirical_bernstein", "anderson", "betting"]
every_bound = pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
exact_bound = pytest.mark.parametrize("bound", [BOUNDS[name] for name in EXACT], ids=EXACT)


def both(bound: Bound, measured: BoundedSample, delta: float) -> tuple[float, float]:
    """The upper and the lower limit of a mean."""
    upper = bound.upper([replace(measured, coefficient=1.0)], delta, rng())
    return upper, -bound.upper([replace(measured, coefficient=-1.0)], delta, rng())


def constant(value: float, rows: int, ends: tuple[float, float] = (0, 1)) -> BoundedSample:
    return BoundedSample(np.full(rows, value), ends)


def unbounded(*values: float) -> BoundedSample:
    return BoundedSample(np.array(values, dtype=float), UNKNOWN)


SQUARES = np.square([0.5, -1.2, 0.3, 2.0, -0.7, 1.1, -0.4, 0.9, -1.6, 0.2]) - 2


@pytest.mark.parametrize(
    ("name", "measured", "delta", "upper", "lower"),
    [
        # the tutorial of the Seldonian Toolkit
        ("student_t", sample(1.76, 0.07, 30), 0.1, 1.7767603751, 1.7432396249),
        ("student_t", sample(1.76, 0.07, 30), 0.05, 1.7817151713, 1.7382848287),
        ("student_t", sample(1.76, 0.07, 30), 0.01, 1.7914651082, 1.7285348918),
        ("student_t", sample(-0.5, 1, 100), 0.05, -0.3339608844, -0.6660391156),
        ("student_t", sample(-0.1, 1, 100), 0.05, 0.0660391156, -0.2660391156),
        ("student_t", sample(0, 1, 2), 0.05, 4.4644965108, -4.4644965108),
        ("student_t", unbounded(1, 2, 3, 4, 5), 0.05, 4.5074433191, 1.4925566809),
        ("student_t", unbounded(*SQUARES), 0.05, -0.1497582384, -1.6402417616),
        ("hoeffding", constant(0.3, 100), 0.05, 0.4223873415, 0.1776126585),
        ("hoeffding", constant(0.3, 1000), 0.05, 0.3387022756, 0.2612977244),
        ("hoeffding", constant(0.02, 500), 0.01, 0.0878614042, 0),
        ("hoeffding", constant(0.5, 50), 0.1, 0.6517427129, 0.3482572871),
        ("hoeffding", constant(0.2, 200, (-3, 3)), 0.05, 0.7192455148, -0.3192455148),
        ("clopper_pearson", decisions(0, 10), 0.05, 0.2588655509, 0),
        ("clopper_pearson", decisions(0, 100), 0.05, 0.0295130496, 0),
        ("clopper_pearson", decisions(5, 100), 0.05, 0.1022533776, 0.0199055637),
        ("clopper_pearson", decisions(30, 100), 0.05, 0.3842206128, 0.2249232244),
        ("clopper_pearson", decisions(10, 10), 0.05, 1, 0.7411344491),
        ("clopper_pearson", decisions(1, 20), 0.1, 0.1809609634, 0.0052541741),
        ("empirical_bernstein", decisions(30, 100), 0.05, 0.5120424140, None),
        ("empirical_bernstein", decisions(10, 500), 0.05, 0.0542724219, None),
        ("empirical_bernstein", decisions(100, 5000), 0.05, 0.0271001669, None),
        # a quarter of the distribution is moved to the end: 0.25 + (0.2 + ... + 0.7) / 8
        ("anderson", BoundedSample(np.arange(8) / 10), math.exp(-1), 0.5875, 0.1875),
    ],
)
def test_limits_of_the_literature(name, measured, delta, upper, lower):
    limits = both(BOUNDS[name], measured, delta)
    assert limits[0] == pytest.approx(upper, abs=1e-10)
    assert lower is None or limits[1] == pytest.approx(lower, abs=1e-10)
    if name == "student_t":
        assert T.predicted([measured.moments()], delta).value == pytest.approx(upper, abs=1e-10)


def test_two_means_by_welch():
    groups = [
        replace(sample(0.45, 0.2, 300), coefficient=1.0),
        replace(sample(0.41, 0.18, 250), coefficient=-1.0),
    ]
    upper = T.upper(groups, 0.025, rng())
    assert upper == pytest.approx(0.0718520153, abs=1e-10)
    one, two = (part.values for part in groups)
    test = stats.ttest_ind(one, two, equal_var=False)
    assert test.df == pytest.approx(544.73956, abs=1e-5)
    assert test.confidence_interval(0.95).high == pytest.approx(upper, abs=1e-12)


SOFT = np.array([0.12, 0.75, 0.44, 0.70, 0.93, 0.53, 0.50, 0.11, 0.29, 0.50, 0.66, 0.77])


def test_bootstrap_agrees_with_scipy():
    groups = [rng(1).beta(2, 5, 60), rng(2).beta(2, 3, 40) ** 3]
    expected = stats.bootstrap(
        groups,
        lambda a, b, axis: a.mean(axis) - b.mean(axis),
        n_resamples=20_000,
        batch=1000,
        alternative="less",
        method="BCa",
        rng=rng(3),
    ).confidence_interval.high
    parts = [BoundedSample(groups[0]), BoundedSample(groups[1], coefficient=-1.0)]
    uppers = [BOUNDS["bootstrap"].upper(parts, 0.05, rng(seed)) for seed in range(20)]
    assert np.mean(uppers) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("delta", [0.3, 0.01])
def test_anderson_is_an_integral_of_the_distribution_function(delta):
    values, end, shift = rng(4).normal(size=37), 4.0, math.sqrt(math.log(1 / delta) / 74)

    def below(x: float) -> float:
        return max(float((values <= x).mean()) - shift, 0.0)

    steps = [values.min(), *np.sort(values), end]
    area = sum(integrate.quad(below, *pair)[0] for pair in itertools.pairwise(steps))
    upper = BOUNDS["anderson"].upper([BoundedSample(values, (-math.inf, end))], delta, rng())
    assert upper == pytest.approx(end - area, abs=1e-9)


def test_exact_bounds():
    assert {name for name, bound in BOUNDS.items() if bound.exact} == set(EXACT)
    assert all(bound.means and bound.name == name for name, bound in BOUNDS.items())


@every_bound
def test_coefficients_may_be_tiny_or_huge(bound):
    parts = [decisions(3, 9), decisions(2, 5, -0.8)]
    upper = bound.upper(parts, 0.05, rng())
    for unit in (2.0**-600, 2.0**600):
        scaled = [replace(part, coefficient=unit * part.coefficient) for part in parts]
        assert bound.upper(scaled, 0.05, rng()) == unit * upper


@pytest.mark.parametrize(
    ("rows", "rate", "missed"),
    [
        (20, 0.05, 0.359),
        (50, 0.02, 0.364),
        (100, 0.01, 0.366),
        (100, 0.05, 0.118),
        (200, 0.05, 0.124),
        (500, 0.01, 0.123),
        (1000, 0.01, 0.066),
        (100, 0.3, 0.048),
    ],
)
def test_failure_rates_on_rare_events_of_t_and_clopper_pearson(rows, rate, missed):
    def miss(bound: Bound) -> float:
        counts = np.arange(stats.binom.ppf(0.9, rows, rate), dtype=int)
        low = [bound.upper([decisions(k, rows)], 0.05, rng()) < rate for k in counts]
        return float(stats.binom.pmf(counts, rows, rate) @ low)

    assert miss(T) == pytest.approx(missed, abs=6e-4)
    assert miss(BOUNDS["clopper_pearson"]) <= 0.0485


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([decisions(3, 9), decisions(2, 5, -0.8)], "clopper_pearson"),
        ([decisions(1, 90), BoundedSample(np.full(9, 0.5))], "betting"),
        (
            [decisions(45, 90), BoundedSample(np.array([0.0, 1.0, 0.5, 1.0, 0.0]))],
            "clopper_pearson",
        ),
        ([BoundedSample(SOFT), BoundedSample(SOFT, (0.0, math.inf))], "student_t"),
        ([BoundedSample(np.array([-0.3, 0.7]), (-0.3, 0.7))], "clopper_pearson"),
        ([decisions(3, 9), BoundedSample(SOFT, (0.0, math.inf), -1.0)], "betting"),
        ([BoundedSample(SOFT, (-math.inf, 1.0))], "betting"),
        ([BoundedSample(SOFT, (-math.inf, 1.0), -1.0)], "student_t"),
        ([BoundedSample(SOFT, UNKNOWN, -1.0)], "student_t"),
    ],
)
def test_auto_chooses_by_range_and_values(parts, name):
    assert choose_bound("auto", parts) is BOUNDS[name]
    assert choose_bound("hoeffding", parts).name == "hoeffding"
    opposite = [replace(part, coefficient=-part.coefficient) for part in parts]
    assert choose_bound("auto", opposite, {-1}) is BOUNDS[name]
    if name == "betting" and len(parts) == 1:  # one of both sides has no exact bound
        assert choose_bound("auto", parts, {1, -1}) is T


@every_bound
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("coefficient", [1.0, -1.0, 0.0])
def test_measurements_that_are_not_finite_give_infinity(bound, broken, coefficient):
    values = np.array([0.0] * 50 + [broken])
    for ends in ((0.0, 1.0), UNKNOWN):
        parts = [decisions(3, 9, -5.0), BoundedSample(values, ends, coefficient)]
        assert bound.upper(parts, 0.05, rng()) == math.inf
    assert bound.predicted([SampleMoments(1.0, broken, 1.0, 9)], 0.05).value == math.inf
    assert bound.predicted([SampleMoments(1.0, 0.5, math.nan, 9)], 0.05).value == math.inf


def test_moments_of_infinities_of_both_signs_are_undefined():
    found = BoundedSample(np.array([math.inf, -math.inf, 0.0])).moments()
    assert np.isnan([found.mean, found.deviation]).all()


@every_bound
def test_too_few_rows_give_the_end_of_the_range(bound):
    for rows in range(bound.least_rows):
        assert both(bound, decisions(0, rows), 0.05) == (1.0, 0.0)
        assert both(bound, BoundedSample(np.zeros(rows), UNKNOWN), 0.05) == (math.inf, -math.inf)
        one, two = decisions(0, rows, -2.0), decisions(10, 40)
        alone = bound.upper([two], 0.05, rng())
        assert bound.upper([two, one], 0.05, rng()) == alone
        expected = bound.predicted(
            [SampleMoments(1.0, 0.5, 0.5, 100), SampleMoments(1.0, 0.5, 0.5, rows)], 0.1
        )
        assert expected.value > 1.5
        assert expected.by_mean[1] == expected.by_deviation[1] == 0


@every_bound
def test_infinite_ranges(bound):
    upper = bound.upper([BoundedSample(SOFT, UNKNOWN)], 0.05, rng())
    assert 0.5 < upper < 0.8 if bound.needs == "none" else math.isinf(upper)
    # a loss is at least 0, whatever it is
    loss = BoundedSample(np.tile(SOFT, 9), (0.0, math.inf), -1.0)
    negative = bound.upper([loss], 0.05, rng())
    assert negative == 0 if bound.needs == "both" else -0.8 < negative < -0.2
    assert bound.upper([replace(loss, coefficient=1.0)], 0.05, rng()) > 0.5


RETURNS = {
    "bandit": (rng(7).random(2000) < 0.1) * (rng(8).random(2000) < 0.3) / 0.1,
    "weights": rng(7).lognormal(-0.5, 1.0, 2000),
    "products": np.exp(rng(7).normal(-0.08, 0.4, (2000, 10)).sum(axis=1)),
    "Pareto": rng(7).pareto(1.5, 2000),
}
every_return = pytest.mark.parametrize("values", RETURNS.values(), ids=RETURNS)
ONE_SIDED = [bound for bound in BOUNDS.values() if bound.exact and bound.needs == "upper"]
one_sided = pytest.mark.parametrize("bound", ONE_SIDED, ids=lambda bound: bound.name)


@every_return
@pytest.mark.parametrize("rows", [100, 2000])
def test_betting_is_the_narrowest_lower_bound_of_weighted_returns(values, rows):
    part = BoundedSample(values[:rows], (0.0, math.inf), -1.0)
    limits = {bound.name: -bound.upper([part], 0.05, rng()) for bound in ONE_SIDED}
    assert 0 <= limits["empirical_bernstein"] < limits["betting"] < values[:rows].mean()
    assert 0 <= limits["anderson"] < limits["betting"]
    # knowing a high upper end would only make the bets smaller
    known = replace(part, range=(0.0, 1.2 * float(values.max())))
    assert -BOUNDS["betting"].upper([known], 0.05, rng()) < limits["betting"]


@one_sided
@every_return
def test_one_sided_limits_in_other_units(bound, values):
    """They depend on the distances from the known end, and increase with delta."""
    part = BoundedSample(values, (0.0, math.inf), -1.0)
    uppers = [bound.upper([part], delta, rng()) for delta in (0.3, 0.05, 1e-3)]
    assert uppers == sorted(uppers)
    assert -values.mean() < uppers[0] < uppers[2] <= 0
    other = BoundedSample(4 * values - 1, (-1.0, math.inf), -0.25)
    assert bound.upper([other], 0.05, rng()) == pytest.approx(uppers[1] + 0.25, rel=1e-6)
    mirrored = BoundedSample(-values, (-math.inf, 0.0))
    assert bound.upper([mirrored], 0.05, rng()) == uppers[1]


@pytest.mark.parametrize("name", ["betting", "anderson"])
def test_one_sided_samples_of_a_sum_divide_delta(name):
    parts = [
        BoundedSample(RETURNS["weights"], (0.0, math.inf), -1.0),
        BoundedSample(RETURNS["bandit"][:500], (0.0, math.inf), -0.3),
    ]
    stream, bound = rng(), BOUNDS[name]
    alone = sum(bound.upper([part], 0.025, stream) for part in parts)
    assert bound.upper(parts, 0.05, rng()) == pytest.approx(alone, rel=1e-9)


@one_sided
@pytest.mark.parametrize("rows", [1, 2, 3, 19, 200])
def test_one_sided_limits_of_equal_values(bound, rows):
    for value in (0.0, 3.0):
        part = BoundedSample(np.full(rows, value), (0.0, math.inf), -1.0)
        assert -value <= bound.upper([part], 0.05, rng()) <= 0
        expected = bound.predicted([replace(part.moments(), deviation=0.0)], 0.05).value
        assert -value <= expected <= 0


def test_one_sided_stakes_depend_on_earlier_rows():
    values = RETURNS["weights"][:50]
    changed = np.r_[values[:20], 1e6, values[21:]]
    stakes, others = (_one_sided_stakes(each, 0.05) for each in (values, changed))
    assert (stakes[:21] == others[:21]).all()
    assert (stakes[21:] > others[21:]).all()
    assert ((stakes > 0) & (stakes < 1)).all()


CASES = {
    "decisions": [decisions(12, 80), decisions(9, 50, -0.8)],
    "one": [decisions(12, 80, -2.0)],
    "soft": [
        BoundedSample(rng(5).beta(2, 5, 60)),
        BoundedSample(rng(6).beta(1, 9, 40), coefficient=-1.0),
    ],
    "three": [decisions(12, 80), decisions(9, 50, -0.8), decisions(3, 60, 0.1)],
}
every_case = pytest.mark.parametrize("parts", CASES.values(), ids=CASES)


def total(parts: list[BoundedSample]) -> float:
    return sum(part.coefficient * float(part.values.mean()) for part in parts)


@every_bound
@every_case
def test_a_smaller_delta_is_a_larger_bound(bound, parts):
    uppers = [bound.upper(parts, delta, rng()) for delta in (0.3, 0.1, 0.03, 0.01, 1e-3)]
    assert uppers == sorted(uppers)
    assert uppers[1] > total(parts)
    expected = [bound.predicted([p.moments() for p in parts], delta).value for delta in (0.1, 0.01)]
    assert expected == sorted(expected)


@every_bound
@every_case
def test_units_of_measurement_do_not_matter(bound, parts):
    upper = bound.upper(parts, 0.05, rng())
    threefold = [replace(part, coefficient=3 * part.coefficient) for part in parts]
    assert bound.upper(threefold, 0.05, rng()) == pytest.approx(3 * upper, abs=1e-8)
    other = [BoundedSample(4 * p.values - 1, (-1.0, 3.0), p.coefficient / 4) for p in parts]
    shift = sum(part.coefficient for part in other)
    assert bound.upper(other, 0.05, rng()) == pytest.approx(upper - shift, abs=1e-8)


@every_bound
@every_case
def test_constants_cost_nothing(bound, parts):
    constant = BoundedSample(np.full(7, 0.3), (0.3, 0.3), -2.0)
    nothing = BoundedSample(np.array([0.2, 0.9]), coefficient=0.0)
    upper = bound.upper(parts, 0.05, rng())
    assert bound.upper([constant, *parts, nothing], 0.05, rng()) == pytest.approx(upper - 0.6)
    expected = bound.predicted([p.moments() for p in parts], 0.05)
    more = [SampleMoments(-2.0, 0.3, 0.0, 7, (0.3, 0.3)), *(p.moments() for p in parts)]
    assert bound.predicted(more, 0.05).value == pytest.approx(expected.value - 0.6)


@every_bound
def test_limits_are_in_the_range_of_the_sum(bound):
    parts = [decisions(3, 3, 2.0), decisions(0, 3, -1.0)]
    assert bound.upper(parts, 0.01, rng()) <= 2.0
    assert bound.upper([], 0.05, rng()) == 0.0


@exact_bound
def test_a_joint_bound_of_two_groups_is_narrower_than_two_bounds(bound):
    """Except with empirical Bernstein and Anderson, which divide delta."""
    parts = [decisions(60, 400), decisions(80, 500, -0.9)]
    jointly = bound.upper(parts, 0.05, rng())
    divided = sum(bound.upper([part], 0.025, rng()) for part in parts)
    if bound.name in {"empirical_bernstein", "anderson"}:
        assert jointly == pytest.approx(divided, rel=1e-2)
    else:
        assert jointly - total(parts) < 0.75 * (divided - total(parts))


def test_widths_of_exact_bounds_on_rare_events():
    names = ["clopper_pearson", "betting", "empirical_bernstein", "hoeffding"]
    widths = [BOUNDS[name].upper([decisions(20, 1000)], 0.05, rng()) - 0.02 for name in names]
    assert widths == sorted(widths)
    assert widths[1] < 0.4 * widths[3]


def test_betting_on_constant_values():
    rows = 2000
    for value in (0.0, 0.2):
        still = [BoundedSample(np.full(rows, value))]
        width = BOUNDS["betting"].upper(still, 0.05, rng()) - value
        assert math.log(20) / rows < width < 1.3 * math.log(20) / rows


MOMENTS = {
    "one": [SampleMoments(1.0, 0.3, 0.2, 150)],
    "negative": [SampleMoments(-0.7, 0.12, 0.1, 900, (-1.0, 1.0))],
    "two": [SampleMoments(1.0, 0.3, 0.2, 150), SampleMoments(-0.8, 0.25, 0.31, 420)],
    "ranges": [SampleMoments(0.5, 2.0, 0.9, 300, (0.0, 4.0)), SampleMoments(2.0, 0.1, 0.05, 120)],
    "three": [
        SampleMoments(1.0, 0.3, 0.2, 1500),
        SampleMoments(-0.8, 0.25, 0.31, 4200),
        SampleMoments(0.3, 0.6, 0.4, 800),
    ],
    "one-sided": [SampleMoments(-0.7, 1.2, 2.0, 4000, (0.0, math.inf))],
    "one-sided, known": [SampleMoments(1.0, 20.0, 0.1, 70, (-math.inf, 21.0))],
    "one-sided, rare": [SampleMoments(-1.0, 0.1, 30.0, 70, (0.0, math.inf))],
    "one of two is one-sided": [
        SampleMoments(-1.0, 1.2, 2.0, 4000, (0.0, math.inf)),
        SampleMoments(0.5, 0.3, 0.4, 900),
    ],
}
STEP = 1e-5


@every_bound
@pytest.mark.parametrize("parts", MOMENTS.values(), ids=MOMENTS)
@pytest.mark.parametrize("delta", [0.05, 0.003])
def test_slopes_are_difference_quotients(bound, parts, delta):
    predicted = bound.predicted(parts, delta)
    for slopes, name in ((predicted.by_mean, "mean"), (predicted.by_deviation, "deviation")):
        assert slopes.shape == (len(parts),)
        for i, part in enumerate(parts):
            ends = []
            for sign in (1, -1):
                moved = replace(part, **{name: getattr(part, name) + sign * STEP})
                ends.append(bound.predicted([*parts[:i], moved, *parts[i + 1 :]], delta).value)
            assert slopes[i] == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-4, abs=1e-6)


@every_bound
def test_slopes_are_0_at_the_end_of_the_range(bound):
    predicted = bound.predicted([SampleMoments(1.0, 0.999, 0.02, 2)], 1e-4)
    assert predicted.value == 1.0
    assert predicted.by_mean.tolist() == predicted.by_deviation.tolist() == [0.0]


@pytest.mark.parametrize("name", ["student_t", "bootstrap"])
@pytest.mark.parametrize("coefficients", [[1.0], [1.0, -2.0]])
def test_slopes_at_deviations_of_0_are_one_sided(name, coefficients):
    parts = [SampleMoments(c, 0.4, 0.0, 50, UNKNOWN) for c in coefficients]
    predicted = BOUNDS[name].predicted(parts, 0.05)
    moved = BOUNDS[name].predicted([replace(parts[0], deviation=1e-3), *parts[1:]], 0.05)
    assert predicted.value == pytest.approx(0.4 * sum(coefficients))
    assert predicted.by_deviation[0] == pytest.approx((moved.value - predicted.value) / 1e-3)


NEAR = {"anderson": 0.2, "betting": 0.06, "bootstrap": 0.1, "clopper_pearson": 0.04}


def samples() -> dict[str, list[BoundedSample]]:
    one, two = rng(1).beta(2, 5, 1000), rng(2).beta(1, 9, 1000)
    return {
        "decisions": [decisions(50, 1000)],
        "two groups": [decisions(300, 1000), decisions(60, 200, -0.8)],
        "two of rare events": [decisions(50, 1000), decisions(50, 1000, -1.0)],
        "probabilities": [BoundedSample(one, coefficient=-1.0)],
        "two of probabilities": [BoundedSample(one), BoundedSample(two, coefficient=-1.0)],
    }


PREDICTED = {
    f"{bound.name}-{name}": (bound, parts)
    for bound in BOUNDS.values()
    for name, parts in samples().items()
    # where decisions are drawn, the bound varies by more than the prediction is off
    if bound.name != "clopper_pearson"
    or all(np.isin(part.values, part.range).all() for part in parts)
}


@pytest.mark.parametrize(("bound", "parts"), PREDICTED.values(), ids=PREDICTED)
def test_predictions_are_close_to_bounds(bound, parts):
    """Compared by width; random bounds are averaged over seeds."""
    value = sum(part.coefficient * float(part.values.mean()) for part in parts)
    repeats = 12 if bound.name in {"betting", "bootstrap"} else 1
    width = np.mean([bound.upper(parts, 0.05, rng(seed)) for seed in range(repeats)]) - value
    predicted = bound.predicted([part.moments() for part in parts], 0.05).value - value
    assert predicted == pytest.approx(width, rel=NEAR.get(bound.name, 1e-9))


@every_return
@pytest.mark.parametrize(
    ("name", "near"), [("betting", 0.3), ("empirical_bernstein", 0.3), ("anderson", 0.4)]
)
def test_predictions_of_one_sided_bounds(name, near, values):
    part = BoundedSample(values, (0.0, math.inf), -1.0)
    width = BOUNDS[name].upper([part], 0.05, rng()) + values.mean()
    predicted = BOUNDS[name].predicted([part.moments()], 0.05).value + values.mean()
    assert predicted == pytest.approx(width, rel=near)


def test_predictions_of_betting_for_means_near_the_ends():
    """Newton's steps are smaller than rounding errors there, and must stop nevertheless."""
    random, bound = np.random.default_rng(0), BOUNDS["betting"]
    rare = SampleMoments(-1.0, 2.467449817766155e-05, 0.0004967281887189535, 250456)
    assert -2.467449817766155e-05 < bound.predicted([rare], 0.05).value < 0
    for _ in range(500):
        near = 10 ** random.uniform(-9, 0)
        mean = float(random.choice([near, 1 - near]))
        spread = random.uniform() * math.sqrt(mean * (1 - mean))
        part = SampleMoments(
            random.choice([-1.0, 1.0]), mean, spread, int(10 ** random.uniform(0.5, 10))
        )
        found = bound.predicted([part], 10 ** random.uniform(-9, -0.1))
        low, high = sorted((part.coefficient * mean, max(part.coefficient, 0.0)))
        assert low - 1e-12 <= found.value <= high
