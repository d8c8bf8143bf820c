"""The data sets ratecli knows by name.

A preparation is named as "module:function" and looked up when it is needed, so that listings stay
quick.
"""

from __future__ import annotations

from ratecli.datasets import notes
from ratecli.datasets.source import Frontier, Option, RemoteFile, Source

_UCI = "https://archive.ics.uci.edu"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_PROPUBLICA = "https://raw.githubusercontent.com/propublica/compas-analysis/master"

_ADULT = Source(
    name="adult",
    summary="census of 1994: does a person earn over 50,000 dollars a year?",
    preparations={
        "plain": "ratecli.datasets.adult:prepare",
        "churn": "ratecli.datasets.churn:prepare_adult",
    },
    rows=48842,
    label="income = >50K",
    sensitive=("sex", "race", "age", "native_country"),
    licence="CC BY 4.0",
    citation="Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository.",
    notes=notes.ADULT,
    files=(
        RemoteFile(
            name="adult.data",
            url=f"{_UCI}/ml/machine-learning-databases/adult/adult.data",
            sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            size=3_974_305,
        ),
        RemoteFile(
            name="adult.test",
            url=f"{_UCI}/ml/machine-learning-databases/adult/adult.test",
            sha256="a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            size=2_003_153,
        ),
    ),
)

_A9A = Source(
    name="a9a",
    summary="Adult as LIBSVM's 123 binary features",
    preparations={"plain": "ratecli.datasets.a9a:prepare"},
    rows=48842,
    label="+1, income over 50,000 dollars",
    sensitive=("sex", "race", "age_bucket"),
    licence="none stated by LIBSVM; derived from Adult, CC BY 4.0",
    citation="Chang, C.-C. and Lin, C.-J. (2011). LIBSVM: a library for support vector machines.",
    notes=notes.A9A,
    files=(
        RemoteFile(
            name="a9a",
            url=f"{_LIBSVM}/a9a",
            sha256="f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
            size=2_329_875,
        ),
        RemoteFile(
            name="a9a.t",
            url=f"{_LIBSVM}/a9a.t",
            sha256="1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
            size=1_164_628,
        ),
    ),
)

_COMPAS = Source(
    name="compas",
    summary="defendants in Broward County: charged again within two years?",
    preparations={"propublica": "ratecli.datasets.compas:prepare"},
    rows=6172,
    label="two_year_recid = 1",
    sensitive=("sex", "race", "age", "age_cat"),
    licence="no licence file; published by ProPublica with its story",
    citation="Angwin, J., Larson, J., Mattu, S. and Kirchner, L. (2016). Machine bias. ProPublica.",
    notes=notes.COMPAS,
    files=(
        RemoteFile(
            name="compas-scores-two-years.csv",
            url=f"{_PROPUBLICA}/compas-scores-two-years.csv",
            sha256="c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
            size=2_546_489,
        ),
    ),
)

_BANK = Source(
    name="bank",
    summary="calls of a Portuguese bank: does the client subscribe a deposit?",
    preparations={
        "plain": "ratecli.datasets.bank:prepare",
        "churn": "ratecli.datasets.churn:prepare_bank",
    },
    rows=45211,
    label="y = yes",
    sensitive=("job", "age", "marital"),
    licence="CC BY 4.0",
    citation="Moro, S., Laureano, R. and Cortez, P. (2011). Using data mining for bank direct "
    "marketing. ESM'2011, 117-121.",
    notes=notes.BANK,
    files=(
        RemoteFile(
            name="bank-full.csv",
            url=f"{_UCI}/static/public/222/bank+marketing.zip",
            sha256="d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",
            size=4_610_348,
            members=("bank.zip", "bank-full.csv"),
        ),
    ),
)

_LOANS = Source(
    name="loans",
    summary="generated loan applicants with a known optimal trade-off",
    preparations={
        "plain": "ratecli.datasets.loans:prepare",
        "deployed": "ratecli.datasets.lending:deployed",
        "unlabelled": "ratecli.datasets.lending:unlabelled",
        "egregious": "ratecli.datasets.lending:egregious",
    },
    rows=4000,
    label="repaid = yes",
    sensitive=("sex", "age"),
    licence="generated here; no rights reserved",
    notes=notes.LOANS,
    options={
        "rows": Option(default=4000, least=20, most=5_000_000),
        "seed": Option(default=0, least=0, most=2**63 - 1),
    },
    frontier=Frontier(
        function="ratecli.datasets.loans:frontier",
        x="positive_rate[sex = Female] / positive_rate[sex = Male]",
        y="error",
        preparations=("plain", "deployed", "unlabelled"),
    ),
)

_CLICKS = Source(
    name="clicks",
    summary="generated: three data sets and a deployed model, 30,008 features, for churn",
    preparations={"plain": "ratecli.datasets.clicks:prepare"},
    version=2,
    rows=254_609,
    label="clicked = yes, hidden where set = d3",
    sensitive=(),
    licence="generated here; no rights reserved",
    notes=notes.CLICKS,
    options={
        "rows": Option(default=254_609, least=600, most=2_000_000),
        "seed": Option(default=0, least=0, most=2**63 - 1),
    },
)

SOURCES: dict[str, Source] = {
    source.name: source for source in (_ADULT, _A9A, _COMPAS, _BANK, _LOANS, _CLICKS)
}
