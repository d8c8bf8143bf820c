import numpy as np
import pandas as pd
import pytest
from applicants import people
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from ratecli import BalancedFilter, NoSolutionFoundError, RatecliWarning
from ratecli.apply.table_filter import FilterRequest, learn_table_filter


def share_of_women(X, chances):
    return np.average(X["sex"] == "Female", weights=chances)


@pytest.mark.parametrize("algorithm", ["balanced_tree", "qp_proxy"])
def test_the_filter_equals_that_of_the_command(algorithm, loans, tmp_path):
    X, _ = loans
    X.to_csv(tmp_path / "rows.csv", index=False)
    options = {"disclosivity": 0.3, "algorithm": algorithm}
    files = {"output": tmp_path / "kept.csv", "folder": tmp_path / "filter"}
    table = (tmp_path / "rows.csv", ("sex",))
    learn_table_filter(FilterRequest(*table, drop=("region",), seed=5, **options, **files))
    model = BalancedFilter("sex", drop=["region"], random_state=5, **options)
    rows, none = model.fit_resample(X)
    assert none is None
    kept = pd.read_csv(tmp_path / "kept.csv")
    pd.testing.assert_frame_equal(
        rows.reset_index(drop=True), kept, check_dtype=False, check_exact=False
    )
    assert (model.sample_indices_ == rows.index).all()
    assert model.disclosivity_ <= 0.3 + 1e-6
    assert model.kept_ == pytest.approx(model.chances(X).mean())


def test_groups_are_balanced_without_using_them():
    X, y = people(2000, 3)
    model = BalancedFilter("sex", random_state=0).fit(X)
    chances = model.chances(X.drop(columns="sex"))
    np.testing.assert_array_equal(chances, model.chances(X))
    assert ((chances >= 0) & (chances <= 1)).all()
    assert share_of_women(X, chances) == pytest.approx(0.5, abs=0.001)
    assert not hasattr(model, "transform")  # samplers of imbalanced-learn have none
    assert model.imbalance_ == pytest.approx(0, abs=0.001)
    plain = LogisticRegression().fit(X[["income", "debt"]], y, sample_weight=model.sample_weight(X))
    assert plain.score(X[["income", "debt"]], y) > 0.6


def test_arrays_with_sensitive_features(loans):
    X, y = loans
    numbers = X[["income", "debt", "savings"]].to_numpy()
    for rows in (numbers, sparse.csr_matrix(numbers)):
        model = BalancedFilter(random_state=1)
        kept, labels = model.fit_resample(rows, y.to_numpy(), sensitive_features=X[["sex"]])
        assert kept.shape == (len(labels), 3)
        assert sparse.issparse(kept) == sparse.issparse(rows)
        assert share_of_women(X, model.chances(rows)) == pytest.approx(0.5, abs=0.001)


def test_several_columns_and_other_shares(loans):
    X, _ = loans
    with pytest.warns(RatecliWarning, match="W412: the filter keeps only 10 %.*; kept=0.3 with"):
        both = BalancedFilter(["sex", "region"], disclosivity=0.3, random_state=0).fit(X)
    assert both.disclosivity_ <= 0.3 + 1e-6
    shares = "rms(share[sex = Female] - 0.3, share[sex = Male] - 0.7)"
    fewer = BalancedFilter("sex", disclosivity=1.0, objective=shares, random_state=0).fit(X)
    assert share_of_women(X, fewer.chances(X)) == pytest.approx(0.3, abs=0.01)


def test_no_groups_is_a_warning(loans):
    X, _ = loans
    with pytest.warns(RatecliWarning, match="no groups to balance"):
        kept, _ = BalancedFilter().fit_resample(X)
    assert kept.equals(X)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"by": "gender"}, "there is no column 'gender'"),
        ({"by": "income"}, "'income' has 600 values"),
        ({"by": "sex", "disclosivity": 2}, "disclosivity must be from 0 to 1"),
        ({"by": "sex", "kept": 2}, "'kept' must be"),
        ({"by": "sex", "algorithm": "balanced"}, "did you mean"),
        ({"by": "sex", "algorithm": "mixture"}, "'mixture' is not a filter"),
        ({"by": "sex", "drop": ["sox"]}, "did you mean 'sex'"),
    ],
)
def test_invalid_arguments_are_value_errors(options, told, loans):
    with pytest.raises(ValueError, match=told):
        BalancedFilter(**options).fit(loans[0])


def test_a_filter_over_the_limit_is_an_error(loans):
    X, _ = loans
    with pytest.raises(NoSolutionFoundError, match="shifts the probability of a row's group"):
        BalancedFilter("sex", algorithm="naive_proxy", disclosivity=0.01).fit(X)


def test_rows_without_a_group_are_left_out_as_by_the_command():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 2)), columns=["x", "z"])
    groups = pd.DataFrame({"g": ["a", "b", "nan"] * 100})
    with pytest.warns(RatecliWarning, match="W401: 'g' is empty in 100 rows: the filter is fit"):
        found = BalancedFilter("g", kept=0.5).fit(X, sensitive_features=groups)
    assert found.chances(X).shape == (300,)
