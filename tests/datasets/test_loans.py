from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from entries import generate_loans, load_entry_table, table_digest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from sklearn.linear_model import LogisticRegression

from ratecli.datasets.encode import Encoder
from ratecli.datasets.sources import loans
from ratecli.errors import FaultError


@pytest.fixture(scope="module")
def crowd():
    """Many applicants: sex, label, and the true probability of repaying."""
    table = generate_loans(200_000, seed=7)
    men = (table.frame["sex"] == "Male").to_numpy()
    return table, men, loans.repayment_probability(table.frame)


def test_shape_and_kinds():
    table, again, other = (generate_loans(500, seed) for seed in (3, 3, 4))
    pd.testing.assert_frame_equal(table.frame, again.frame)
    assert not table.frame.equals(other.frame)
    assert table.digest == again.digest != other.digest
    assert len(table) == 500
    assert set(table.features) == set(table.frame.columns) - {"repaid"}
    assert set(table.frame["sex"]) == {"Female", "Male"}
    assert not table.frame.isna().any().any()
    text = [name for name in table.frame if table.frame[name].dtype == object]
    assert text == ["sex", "purpose", "region", "repaid"]
    assert (table.frame["repaid"].eq("yes") == (table.label == 1)).all()


def test_probabilities_are_calibrated(crowd):
    table, men, eta = crowd
    for group in (men, ~men):
        edges = np.quantile(eta[group], np.linspace(0, 1, 21))
        bins = np.clip(np.digitize(eta[group], edges) - 1, 0, 19)
        size = np.bincount(bins)
        gap = np.bincount(bins, table.label[group]) / size - np.bincount(bins, eta[group]) / size
        assert np.abs(gap).max() < 5 * 0.5 / np.sqrt(size.min())


def test_other_columns_are_independent_of_the_label_given_the_group(crowd):
    table, men, _ = crowd
    for group in (men, ~men):
        label = table.label[group]
        for name in ("age", "amount"):
            column = table.frame[name].to_numpy(dtype=float)[group]
            assert abs(np.corrcoef(column, label)[0, 1]) < 5 / np.sqrt(group.sum())
        for name in ("purpose", "region"):
            shares = pd.Series(label).groupby(table.frame[name].to_numpy()[group]).mean()
            assert shares.max() - shares.min() < 0.02


def test_unconstrained_rule_is_the_bayes_rule_and_unfair():
    best = loans.optimum_at_ratio(0.0)
    assert best.multiplier == 0
    assert best.threshold == {"Female": 0.5, "Male": 0.5}
    assert 0.4 < best.ratio < 0.5
    assert loans.optimum_at_ratio(best.ratio).error == pytest.approx(best.error)


@pytest.mark.parametrize("ratio", [0.0, 0.6, 0.8, 1.0, 1.3, 3.0])
def test_optimum_against_simulation(crowd, ratio: float):
    table, men, eta = crowd
    best = loans.optimum_at_ratio(ratio)
    limit = np.where(men, best.threshold["Male"], best.threshold["Female"])
    yes = eta > limit
    within = 4 * 0.5 / np.sqrt(len(yes))
    assert np.mean(yes != table.label) == pytest.approx(best.error, abs=within)
    assert yes[men].mean() == pytest.approx(best.positive_rate["Male"], abs=2 * within)
    assert yes[~men].mean() == pytest.approx(best.positive_rate["Female"], abs=2 * within)
    # Weak duality on the sample: no decisions of the columns do better than the Lagrangian allows.
    share = men.mean()
    price = best.multiplier * np.where(men, ratio / share, -1 / (1 - share))
    bound = eta.mean() + np.minimum(1 - 2 * eta + price, 0).mean()
    assert bound == pytest.approx(best.error, abs=2 * within)


@pytest.mark.parametrize("ratio", [0.2, 0.7, 0.9, 1.0, 1.2, 2.0])
def test_optimum_against_a_grid_of_threshold_pairs(ratio: float):
    cuts = np.linspace(-7, 7, 2801)
    d = loans.SEPARATION
    rate, error = {}, {}
    for group, base in loans.REPAYMENT_RATES.items():
        hit, alarm = ndtr(d / 2 - cuts), ndtr(-d / 2 - cuts)
        rate[group] = base * hit + (1 - base) * alarm
        error[group] = base * (1 - hit) + (1 - base) * alarm
    total = loans.WOMEN_SHARE * error["Female"][:, None] + (1 - loans.WOMEN_SHARE) * error["Male"]
    allowed = rate["Female"][:, None] >= ratio * rate["Male"]
    best = loans.optimum_at_ratio(ratio).error
    grid = total[allowed].min()
    assert best <= grid + 1e-12
    assert grid == pytest.approx(best, abs=2e-3)


@given(st.floats(0.05, 4), st.floats(0.05, 4))
def test_frontier_increases_and_satisfies_its_constraint(a: float, b: float):
    low, high = sorted((a, b))
    errors = loans.frontier([low, high])
    assert errors[0] <= errors[1] + 1e-12
    best = loans.optimum_at_ratio(high)
    assert best.ratio >= high - 1e-9
    assert best.multiplier == 0 or best.ratio == pytest.approx(high, abs=1e-9)


