"""Confidence bounds: vectors, edge cases, invariances, slopes and accuracy of predictions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from oracles.samples import UNKNOWN, decisions, rng, sample
from scipy import stats

from ratecli.certify.bound import BoundedSample, SampleMoments
from ratecli.certify.bounds import BOUNDS, Bound, choose_bound

T = BOUNDS["student_t"]
EXACT = ["hoeffding", "clopper_pearson", "empirical_bernstein", "betting"]
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
    ],
)
def test_auto_chooses_by_range_and_values(parts, name):
    assert choose_bound("auto", parts) is BOUNDS[name]
    assert choose_bound("hoeffding", parts).name == "hoeffding"


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
    assert math.isinf(upper) if bound.needs_range else 0.5 < upper < 0.8
    # a loss is at least 0, whatever it is
    negative = bound.upper([BoundedSample(SOFT, (0.0, math.inf), -1.0)], 0.05, rng())
    assert negative == 0 if bound.needs_range else -0.8 < negative < -0.2


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
    """Except with empirical Bernstein, which divides delta."""
    parts = [decisions(60, 400), decisions(80, 500, -0.9)]
    jointly = bound.upper(parts, 0.05, rng())
    divided = sum(bound.upper([part], 0.025, rng()) for part in parts)
    if bound.name == "empirical_bernstein":
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


NEAR = {"betting": 0.06, "bootstrap": 0.1, "clopper_pearson": 0.04}


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
