"""`filter:` as a file states it: what is understood, and where what is wrong stands."""

from __future__ import annotations

import pytest

from ratecli.config.document import Document
from ratecli.config.experiment import Experiment, read_experiment
from ratecli.errors import FaultError

FILE = """\
name: stage
datasets: {people: {path: people.csv, label: y}}
algorithms: [unconstrained, unconstrained: {as: plain, filter: false}]
filter: STAGE
"""


def read(stage, text=FILE):
    return read_experiment(Document.of_text(text.replace("STAGE", stage)))


def faults(stage, text=FILE):
    with pytest.raises(FaultError) as caught:
        read(stage, text)
    return [
        (f.code, f.place.line, f.place.column) for f in caught.value.faults
    ], caught.value.faults


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (
            "{balance: sex}",
            {"balance": ["sex"], "algorithm": {"balanced_tree": {}}, "take": "weights"},
        ),
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
            "{objective: 'rms(share[a] - 0.5)', disclosivity: 0, algorithm: {balanced_tree: {depth: d}}}",
            {
                "objective": "rms(share[a] - 0.5)",
                "disclosivity": 0.0,
                "algorithm": {"balanced_tree": {"depth": "d"}},
                "take": "weights",
            },
        ),
    ],
)
def test_what_is_said_is_resolved_and_read_again(stage, said):
    experiment = read(stage)
    resolved = experiment.resolved()
    assert resolved["filter"] == said
    assert resolved["algorithms"][1] == {"unconstrained": {"as": "plain", "filter": False}}
    assert [entry.filter for entry in experiment.algorithms] == [None, False]
    assert Experiment.model_validate(resolved) == experiment


def test_without_the_key_nothing_is_resolved():
    assert "filter" not in read("{balance: sex}", FILE.partition("filter: STAGE")[0]).resolved()


@pytest.mark.parametrize(
    ("stage", "code", "column", "words"),
    [
        ("", "E103", 1, "a mapping of keys to values, not empty"),
        ("{}", "E102", 1, "'filter' needs one of 'balance' and 'objective'"),
        ("{take: sample}", "E102", 1, "needs one of 'balance' and 'objective'"),
        (
            "{balance: sex, objective: error}",
            "E104",
            24,
            "only one of 'balance' and 'objective' is allowed",
        ),
        ("{balance: null}", "E102", 1, "needs one of 'balance' and 'objective'"),
        ("{balance: 3}", "E103", 19, "a column or a list of columns, not the number 3"),
        ("{balance: []}", "E104", 19, "'balance' must not be empty"),
        ("{balans: sex}", "E101", 10, "unknown key 'balans'"),
        ("{balance: sex, disclosivity: 1.5}", "E104", 38, "must be from 0 to 1, not 1.5"),
        ("{balance: sex, disclosivity: -0.1}", "E104", 38, "must be from 0 to 1, not -0.1"),
        ("{balance: sex, disclosivity: 10%}", "E104", 38, "such as 0.05 or 1/20"),
        ("{balance: sex, disclosivity: true}", "E103", 38, "or a name of the sweep"),
        ("{balance: sex, take: 1}", "E104", 30, "'1' is not a choice for 'take'"),
        (
            "{balance: sex, algorithm: [a, b]}",
            "E103",
            35,
            "or one name with its options, not a list",
        ),
        ("{balance: sex, algorithm: {a: 1}}", "E103", 39, "a mapping of options to values"),
    ],
)
def test_what_is_wrong_within_it(stage, code, column, words):
    ((found, line, at), *rest), (fault, *_) = faults(stage)
    assert not rest
    assert (found, line, at) == (code, 4, column)
    assert words in fault.message


def test_an_entry_can_only_turn_it_off():
    (at,), (fault,) = faults(
        "{balance: sex}", FILE.replace("filter: false", "filter: {take: sample}")
    )
    assert at == ("E103", 3, 64)
    assert "must be false" in fault.message


def test_its_label_is_taken():
    text = FILE.replace("as: plain", "as: filter")
    (at,), (fault,) = faults("{balance: sex}", text)
    assert at == ("E106", 3, 49)
    assert fault.help == "give the algorithm another label: {as: NAME}"
    assert read("", text.partition("filter: STAGE")[0]).algorithms[1].label == "filter"


def test_it_does_not_go_with_levels():
    (at,), (fault,) = faults("{balance: sex}", FILE.replace("label: y", "label: y, levels: 3"))
    assert at == ("E104", 2, 49)
    assert fault.message.startswith("'levels' cannot be combined with 'filter'")
