"""Rates of groups on new rows, and how uncertain they are."""

import numpy as np
import pytest

from ratecli.rates.matrix import Predictions
from ratecli.rates.sample import Sample
from ratecli.sampling.rows import TrialData
from ratecli.sampling.summaries import group_rates


def rates_of(label, predicted, weight, label_range=None):
    """The stored numbers of all rows, by rate."""
    n = len(label)
    sample = Sample(
        columns={},
        label=label,
        dataset=np.full(n, "d"),
        part=np.full(n, "test"),
        weight=weight,
        label_range=label_range,
    )
    predictions = {"main": Predictions(predicted, predicted, predicted)}
    found = group_rates(TrialData(sample, np.zeros((n, 0))), [], [], predictions)
    assert found["rows"] == {"all rows": n}
    return found["rates"]["main"]["all rows"]


@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_errors_of_weighted_rates_are_their_standard_deviations(spread):
    rng, n = np.random.default_rng(0), 300
    weight = np.exp(spread * rng.normal(size=n))
    shares, means = [], []
    for _ in range(500):
        decisions, label = rng.random(n) < 0.3, np.zeros(n)
        shares.append(rates_of(label, decisions.astype(float), weight)["positive_rate"])
        means.append(rates_of(label, rng.normal(size=n), weight, (-9.0, 9.0))["mse"])
    values, rows = np.array(shares).T
    assert (rows[0] == n) == (spread == 0)
    assert np.std(values) == pytest.approx(np.sqrt(0.3 * 0.7 / rows[0]), rel=0.1)
    values, _, errors = np.array(means).T
    assert np.std(values) == pytest.approx(np.mean(errors), rel=0.1)
