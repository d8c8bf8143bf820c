"""Statuses and reasons of trials whose goals are infeasible, undefined or unsupported."""

import math
import re
from itertools import product

import pytest
from scipy.optimize import brentq
from thinned import one_in

from experiments import people, run_file, write
from ratecli.errors import FaultError

FILE = """
name: ends
datasets: {people: {path: people.csv, label: y, drop: [old]}}
groups: {women: sex = F, men: sex = M}
objective: OBJECTIVE
constraints: {RULES}
algorithms: [unconstrained, ALGORITHM]
metrics: {base: base_rate}
"""


@pytest.fixture
def ends(tmp_path):
    """Return a function that runs an algorithm: its result, and the base rate of training rows."""
    people(200, 1).to_csv(tmp_path / "people.csv", index=False)

    def run(algorithm, *, objective="error", rules=""):
        text = FILE.replace("OBJECTIVE", objective).replace("RULES", rules)
        _, store = run_file(write(tmp_path, text.replace("ALGORITHM", algorithm)))
        first, last = (store.result(trial.key) for trial in store.plan())
        (base,) = (v.value for v in first.values if (v.metric, v.split) == ("base_rate", "train"))
        return last, base

    return run


def train_values(found, variant):
    places = (variant, "train")
    return {v.metric: v.value for v in found.values if (v.variant, v.split) == places}


def test_a_goal_may_become_unsupported_by_the_value_of_another_algorithm(ends):
    """The objective is convex for positive values of `of(...)`, and the value is negative."""
    few = "three_player: {steps: 20}"
    found, _ = ends(few, objective="of(unconstrained, fpr - tpr) * kl(0.3, positive_rate)")
    assert (found.status, found.values) == ("error", ())
    assert found.reason.startswith("E308: algorithm")
    assert found.reason.endswith("at the values of 'of(...)'")


AFFINE = ("majorize: {iterations: 2}",)
ALL = (
    "mixture",
    "post_shift",
    "thresholded",
    "three_player: {steps: 40}",
    "three_player: {steps: 10, oracle: plugin}",
)
PLAYERS = "three_player: {steps: 1000}"
RANDOM_PLAYERS = "three_player: {steps: 1000, randomize: true}"
WAY_OUT = re.compile(r"'(\w+)' by ([\d.]+)")


def kl(target, rate):
    return target * math.log(target / rate) + (1 - target) * math.log((1 - target) / (1 - rate))


FURTHEST = brentq(lambda rate: kl(0.1, rate) - 0.1, 0.1, 0.9)
INFEASIBLE = {
    # positive_rate is at least base_rate * tpr
    "r: tpr >= 0.9, c: positive_rate <= 0.01": lambda base: {
        "r": 0.9 - 0.01 / base,
        "c": 0.9 * base - 0.01,
    },
    "a: 'kl(0.9, positive_rate) <= 0.1', b: 'kl(0.1, positive_rate) <= 0.1'": lambda _: (
        dict.fromkeys("ab", kl(0.9, FURTHEST) - 0.1)
    ),
    # f1[women] is at most 1
    "f: 'f1[women] - f1[men] >= 0.5', g: 'f1[men] >= 0.6'": lambda _: {"f": 0.1, "g": 0.1},
}
"""By how much each constraint must be loosened if the other one stays, given the base rate."""


@pytest.mark.parametrize(
    ("algorithm", "rules"),
    one_in(2, [*product(AFFINE, list(INFEASIBLE)[:1]), *product(ALL, INFEASIBLE)]),
)
def test_infeasible_constraints_are_reported_with_the_way_out(ends, algorithm, rules):
    found, base = ends(algorithm, rules=rules)
    assert found.status == "infeasible"
    _, _, ways = found.reason.partition("no decisions satisfy all constraints, unless")
    wanted, said = INFEASIBLE[rules](base), dict(WAY_OUT.findall(ways))
    assert said.keys() == wanted.keys()
    for name, least in wanted.items():  # rounded up to three digits
        assert least <= float(said[name]) <= 1.02 * least + 1e-3


