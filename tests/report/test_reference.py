"""The file of pinned numbers."""

from __future__ import annotations

import json
import math

import pytest
from synthetic_ledger import HOSTILE, example, measured, planned

from ratecli.errors import FaultError
from ratecli.ledger.view import Ledger
from ratecli.report.regression.reference import (
    build_reference,
    pin_trials,
    point_key,
    read_reference,
    reference_text,
    trials_by_point,
)


def made(ledger):
    return build_reference(ledger)


def test_what_is_written_is_what_is_read(tmp_path, example):
    found = made(example)
    path = tmp_path / "x.json"
    path.write_text(reference_text(found), encoding="utf-8")
    assert read_reference(path) == found
    assert json.loads(reference_text(found)) == found.model_dump()


def test_order_and_time_of_the_plan_leave_no_trace(example):
    again = Ledger(example.plan[::-1], dict(reversed(example.results.items())), example.meta)
    first, second = (json.loads(reference_text(made(each))) for each in (example, again))
    key = lambda each: (each["algorithm"], str(each["point"]))  # noqa: E731
    assert sorted(first["trials"], key=key) == sorted(second["trials"], key=key)
    assert reference_text(made(example)) == reference_text(made(example))


def test_a_line_a_metric_and_keys_in_order(example):
    lines = reference_text(made(example)).splitlines()
    numbers = [line for line in lines if line.strip().startswith('"error": [')]
    assert numbers
    assert all(line.count(",") in {4, 5} for line in numbers)
    document = json.loads(reference_text(made(example)))
    assert list(document) == sorted(document)
    assert list(document["trials"][0]["values"]) == sorted(document["trials"][0]["values"])


def test_an_objective_that_is_a_metric_too_is_there_once(example):
    assert '"objective"' not in reference_text(made(example))
    trial = planned("fit", 0)
    other = measured(trial, {("v", "test"): {"objective": 0.1, "ratio": 0.2}})
    trial.metrics.pop("error")
    (point,) = trials_by_point(Ledger([trial], {trial.key: other}, {}))
    found = pin_trials(Ledger([trial], {trial.key: other}, {}), point)
    assert found.numbers == {("v", "test", "objective"): {0: 0.1}, ("v", "test", "ratio"): {0: 0.2}}


def test_numbers_have_nine_digits_and_all_kinds_have_a_text():
    values = [0.12345678912, -0.0, math.nan, math.inf, -math.inf, 1e-300, 12345678912.0]
    plan = [planned("fit", seed) for seed in range(len(values) + 1)]
    results = {
        trial.key: measured(trial, {("v", "test"): {"ratio": value}})
        for trial, value in zip(plan, values, strict=False)
    }
    ledger = Ledger(plan[::-1], results, {})
    found = pin_trials(ledger, trials_by_point(ledger)[0])
    assert found.seeds == list(range(8))
    assert found.values["v"]["test"]["ratio"] == [
        0.123456789, 0.0, "nan", "inf", "-inf", 1e-300, 12345678900.0, None,
    ]  # fmt: skip
    assert math.copysign(1, found.values["v"]["test"]["ratio"][1]) == 1
    assert found.statuses[-1] == "not_run"


def test_1_and_true_are_different_points():
    keys = {point_key("fit", {"k": value}) for value in (1, 1.0, True, "1")}
    assert len(keys) == 4


def test_hostile_names_survive(tmp_path, example):
    found = made(example)
    trials = [found.trials[0].model_copy(update={"algorithm": HOSTILE + "\n\x00\u2028"})]
    path = tmp_path / "x.json"
    path.write_text(reference_text(found.model_copy(update={"trials": trials})), encoding="utf-8")
    assert read_reference(path).trials[0].algorithm == HOSTILE + "\n\x00\u2028"


GOOD = reference_text(made(example()))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[]", "all of it: "),
        ("<<<<<<< HEAD\n" + GOOD, "Expecting value"),
        ("[" * 100_000, ""),
        (GOOD.replace('"format": 1', '"format": 2'), "format: "),
        (GOOD.replace('"seeds": [0, ', '"seeds": [', 1), "trials.0: "),
        (GOOD.replace('"seeds": [0, 1', '"seeds": [1, 1', 1), "trials.0: "),
        (GOOD.replace('"statuses": ["ok"', '"statuses": [1', 1), "trials.0.statuses.0: "),
        (GOOD.replace('"name": ', '"more": 1, "name": ', 1), "more: "),
        (GOOD.replace('"error": [', '"error": ["0.1", ', 1), "trials.0.values"),
    ],
)
def test_a_file_that_is_no_reference_is_one_fault(tmp_path, content, told):
    path = tmp_path / "x.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(FaultError) as error:
        read_reference(path)
    (fault,) = error.value.faults
    assert fault.code == "E506"
    assert fault.message.startswith(f"'{path}' is no reference that can be read: {told}")
    assert "ratecli pin" in (fault.help or "")
    assert error.value.exit_code == 3


def test_bytes_and_folders_are_no_reference(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe{}")
    for path in (tmp_path / "bytes", tmp_path):
        with pytest.raises(FaultError, match="E506"):
            read_reference(path)
