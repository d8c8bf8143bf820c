"""Checks of metrics: the built-in ones pass, and wrong declarations fail."""

from __future__ import annotations

import pytest
from ratecli_example.metrics import INFORMEDNESS, WITHDRAWN

from ratecli.conformance import check_metric
from ratecli.rates.table import COMPOSITES, DECISION_MEASUREMENTS, RATES, Composite, Rate

MEANT = "what it means"


def states(row, name="mine"):
    return {check.name: check.state for check in check_metric(row, name=name).checks}


def failures(row, name="mine"):
    return {check.name: check.reason for check in check_metric(row, name=name).failed}


OF_DECISIONS = {name for name, rate in RATES.items() if rate.of in DECISION_MEASUREMENTS}


@pytest.mark.parametrize("name", sorted({*OF_DECISIONS, *COMPOSITES} - {"return_weighted"}))
def test_built_in_metrics_pass(name):
    check_metric({**RATES, **COMPOSITES}[name], name=name).require()


def test_metrics_of_the_example_pass():
    assert states(INFORMEDNESS, "informedness")["has values"] == "ok"
    assert set(states(WITHDRAWN, "withdrawn").values()) == {"ok"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (Rate("mine", "all", "women", "none", MEANT), "mask 'women'"),
        (Rate("yours", "all", "all", "none", MEANT), "the rate is 'yours'"),
        (Rate("mine", "+", "all", "none", MEANT, of="margin"), "'of' is 'margin'"),
        (Rate("mine", "+", "all", "none", " "), "'means' is empty"),
        (Composite("tpr + ", MEANT), "is not an expression"),
        (Composite("tpr + tpnr", MEANT), "the name 'tpnr' is unknown"),
        (Composite("tpr + mine", MEANT), "defined by itself"),
        (Composite("tpr + x", MEANT, ("max",)), "argument 'max'"),
        (Composite("tpr", MEANT, over="f1"), "divided by 'f1'"),
    ],
)
def test_wrong_declarations_fail(row, reason):
    assert reason in failures(row)["is defined"]


def test_a_metric_without_any_value_fails():
    assert "no value on random rows" in failures(Composite("log(tpr - 2)", MEANT))["has values"]


def test_a_rate_that_does_not_depend_on_decisions_gets_a_warning():
    assert states(Rate("mine", "labelled", "+", "+", MEANT))["has values"] == "warning"
