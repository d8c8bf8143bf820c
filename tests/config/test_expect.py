"""`expect:`: how an entry is read and written back; errors are in test_broken_files.py."""

from __future__ import annotations

import pytest

HEAD = "name: x\ndatasets: {d: {source: loans}}\nalgorithms: [a]\nexpect:\n"


def test_other_keys_are_swept_names_and_defaults_are_not_written(load):
    text = "{algorithm: a, variant: b, metric: violation.p, at_most: 0, k: 1, mode: true}"
    experiment = load(f"{HEAD}  - {text}\n")
    (entry,) = experiment.expect
    assert entry.point == {"k": 1, "mode": True}
    assert (entry.kind, entry.at_most, entry.split, entry.within) == ("at_most", 0.0, "test", None)
    written = {"algorithm": "a", "variant": "b", "split": "test", "metric": "violation.p"}
    written |= {"at_most": 0.0, "k": 1, "mode": True}
    assert experiment.resolved()["expect"] == [written]


@pytest.mark.parametrize("within", ["0", "0.5", "2%", ".5 %", "ci"])
def test_tolerances(load, within):
    text = f"  - {{algorithm: a, metric: m, value: 1, within: {within}}}\n"
    (entry,) = load(HEAD + text).expect
    assert str(entry.within) in {within, f"{within}.0"}
