"""The time left of simulated runs whose trials take known times."""

import heapq
import math

import numpy as np
import pytest

from ratecli.experiment.forecast import TimeLeft, format_seconds
from ratecli.ledger.records import PlannedTrial

COSTS = {"quick": 0.01, "usual": 1.0, "slow": 60.0}
"""Seconds of a trial of each algorithm at the first sweep point; at point k, k + 1 times as many."""


def trials(seeds, points=5, datasets=(None,)):
    """Return trials in the order of a run: first one of each algorithm, then seed by seed."""
    found = [
        PlannedTrial(
            f"{label}-{dataset}-{point}-{seed}",
            label,
            "majorize",
            {},
            {"kappa": point} | ({} if dataset is None else {"dataset": dataset}),
            seed,
            {},
        )
        for dataset in datasets
        for seed in range(seeds)
        for label in COSTS
        for point in range(points)
    ]
    firsts = [each for each in found if each.seed == 0 and each.point["kappa"] == points // 2]
    return firsts + [each for each in found if each not in firsts]


def simulate(plan, seconds, jobs, stated, load):
    """Yield the share of work done, the estimate and the actual time left, after each trial.

    Trials take `load` times as long as their processor seconds.
    """
    left, work = TimeLeft(plan, stated, jobs), sum(seconds.values())
    running, waiting, now, done, moments = [], list(plan), 0.0, 0.0, []
    while running or waiting:
        while waiting and len(running) < jobs:
            key = waiting.pop(0).key
            heapq.heappush(running, (now + seconds[key], key))
        now, key = heapq.heappop(running)
        done += seconds[key]
        left.end(key, seconds[key], load * now)
        moments.append((done / work, now, *left.seconds()))
    for share, then, estimate, complete in moments:
        yield share, estimate, load * (now - then), complete


@pytest.mark.parametrize(("jobs", "load"), [(1, 1.0), (2, 2.5), (8, 1.0)])
@pytest.mark.parametrize("wrong", [None, 0.25, 1, 4])
@pytest.mark.parametrize("datasets", [(None,), ("small", "large")])
def test_after_a_tenth_of_the_work_the_time_left_is_right_by_a_factor_of_2(
    jobs, load, wrong, datasets
):
    """`wrong` is the factor by which the times that the file states are wrong, if it states any."""
    plan, noise = trials(20, datasets=datasets), np.random.default_rng(0)
    usual = {
        each.key: COSTS[each.label]
        * (each.point["kappa"] + 1)
        * (10 if each.point.get("dataset") == "large" else 1)
        for each in plan
    }
    seconds = {key: each * math.exp(0.2 * noise.normal()) for key, each in usual.items()}
    stated = {} if wrong is None else {key: wrong * each for key, each in usual.items()}
    for share, estimate, actual, complete in simulate(plan, seconds, jobs, stated, load):
        if share >= 0.1:
            assert complete
            last = abs(estimate - actual) <= load * max(seconds.values())
            assert actual / 2 <= estimate <= 2 * actual or last, (share, estimate, actual)


def test_algorithms_of_unknown_cost_are_not_counted():
    plan = trials(2, points=1)
    left = TimeLeft(plan, {}, jobs=1)
    assert (left.seconds(), str(left)) == ((0.0, False), "")
    left.end(plan[0].key, 8.0)
    assert (left.seconds(), str(left)) == ((8.0, False), "at least 8.0 s left")
    for trial in plan[1:3]:
        left.end(trial.key, 1.0)
    assert str(left) == "about 10 s left"
    for trial in plan[3:]:
        left.end(trial.key, None)
    assert str(left) == ""


def test_the_longest_trial_bounds_the_time_left():
    plan = trials(1, points=1)
    stated = {plan[0].key: 1.0, plan[1].key: 1.0, plan[2].key: 100.0}
    assert TimeLeft(plan, stated, jobs=2).seconds() == (100.0, True)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.26, "0.3 s"), (89, "89 s"), (91, "2 min"), (9000, "2.5 h")]
)
def test_times_have_a_unit_that_fits(seconds, text):
    assert format_seconds(seconds) == text
