"""Adult from the files of UCI: plain, with a deployed model, and as in Narasimhan et al. (2019).

Official training file (32,561 rows, 7,841 positive) and test file (16,281 rows, 3,846 positive).

features  age, education_num, capital_gain, capital_loss, hours_per_week (numbers);
          workclass, education, marital_status, occupation, relationship, race, sex,
          native_country (categories)
other     fnlwgt, the census sampling weight, used neither as a feature nor as a row weight;
          income, the label, '>50K' or '<=50K'
sex       Female, Male
race      Amer-Indian-Eskimo, Asian-Pac-Islander, Black, Other, White

A '?' (workclass, occupation, native_country) is a missing value and becomes a category of its own.
The header line of the test file and the full stop after its labels are removed. Column names have
'_' instead of '-'.

`preparation: churn` adds a deployed model to compare with, after Goh et al. (2016), section 4.2
(details: docstring of ratecli/datasets/deployed_model.py). Both files are treated as one sample
without an official split. 20% of it, the older data, trained the deployed model and is left out.

set             d1: labelled rows sampled near the deployed model's decision boundary;
                d2: labelled rows sampled at random; d3: rows sampled at random, with the label
                hidden (income is empty)
deployed        the deployed model's decision, 0 or 1; deployed_score is its log-odds. The model
                uses age, education, marital_status, relationship, race, sex and native_country only
features        a ready-made matrix of indicators of bins, of categories and of pairs of both. Every
                nonzero entry is 1/41, so each row sums to 1

`split: {test: 0.2, stratify: [set]}` divides each set in the same proportions.

`preparation: narasimhan2019` has the 122 binary features of the code released with Narasimhan,
Cotter and Gupta (2019), a sparse matrix used without scaling: age (quartiles of adult.data),
capital_gain, capital_loss, hours_per_week and education_num in four bins each, then the eight
categories. A bin excludes its lower end, so the 395 + 200 people aged 17 have no age bin. Rules can
use all columns. `split: {validation: 1/3}` gives 21,707 training rows, 10,854 validation rows and
the 16,281 test rows of adult.test.

`preparation: narasimhan2019_as_published` reproduces a bug of that code that LEAKS test data:
training and validation rows come from adult.test, and all of adult.test is the test set, so every
test row was also used for training or tuning. Only the age quartiles come from adult.data. The
table contains the rows of adult.test twice, as training and as test rows; `split: {validation:
1/3}` gives 10,854, 5,427 and 16,281. Use it to reproduce the published numbers, never to evaluate a
method.
"""

from __future__ import annotations

from dataclasses import replace

from ratecli.datasets.lazy import Table, columns, deployed_model, np, pd, sparse
from ratecli.datasets.source import Raw, RemoteFile, Source, notes_of

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"

SOURCE = Source(
    name="adult",
    summary="census of 1994: does a person earn over 50,000 dollars a year?",
    preparations={
        "plain": f"{__name__}:prepare",
        "churn": f"{__name__}:prepare_churn",
        "narasimhan2019": f"{__name__}:prepare_narasimhan2019",
        "narasimhan2019_as_published": f"{__name__}:prepare_narasimhan2019_as_published",
    },
    rows=48842,
    label="income = >50K",
    sensitive=("sex", "race", "age", "native_country"),
    licence="CC BY 4.0",
    citation="Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository.",
    notes=notes_of(__doc__),
    files=(
        RemoteFile(
            name="adult.data",
            url=f"{_UCI}/adult.data",
            sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            size=3_974_305,
        ),
        RemoteFile(
            name="adult.test",
            url=f"{_UCI}/adult.test",
            sha256="a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            size=2_003_153,
        ),
    ),
)

COLUMNS = tuple(
    "age workclass fnlwgt education education_num marital_status occupation relationship race sex "
    "capital_gain capital_loss hours_per_week native_country income".split()
)
FEATURES = tuple(name for name in COLUMNS if name not in ("fnlwgt", "income"))

DEPLOYED_FEATURES = tuple(
    "age education marital_status relationship race sex native_country".split()
)
"""Features of the deployed model of `prepare_churn`: the person's, without work and capital."""

CROSSED_FEATURES = tuple(
    "age workclass education_num marital_status occupation sex capital_gain hours_per_week".split()
)
"""Features whose pairs are features of `prepare_churn`."""

NARASIMHAN2019_BINS: dict[str, tuple[float, ...]] = {
    "age": (17, 28, 37, 48, 90),  # quartiles of adult.data
    "capital_gain": (-1, 1, 4000, 10000, 100000),
    "capital_loss": (-1, 1, 1800, 1950, 4500),
    "hours_per_week": (0, 39, 41, 50, 100),
    "education_num": (0, 8, 9, 11, 16),
}
NARASIMHAN2019_CATEGORIES = tuple(
    "workclass education marital_status occupation relationship race sex native_country".split()
)


def prepare(raw: Raw) -> Table:
    train, test = (
        pd.read_csv(
            raw.paths[name],
            names=list(COLUMNS),
            header=None,
            skiprows=header_lines,
            skipinitialspace=True,
            na_values=["?"],
            keep_default_na=False,
        )
        for name, header_lines in (("adult.data", 0), ("adult.test", 1))
    )
    read = pd.concat([train, test], ignore_index=True)
    frame = read.assign(income=read["income"].str.rstrip("."))
    return raw.table(
        frame,
        columns.as_float_array(frame["income"] == ">50K"),
        features=FEATURES,
        part=np.repeat(["train", "test"], [len(train), len(test)]),
    )


def prepare_churn(raw: Raw) -> Table:
    """Return both official files as one sample with a deployed model; their split is ignored."""
    return deployed_model.add_deployed_model(
        prepare(raw), label="income", known=DEPLOYED_FEATURES, crossed=CROSSED_FEATURES
    )


def prepare_narasimhan2019(raw: Raw) -> Table:
    """Return 122 features: the bins, then the categories, a missing value being one of them."""
    table = prepare(raw)
    blocks = [
        columns.bin_indicators(columns.as_float_array(table.frame[name]), edges)
        for name, edges in NARASIMHAN2019_BINS.items()
    ]
    blocks += [columns.category_indicators(table.frame[name]) for name in NARASIMHAN2019_CATEGORIES]
    return replace(table, features=(), matrix=sparse.csr_array(np.hstack(blocks)))


def prepare_narasimhan2019_as_published(raw: Raw) -> Table:
    """Return the rows of adult.test twice, as training and as test part, which leaks."""
    table = prepare_narasimhan2019(raw)
    assert table.part is not None
    assert table.matrix is not None
    test = np.flatnonzero(table.part == "test")
    rows = np.concatenate([test, test])
    return replace(
        table,
        frame=table.frame.iloc[rows].reset_index(drop=True),
        label=table.label[rows],
        part=np.repeat(["train", "test"], len(test)),
        matrix=table.matrix[rows],
    )
