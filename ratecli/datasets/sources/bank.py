"""The full table of UCI's Bank Marketing, as it is or with a deployed model.

bank-full.csv, 45,211 rows, 5,289 positive. No official split.

features  age, balance, day, duration, campaign, pdays, previous (numbers);
          marital, education, default, housing, loan, contact, month, poutcome (categories)
other     job, a sensitive column with 12 values, which is not a feature; y, the label, yes or no

'unknown' is a category like any other; pdays is -1 for a client who was not called before. duration
is known only once the call is over: fine for comparing algorithms, not for predicting.

`preparation: churn` adds a deployed model to compare with, after Goh et al. (2016), section 4.2
(details: docstring of ratecli/datasets/deployed_model.py). 20% of the rows, the older data, trained
the deployed model and are left out.

set             d1: labelled rows sampled near the deployed model's decision boundary;
                d2: labelled rows sampled at random; d3: rows sampled at random, with the label
                hidden (y is empty)
deployed        the deployed model's decision, 0 or 1; deployed_score is its log-odds. The model
                uses age, marital, education, default, balance, housing, loan and duration only
features        a ready-made matrix of indicators of bins, of categories and of pairs of both. Every
                nonzero entry is 1/43, so each row sums to 1

`split: {test: 0.2, stratify: [set]}` divides each set in the same proportions.
"""

from __future__ import annotations

from ratecli.datasets.lazy import Table, columns, deployed_model, pd
from ratecli.datasets.source import Raw, RemoteFile, Source, notes_of

SOURCE = Source(
    name="bank",
    summary="calls of a Portuguese bank: does the client subscribe to a deposit?",
    preparations={"plain": f"{__name__}:prepare", "churn": f"{__name__}:prepare_churn"},
    rows=45211,
    label="y = yes",
    sensitive=("job", "age", "marital"),
    licence="CC BY 4.0",
    citation="Moro, S., Laureano, R. and Cortez, P. (2011). Using data mining for bank direct "
    "marketing. ESM'2011, 117-121.",
    notes=notes_of(__doc__),
    files=(
        RemoteFile(
            name="bank-full.csv",
            url="https://archive.ics.uci.edu/static/public/222/bank+marketing.zip",
            sha256="d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",
            size=4_610_348,
            members=("bank.zip", "bank-full.csv"),
        ),
    ),
)

NO_FEATURES = ("job", "y")

DEPLOYED_FEATURES = tuple("age marital education default balance housing loan duration".split())
"""Features of the deployed model of `prepare_churn`: the client's and the length of the call.

Left out are how and when the call was made, and earlier calls.
"""

CROSSED_FEATURES = tuple("age balance housing contact month duration pdays poutcome".split())
"""Features whose pairs are features of `prepare_churn`."""


def prepare(raw: Raw) -> Table:
    frame = pd.read_csv(raw.paths["bank-full.csv"], sep=";", keep_default_na=False)
    features = tuple(str(name) for name in frame.columns if name not in NO_FEATURES)
    return raw.table(frame, columns.as_float_array(frame["y"] == "yes"), features=features)


def prepare_churn(raw: Raw) -> Table:
    """Return the table with a deployed model."""
    return deployed_model.add_deployed_model(
        prepare(raw), label="y", known=DEPLOYED_FEATURES, crossed=CROSSED_FEATURES
    )
