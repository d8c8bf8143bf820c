"""`filter:`: how it is read, written back, and combined; errors of keys: test_broken_files.py."""

from __future__ import annotations

import pytest

from ratecli.config.experiment import Experiment

FILE = """\
name: stage
datasets: {people: {path: people.csv, label: y}}
algorithms: [unconstrained, unconstrained: {as: plain, filter: false}]
"""
RULE = "rms(share[a] - 0.5)"
CUSTOM = f"{{objective: '{RULE}', disclosivity: 0, algorithm: {{balanced_tree: {{depth: null}}}}}}"


@pytest.mark.parametrize(
    ("stage", "written"),
    [
        ("{balance: sex}", {"balance": ["sex"], "algorithm": {"balanced_tree": {}}}),
        (
            "{balance: [sex, race], disclosivity: alpha, algorithm: qp_proxy, take: sample}",
            {
                "balance": ["sex", "race"],
                "disclosivity": "alpha",
                "algorithm": {"qp_proxy": {}},
                "take": "sample",
            },
        ),
        (
            CUSTOM,
            {"objective": RULE, "disclosivity": 0, "algorithm": {"balanced_tree": {"depth": None}}},
        ),
    ],
)
def test_section_is_resolved_and_read_again(load, stage, written):
    experiment = load(f"{FILE}filter: {stage}\n")
    resolved = experiment.resolved()
    assert resolved["filter"] == {"take": "weights"} | written
    assert resolved["algorithms"][1] == {"unconstrained": {"as": "plain", "filter": False}}
    assert [entry.filter for entry in experiment.algorithms] == [True, False]
    assert Experiment.model_validate(resolved) == experiment
    assert "filter" not in load(FILE).resolved()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("as: plain", "as: filter", "'filter' is already the label of the results of `filter:`"),
        ("label: y", "label: y, levels: 3", "'levels' cannot be combined with 'filter'"),
    ],
)
def test_filter_conflicts_with_its_label_and_with_levels(load, faults_of, old, new, message):
    text = FILE.replace(old, new)
    load(text)
    (fault,) = faults_of(f"{text}filter: {{balance: sex}}\n")
    assert fault.message.startswith(message)
