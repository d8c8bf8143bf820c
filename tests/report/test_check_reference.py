"""The file of pinned numbers."""

import json
import math

import pytest
from synthetic_ledger import HOSTILE, KAPPAS, example, measured, planned

from ratecli.errors import FaultError
from ratecli.ledger.view import Ledger
from ratecli.report.check import reference as pins


def test_a_reference_reads_back_as_it_was(tmp_path, example):
    found = pins.build_reference(example)
    hostile = HOSTILE + "\n\x00\u2028["
    trials = [found.trials[0].model_copy(update={"algorithm": hostile}), *found.trials]
    path = tmp_path / "x.json"
    for each in (found, found.model_copy(update={"trials": trials})):
        path.write_text(pins.reference_text(each), encoding="utf-8")
        assert pins.read_reference(path) == each
        assert json.loads(pins.reference_text(each)) == each.model_dump()
    assert [each.task for each in found.answers] == [{"kappa": each} for each in KAPPAS]


def test_the_order_of_trials_has_no_effect_but_on_sweep_points(example):
    again = Ledger(example.plan[::-1], dict(reversed(example.results.items())), example.meta)
    first, second = (pins.build_reference(each).trials for each in (example, again))
    assert sorted(first, key=lambda each: each.key) == sorted(second, key=lambda each: each.key)


def test_each_metric_has_a_line_and_keys_are_sorted(example):
    text = pins.reference_text(pins.build_reference(example))
    numbers = [line for line in text.splitlines() if line.strip().startswith('"error": [')]
    assert numbers
    assert all(line.count(",") in {4, 5} for line in numbers)
    document = json.loads(text)
    assert list(document) == sorted(document)
    assert list(document["trials"][0]["values"]) == sorted(document["trials"][0]["values"])
    values = json.dumps(document["trials"])
    assert '"objective"' not in values, "an objective that is a metric is pinned once"


def test_an_objective_that_is_no_metric_is_pinned():
    trial = planned("fit", 0)
    trial.metrics.pop("error")
    other = measured(trial, {("v", "test"): {"objective": 0.1, "ratio": 0.2}})
    (found,) = pins.pin_points(Ledger([trial], {trial.key: other}, {}))
    assert found.numbers == {("v", "test", "objective"): {0: 0.1}, ("v", "test", "ratio"): {0: 0.2}}


def test_numbers_have_nine_digits_and_words_if_not_finite():
    values = [0.12345678912, -0.0, math.nan, math.inf, -math.inf, 1e-300, 12345678912.0]
    plan = [planned("fit", seed) for seed in range(len(values) + 1)]
    results = {
        trial.key: measured(trial, {("v", "test"): {"ratio": value}})
        for trial, value in zip(plan, values, strict=False)
    }
    (found,) = pins.pin_points(Ledger(plan[::-1], results, {}))
    assert found.seeds == list(range(8))
    assert found.values["v"]["test"]["ratio"] == [
        0.123456789, 0.0, "nan", "inf", "-inf", 1e-300, 12345678900.0, None,
    ]  # fmt: skip
    assert math.copysign(1, found.values["v"]["test"]["ratio"][1]) == 1
    assert found.statuses[-1] == "not_run"
    points = [planned("fit", 0, k=value) for value in (1, 1.0, True, "1")]
    assert len(pins.pin_points(Ledger(points, {}, {}))) == 4


@pytest.mark.parametrize(
    ("was", "now", "met"),
    [
        ({0.8: False, 0.9: True}, {0.8: False, 0.9: True}, True),
        ({0.8: False, 0.9: True}, {0.8: True, 0.9: True}, True),
        ({0.8: True, 0.9: False}, {0.8: False, 0.9: True}, False),
        ({0.8: True}, {0.9: True}, False),
        ({None: True}, {0.8: True, 0.9: False}, True),
        ({None: True}, {0.8: False, 0.9: False}, False),
    ],
)
def test_a_goal_is_met_if_the_tasks_that_qualified_still_do(was, now, met):
    """None is that of an older reference, without tasks."""
    sides = (
        [
            pins.PinnedModel(
                algorithm="fit",
                variant="v",
                point={},
                qualifies=qualifies,
                task={} if limit is None else {"limit": limit},
            )
            for limit, qualifies in side.items()
        ]
        for side in (was, now)
    )
    assert pins.are_goals_met(*sides) == met


GOOD = pins.reference_text(pins.build_reference(example())).encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the whole file: Invalid JSON: EOF"),
        (b"<<<<<<< HEAD\n" + GOOD, "the whole file: Invalid JSON: expected value"),
        (b"[" * 100_000, "the whole file: Invalid JSON: recursion limit"),
        (None, "Is a directory"),
        (GOOD.replace(b'"format": 1', b'"format": 2'), "format: "),
        (GOOD.replace(b'"seeds": [0, ', b'"seeds": [', 1), "trials.0: "),
        (GOOD.replace(b'"seeds": [0, 1', b'"seeds": [1, 1', 1), "trials.0: "),
        (GOOD.replace(b'"statuses": ["ok"', b'"statuses": [1', 1), "trials.0.statuses.0: "),
        (GOOD.replace(b'"name": ', b'"more": 1, "name": ', 1), "more: "),
        (GOOD.replace(b'"error": [', b'"error": ["0.1", ', 1), "trials.0.values"),
    ],
)
def test_an_invalid_reference_is_one_error(tmp_path, content, reason):
    path = tmp_path / "x.json"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(FaultError) as error:
        pins.read_reference(path)
    (fault,) = error.value.faults
    assert fault.code == "E506"
    assert fault.message.startswith(f"'{path}' is not a valid reference: {reason}")
    assert "ratecli pin" in (fault.help or "")
    assert error.value.exit_code == 3