@given(st.floats(0.05, 3), st.floats(0.05, 3))
def test_multipliers_satisfy_weak_duality(a: float, b: float):
    """Weak duality: no other optimum gains more than the multiplier per slack given up."""
    first, second = loans.optimum_at_ratio(a), loans.optimum_at_ratio(b)
    slack = second.positive_rate["Female"] - a * second.positive_rate["Male"]
    assert second.error + 1e-9 >= first.error + first.multiplier * slack


def test_best_rule_is_linear_in_the_features():
    table = generate_loans(50_000, seed=11)
    X = Encoder.fit([table], [np.arange(len(table))]).transform(table)
    fitted = LogisticRegression(C=1e6, max_iter=500).fit(X, table.label)
    assert np.mean(fitted.predict(X) != table.label) == pytest.approx(
        loans.optimum_at_ratio(0).error, abs=0.008
    )


def prepared(preparation: str, rows: int = 3000):
    options = {"source": "loans", "rows": rows, "seed": 3, "preparation": preparation}
    return load_entry_table(options, Path(), offline=True)


def test_preparations_have_the_same_applicants():
    plain, deployed, unlabelled = map(prepared, ("plain", "deployed", "unlabelled"))
    assert "approved" not in plain.frame
    pd.testing.assert_frame_equal(deployed.frame.drop(columns="approved"), plain.frame)
    pd.testing.assert_frame_equal(unlabelled.frame, deployed.frame.drop(columns="repaid"))
    assert np.array_equal(deployed.label, plain.label)
    assert np.isnan(unlabelled.label).all()
    every = [plain, deployed, unlabelled, prepared("egregious")]
    assert {table.features for table in every} == {loans.FEATURES}
    assert len({table.digest for table in every}) == len(every)


def test_digest_and_numbers_do_not_change():
    """Digest and numbers of the default preparation are part of every stored trial's key."""
    table = generate_loans(60, 4)
    assert table.digest == "7bc6265680f4714c9a10af403a4c7b04d0e2c3e63ddeb9017bd19189f36b1c5a"
    assert table.frame["income"].iloc[0] == pytest.approx(62.02849235456986, abs=1e-9)


def test_rule_in_use_depends_on_income_and_errs_more_than_the_best_rule():
    table = prepared("deployed", 200_000)
    approved = table.frame["approved"].to_numpy()
    assert set(approved) == {0, 1}
    assert table.frame["income"][approved == 1].min() >= loans.INCOME_FLOOR
    assert table.frame["income"][approved == 0].max() < loans.INCOME_FLOOR
    error = np.mean(approved != table.label)
    assert error == pytest.approx(old_error(loans.INCOME_FLOOR), abs=0.005)
    assert error > loans.optimum_at_ratio(0).error + 0.08
    assert old_error(loans.INCOME_FLOOR) == min(map(old_error, range(40, 57)))


def old_error(floor: float) -> float:
    """Error of `income >= floor` from the distribution of incomes in the docstring of `loans`."""
    error = 0.0
    for share, base, shift in ((loans.WOMEN_SHARE, 0.35, 0.0), (1 - loans.WOMEN_SHARE, 0.65, 0.5)):
        cut = (floor - 46) / 7 - shift
        error += share * (base * ndtr(cut - 0.6) + (1 - base) * ndtr(-0.6 - cut))
    return error


def test_egregious_rows_are_errors_of_the_rule_in_use_only():
    table, whole = prepared("egregious", 20_000), prepared("deployed", 20_000)
    best = loans.repayment_probability(table.frame) > 0.5
    assert (table.frame["approved"] != table.label).all()
    assert (best == table.label).all()
    assert list(table.frame.index) == list(range(len(table)))
    wrong = (whole.frame["approved"] != whole.label).to_numpy()
    saved = (loans.repayment_probability(whole.frame) > 0.5) == whole.label
    assert len(table) == np.sum(wrong & saved)
    assert len(table) == pytest.approx(20_000 / 7, rel=0.05)


def test_dropped_columns_of_a_source_stay_in_the_table():
    entry = {"source": "loans", "rows": 50}
    table, less = (load_entry_table(entry | more, Path()) for more in ({}, {"drop": ["sex"]}))
    assert less.features == tuple(name for name in table.features if name != "sex")
    pd.testing.assert_frame_equal(less.frame, table.frame)
    assert less.digest == table_digest(entry | {"drop": ["sex"]}, Path()) != table.digest


@pytest.mark.parametrize(
    ("entry", "code", "message"),
    [
        ({"source": "loans", "drop": ["gender"]}, "E205", "'gender' under 'drop' is not a column"),
        ({"source": "clicks", "rows": 600, "drop": ["set"]}, "E411", "the features are ready-made"),
    ],
)
def test_columns_of_a_source_that_cannot_be_dropped(entry, code: str, message: str):
    with pytest.raises(FaultError, match=message) as caught:
        load_entry_table(entry, Path())
    assert caught.value.faults[0].code == code
