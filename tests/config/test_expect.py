"""`expect:`: what it says, how it is written back, and typos told from names of the sweep."""

from __future__ import annotations

import pytest
from marked import spot, unmarked

HEAD = "name: x\ndatasets: {d: {source: loans}}\nalgorithms: [a]\nexpect:\n"


def test_what_is_no_key_is_a_name_of_the_sweep(load):
    text = "  - {algorithm: a, metric: error, paper: 1, kappa: 0.8, dataset: adult, mode: true}\n"
    (entry,) = load(HEAD + text).expect
    assert entry.point == {"kappa": 0.8, "dataset": "adult", "mode": True}
    assert (entry.kind, entry.paper, entry.split, entry.within) == ("paper", 1.0, "test", None)


def test_an_entry_is_written_back_with_its_split_and_nothing_that_it_does_not_say(load):
    text = "  - {algorithm: a, variant: b, metric: violation.p, at_most: 0, within: 2%, k: 1}\n"
    assert load(HEAD + text).resolved()["expect"] == [
        {
            "algorithm": "a",
            "variant": "b",
            "split": "test",
            "metric": "violation.p",
            "at_most": 0.0,
            "within": "2%",
            "k": 1,
        }
    ]


@pytest.mark.parametrize("within", ["0", "0.5", "2%", ".5 %", "ci"])
def test_tolerances(load, within):
    text = f"  - {{algorithm: a, metric: m, value: 1, within: {within}}}\n"
    (entry,) = load(HEAD + text).expect
    assert str(entry.within) in {within, f"{within}.0"}


@pytest.mark.parametrize(
    ("code", "entry"),
    [
        ("E101", "{⟦algoritm⟧: a, metric: m, paper: 1}"),
        ("E101", "{algorithm: a, metric: m, ⟦at_mots⟧: 1}"),
        ("E102", "⟦{metric: m, paper: 1}⟧"),
        ("E102", "⟦{algorithm: a, metric: m, kappa: 1}⟧"),
        ("E102", "{algorithm: a, metric: m, ⟦value⟧: 1}"),
        ("E103", "⟦text⟧"),
        ("E103", "{algorithm: a, metric: m, paper: ⟦true⟧}"),
        ("E103", "{algorithm: a, metric: m, paper: 1, source: ⟦3⟧}"),
        ("E103", "{algorithm: a, metric: m, paper: 1, within: ⟦[1]⟧}"),
        ("E103", "{algorithm: a, metric: m, paper: 1, kappa: ⟦{b: 1}⟧}"),
        ("E104", "{algorithm: a, metric: m, paper: ⟦.inf⟧}"),
        ("E104", "{algorithm: a, metric: m, paper: 1, within: ⟦-1⟧}"),
        ("E104", "{algorithm: a, metric: m, paper: 1, within: ⟦.nan⟧}"),
        ("E104", "{algorithm: a, metric: m, paper: 1, within: ⟦2 percent⟧}"),
        ("E104", "{algorithm: a, metric: m, at_most: 1, ⟦at_least⟧: 1}"),
        ("E104", "{algorithm: a, metric: m, paper: 1, split: ⟦tets⟧}"),
    ],
)
def test_faults(faults_of, code, entry):
    text, places = unmarked(f"{HEAD}  - {entry}\n")
    found = faults_of(text)
    assert [(fault.code, spot(fault.place)) for fault in found] == [(code, places[0])]