def test_an_undefined_ratio_does_not_satisfy_a_constraint(ends):
    """Without positive decisions, the cleared form holds with equality, and precision is 0 / 0."""
    found, _ = ends(RANDOM_PLAYERS, objective="positive_rate", rules="p: precision >= 0.9")
    assert found.status == "not_met"
    assert "violates 'p' (undefined) on the training set" in found.reason
    values = train_values(found, "stochastic")
    assert values["positive_rate"] == 0.0
    assert [metric for metric, value in values.items() if math.isnan(value)] == [
        "-(true_positives / (true_positives + false_positives)) + 0.9"
    ]


@pytest.mark.parametrize("algorithm", ["thresholded", "post_shift", "mixture"])
@pytest.mark.parametrize("least", [0.9, 1])  # at least 1: true positives cancel in the cleared form
def test_classifiers_with_undefined_constraints_are_not_selected(ends, algorithm, least):
    """No positive decision has the smallest objective, and its precision is 0 / 0."""
    found, _ = ends(algorithm, objective="positive_rate", rules=f"p: precision >= {least}")
    values = train_values(found, "deterministic").values()
    assert values
    assert all(map(math.isfinite, values))


def test_no_threshold_satisfies_a_constraint_undefined_for_all_feasible_ones(ends):
    """Any positive decision is too much coverage, and with none the precision is 0 / 0."""
    found, _ = ends("thresholded", rules="p: precision >= 0.9, c: coverage <= 0.001")
    assert (found.status, found.values) == ("no_solution_found", ())
    assert found.reason.startswith("no threshold satisfies all constraints")


@pytest.mark.parametrize("algorithm", [*ALL, *AFFINE])
def test_no_algorithm_satisfies_a_constraint_by_leaving_it_undefined(ends, algorithm):
    """Women and men cannot both be 60% of the positive decisions, unless there are none."""
    found, _ = ends(algorithm, rules="s: 'min(share, by=sex) >= 0.6'")
    assert found.status in {"not_met", "no_solution_found"}
    if found.status == "not_met":
        assert re.search(r"violates 's' (\(undefined\)|by)", found.reason)


@pytest.mark.parametrize("algorithm", ["zafar", "thresholded: {free: true}", "thresholded"])
def test_algorithms_report_the_constraints_they_violate(ends, algorithm):
    """Also algorithms that do not promise to satisfy constraints."""
    found, _ = ends(algorithm, rules="r: 'positive_rate[women] >= 3 * positive_rate[men]'")
    missed = {v.value for v in found.values if v.split == "train" and "sex = F" in v.metric}
    assert found.status == ("not_met" if max(missed) > 0 else "ok")
    assert ("violates 'r' by" in found.reason) == (found.status == "not_met")
    if algorithm != "thresholded":
        assert found.status == "not_met"


def test_compared_ratios_have_positive_denominators(ends):
    rules = "p: 'precision[women] - precision[men] <= 0.1'"
    found, _ = ends(PLAYERS, objective="positive_rate", rules=rules)
    assert found.status == "ok"
    assert all(map(math.isfinite, train_values(found, "stochastic").values()))


def test_an_undefined_ratio_is_reported_with_its_place(tmp_path):
    frame = people(200, 1)
    frame.loc[frame.sex == "F", "y"] = 0
    frame.to_csv(tmp_path / "people.csv", index=False)
    text = FILE.replace("OBJECTIVE", "error").replace("ALGORITHM", "mixture")
    with pytest.raises(FaultError) as caught:
        run_file(write(tmp_path, text.replace("RULES", "f: 'f1[women] >= 0.1'")))
    (fault,) = caught.value.faults
    assert fault.code == "E311"
    assert fault.place.excerpt[fault.place.column - 1 :].startswith("f1[women]")


def test_a_ratio_is_defined_if_that_costs_almost_nothing(ends):
    """A few certain positives reach the precision, at a cost within the gap."""
    found, _ = ends(
        "mixture: {randomize: true}", objective="positive_rate", rules="p: precision >= 0.9"
    )
    assert found.status == "ok"
    values = train_values(found, "stochastic")
    assert 0 < values["positive_rate"] <= 1e-4 * (1 + 1e-9)
