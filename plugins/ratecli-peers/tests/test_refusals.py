"""Rules that a package does not know are refused before a run, in ratecli's words."""

import pytest

from ratecli.errors import FaultError
from ratecli.experiment.prepare import check_available

FILE = """\
name: refused
datasets: {{loans: {{source: loans, rows: 200}}}}
groups: {{women: sex = Female, men: sex = Male}}
objective: {objective}
constraints: {{{rules}}}
algorithms: [{algorithm}]
report: {{plots: []}}
"""
PARITY = "p: 'min_ratio(positive_rate, by=sex) >= 0.8'"
ODDS = "t: 'max_gap(tpr, by=sex) <= 0.05', f: 'max_gap(fpr, by=sex) <= 0.05'"


@pytest.fixture
def check(tmp_path):
    def checked(algorithm, rules, objective="error"):
        path = tmp_path / "refused.yaml"
        path.write_text(FILE.format(algorithm=algorithm, rules=rules, objective=objective))
        return check_available(path)

    return checked


@pytest.mark.parametrize(
    ("algorithm", "rules", "why"),
    [
        ("threshold_optimizer", "r: 'min(tpr, by=sex) >= 0.6'", "not a lower limit of tpr"),
        ("threshold_optimizer", "r: 'positive_rate <= 0.3'", "lower limit of one rate of groups"),
        ("threshold_optimizer", "r: 'min(f1, by=sex) >= 0.6'", "lower limit of one rate of groups"),
        ("grid_search", f"{PARITY}, {ODDS}", "one rule about groups, not 3 at a time"),
        ("grid_search", "t: 'max_gap(tpr, by=sex) <= 0.05', f: 'max_gap(fpr, by=sex) <= 0.1'",
         "one rule about groups, not 2 at a time"),
        ("oxonfair", "r: 'min(fnr, by=sex) >= 0.6'", "not a lower limit of fnr"),
        ("oxonfair", f"{PARITY}, r: 'tpr[women] >= 0.6'", "about the same groups"),
        ("correlation_remover", "r: 'positive_rate <= 0.3'", "lower limit of one rate of groups"),
        ("reject_option", "p: 'max_gap(fpr, by=sex) <= 0.1'", "not a difference of fpr"),
        ("reject_option", "p: 'max_gap(tpr, by=purpose) <= 0.1'", "two groups, not "),
    ],
)  # fmt: skip
def test_other_rules_are_refused(check, algorithm, rules, why):
    with pytest.raises(FaultError, match=why) as refused:
        check(algorithm, rules)
    assert {fault.code for fault in refused.value.faults} == {"E308"}


@pytest.mark.parametrize("algorithm", ["threshold_optimizer", "grid_search", "oxonfair"])
def test_other_objectives_are_refused(check, algorithm):
    with pytest.raises(FaultError, match="minimizes only error"):
        check(algorithm, PARITY, objective="positive_rate")


@pytest.mark.parametrize(
    ("algorithm", "rules"),
    [
        ("threshold_optimizer", ODDS),
        ("threshold_optimizer", "e: 'equalized_odds_difference(by=sex) <= 0.05'"),
        ("grid_search", "e: 'max_gap(error, by=sex) <= 0.05'"),
        ("oxonfair", f"{PARITY}, r: 'min(tpr, by=sex) >= 0.6', {ODDS}"),
        ("correlation_remover", ODDS),
    ],
)
def test_their_own_rules_are_accepted(check, algorithm, rules):
    assert not check(algorithm, rules).warnings
