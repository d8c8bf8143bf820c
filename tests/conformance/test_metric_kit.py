"""The kit for metrics: all of ours pass it, and what is wrong with one is found by the right check."""

from __future__ import annotations

import pytest
from ratecli_example.metrics import INFORMEDNESS, WITHDRAWN

from ratecli.conformance import check_metric, metrics
from ratecli.rates.analysis import Curvature
from ratecli.rates.table import COMPOSITES, RATES, Composite, Rate

OURS = {**RATES, **COMPOSITES}
SOME = ("tpr", "joint_rate", "churn", "log_loss", "precision", "f_score", "share", "h_mean")


def states(report):
    return {check.name: check.state for check in report.checks}


def failing(row, name="mine"):
    return {check.name: check.reason for check in check_metric(row, name=name).failed}


@pytest.mark.parametrize("name", SOME)
def test_ours_pass(name):
    report = check_metric(OURS[name], name=name)
    report.require()
    assert "warning" not in states(report).values()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(OURS) - set(SOME)))
def test_the_others_pass(name):
    check_metric(OURS[name], name=name).require()


def test_those_of_the_example_pass_every_check_that_can_be_made():
    assert (
        states(check_metric(INFORMEDNESS, name="informedness"))["equals a naive computation"]
        == "ok"
    )
    assert set(states(check_metric(WITHDRAWN)).values()) == {"ok", "skipped"}


MEANT = "what it means"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Rate("mine", "all", "women", "none", MEANT), "mask 'women'"),
        (Rate("yours", "all", "all", "none", MEANT), "the rate is 'yours'"),
        (Rate("mine", "+", "all", "none", MEANT, "tnr"), "'tnr' is not the same rate"),
        (Rate("mine", "+", "all", "none", MEANT, "nothing"), "'nothing' is no rate"),
        (Rate("mine", "+", "all", "none", MEANT, of="margin"), "'of' is 'margin'"),
        (Rate("mine", "+", "all", "none", " "), "'means' is empty"),
        (Composite("tpr + ", MEANT), "is not an expression"),
        (Composite("tpr + tpnr", MEANT), "nothing is called 'tpnr'"),
        (Composite("tpr + mine", MEANT), "defined by itself"),
        (Composite("tpr + x", MEANT, ("max",)), "argument 'max'"),
        (Composite("tpr", MEANT, over="f1"), "divided by 'f1'"),
    ],
)
def test_what_is_declared_wrongly(row, said):
    assert said in failing(row)["is declared"]


def test_a_metric_without_a_value_anywhere():
    found = failing(Composite("log(tpr - 2)", MEANT))
    assert "no value on any rows" in found["has values"]


def test_a_rate_that_no_decision_changes_is_a_warning():
    report = check_metric(Rate("mine", "labelled", "+", "+", MEANT))
    assert report.holds
    assert states(report)["has values"] == "warning"


def test_a_wrong_complement_is_counted():
    """What they add up to is read off the masks, which hold unlabelled rows here."""
    rows = {"one": Rate("one", "all", "+", "none", MEANT, "two")}
    two = Rate("two", "all", "none", "+", MEANT, "one")
    with pytest.MonkeyPatch.context() as patch:
        for name, row in {**rows, "two": two}.items():
            patch.setitem(RATES, name, row)
        patch.setattr("ratecli.rates.metrics.BUILTIN_NAMES", frozenset({*RATES, *COMPOSITES}))
        assert "too large" in failing(rows["one"], "one")["adds up with its complement"]


@pytest.mark.parametrize(
    ("name", "value", "check"),
    [
        ("curvature", Curvature.CONVEX, "has its curvature"),
        ("interval", (0.5, 0.6), "is within its interval"),
        ("monotonicity", "fall", "has its directions"),
        ("measure", [0.3], "equals a naive computation"),
        ("build_rate_matrix", None, "is A p + c"),
    ],
)
def test_a_wrong_claim_of_ours_would_be_found(name, value, check, monkeypatch):
    """The numbers are those of a metric that is right; what analysis says of it is not."""
    row = COMPOSITES["g_mean"]
    if name == "monotonicity":
        own = metrics.monotonicity
        monkeypatch.setattr(
            metrics, name, lambda node: {leaf: -sign for leaf, sign in own(node).items()}
        )
    elif name == "build_rate_matrix":
        own = metrics.build_rate_matrix
        monkeypatch.setattr(
            metrics,
            name,
            lambda leaves, sample, _: own(
                leaves, sample.with_deployed(1 - sample.deployed), "validation"
            ),
        )
    else:
        monkeypatch.setattr(metrics, name, lambda *_: value)
    assert check in failing(row, "g_mean")
