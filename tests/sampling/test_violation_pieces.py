"""Standard errors of violations on the test set."""

import numpy as np
import pytest

from ratecli.rates.analysis import constraint_goal
from ratecli.rates.matrix import Predictions
from ratecli.rates.parser import parse_constraint
from ratecli.rates.resolve import constraint_differences, violation_expression
from ratecli.rates.sample import Sample
from ratecli.rates.scope import Scope
from ratecli.sampling.rows import TrialData
from ratecli.sampling.summaries import violation_pieces


def pieces_of(text, label, yes):
    """The value of the only piece and its standard error."""
    n = len(label)
    sample = Sample(
        columns={},
        label=label,
        dataset=np.full(n, "d"),
        part=np.full(n, "test"),
        weight=np.ones(n),
    )
    parts = constraint_differences(parse_constraint(text), Scope())
    goal = constraint_goal("p", text, parts, violation_expression(parts))
    found = violation_pieces(
        TrialData(sample, np.zeros((n, 0))), [goal], {"main": Predictions(yes, yes, yes)}
    )
    ((piece,),) = found["main"].values()
    return piece


def test_a_precision_of_0_in_4_rows_is_uncertain():
    """The true positives are 0 of 200 rows: with 2 more rows as in Agresti and Coull, 1 of 202."""
    n, near = 200, 1 / 202
    label, yes = np.zeros(n), np.zeros(n)
    label[:20], yes[-4:] = 1, 1
    value, error = pieces_of("precision >= 0.2", label, yes)
    assert value == pytest.approx(0.2)
    assert error == pytest.approx(np.sqrt(near * (1 - near) / n) / (4 / n))


@pytest.mark.parametrize("yes", [0.0, 1.0])
def test_a_constant_decision_has_certain_selection_rates(yes):
    label = np.arange(60) % 2
    assert pieces_of("positive_rate <= 0.02", label, np.full(60, yes)) == (yes - 0.02, 0.0)
