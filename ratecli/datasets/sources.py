"""The data sets ratecli knows by name.

A preparation is named as "module:function" and looked up when it is needed, so that listings stay
quick.
"""

from __future__ import annotations

from ratecli.datasets import notes
from ratecli.datasets.source import Frontier, Option, RemoteFile, Source

_UCI = "https://archive.ics.uci.edu"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_GITHUB = "https://raw.githubusercontent.com"
_PROPUBLICA = f"{_GITHUB}/propublica/compas-analysis/master"
_FAIR_BATCH = f"{_GITHUB}/neutron0001/FAIR_batch/b360e92748f0c82929af878f4e882ef570076761"
_ENGINE = f"{_GITHUB}/seldonian-toolkit/Engine/cbf72b1461fe903e441856102d5398c2592b86b6"
_BIAS_ANALYSIS = (
    f"{_GITHUB}/conversationai/unintended-ml-bias-analysis/main/archive/unintended_ml_bias"
)
_FIGSHARE = "https://ndownloader.figshare.com/files"

_ADULT = Source(
    name="adult",
    summary="census of 1994: does a person earn over 50,000 dollars a year?",
    preparations={
        "plain": "ratecli.datasets.adult:prepare",
        "churn": "ratecli.datasets.churn:prepare_adult",
        "narasimhan2019": "ratecli.datasets.narasimhan2019:prepare_adult",
        "narasimhan2019_as_published": "ratecli.datasets.narasimhan2019:prepare_adult_as_published",
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
    preparations={
        "propublica": "ratecli.datasets.compas:prepare",
        "narasimhan2019": "ratecli.datasets.narasimhan2019:prepare_compas",
    },
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

_COMMUNITIES = Source(
    name="communities",
    summary="communities of the USA: is violent crime above the 70th percentile?",
    preparations={"plain": "ratecli.datasets.communities:prepare"},
    rows=1994,
    label="ViolentCrimesPerPop above its 70th percentile",
    sensitive=("black_share",),
    licence="CC BY 4.0",
    citation="Redmond, M. (2009). Communities and Crime. UCI Machine Learning Repository.",
    notes=notes.COMMUNITIES,
    files=(
        RemoteFile(
            name="communities.data",
            url=f"{_UCI}/static/public/183/communities+and+crime.zip",
            sha256="09e0b5c07eae24c1efab19b2edee05e160e7f5743b6f31e31eec3d73624da2ea",
            size=1_102_815,
            members=("communities.data",),
        ),
    ),
)

_LAW = Source(
    name="law",
    summary="law students of 1991: do they pass the bar exam?",
    preparations={"plain": "ratecli.datasets.law:prepare"},
    rows=23086,
    label="pass_bar = yes",
    sensitive=("race", "sex"),
    licence="no formal licence found; LSAC data released for research by Project SEAPHE",
    citation="Wightman, L. F. (1998). LSAC national longitudinal bar passage study. LSAC Research "
    "Report Series.",
    notes=notes.LAW,
    files=(
        RemoteFile(
            name="law_school.csv",
            url=f"{_FAIR_BATCH}/data/law_school.csv",
            sha256="b76e20ecd2cc615509e22b33cc72ee2e78b7c81ed1407c6b26a449bb79813780",
            size=3_944_453,
        ),
    ),
)

_GPA = Source(
    name="gpa",
    summary="students at a Brazilian university: how good will their grades be?",
    preparations={
        "classification": "ratecli.datasets.gpa:prepare",
        "regression": "ratecli.datasets.gpa:prepare_regression",
    },
    numbers={"regression": (0.0, 4.0)},
    rows=43_303,
    label="GPA >= 3.0; with preparation: regression, the GPA",
    sensitive=("sex", "M", "F"),
    licence="CC0 1.0 by default of Harvard Dataverse; this copy BSD 3-Clause",
    citation="Castro da Silva, B. (2019). UFRGS entrance exam and GPA data. Harvard Dataverse, "
    "doi:10.7910/DVN/O35FW8. Thomas, P. S., Castro da Silva, B., Barto, A. G., Giguere, S., Brun, Y. "
    "and Brunskill, E. (2019). Preventing undesirable behavior of intelligent machines. Science 366, "
    "999-1004.",
    notes=notes.GPA,
    files=(
        RemoteFile(
            name="gpa_regression_dataset.csv",
            url=f"{_ENGINE}/static/datasets/supervised/GPA/gpa_regression_dataset.csv",
            sha256="26c5316a5a27778988f4765a9d53d55b776a8f74a3b2f6e7eb23f1e5bca0e32c",
            size=3_205_400,
        ),
    ),
)

_DIXON = (
    "Dixon, L., Li, J., Sorensen, J., Thain, N. and Vasserman, L. (2018). Measuring and mitigating "
    "unintended bias in text classification. AIES 2018, 67-73."
)

_WIKI = Source(
    name="wiki",
    summary="comments on Wikipedia's talk pages: fit to stay, or toxic?",
    preparations={"plain": "ratecli.datasets.wiki:prepare"},
    rows=159_686,
    label="toxic = no",
    sensitive=("mentions_gay",),
    licence="CC0 for the labels; the comments, from Wikipedia, CC BY-SA 3.0",
    citation="Thain, N., Dixon, L. and Wulczyn, E. (2017). Wikipedia Talk Labels: Toxicity. figshare, "
    f"doi:10.6084/m9.figshare.4563973. {_DIXON}",
    notes=notes.WIKI,
    files=(
        RemoteFile(
            name="toxicity_annotated_comments.tsv",
            url=f"{_FIGSHARE}/7394542",
            sha256="",
            size=0,
        ),
        RemoteFile(
            name="toxicity_annotations.tsv",
            url=f"{_FIGSHARE}/7394539",
            sha256="",
            size=0,
        ),
    ),
    file_options=("vectors",),
)

_WIKI_STANDIN = Source(
    name="wiki_standin",
    summary="stand-in for wiki: 1,492 real comments that name an identity",
    preparations={"plain": "ratecli.datasets.wiki:prepare_standin"},
    rows=1492,
    label="toxic = no",
    sensitive=("mentions_gay",),
    licence="CC BY 4.0; the comments, from Wikipedia, CC BY-SA 3.0",
    citation=_DIXON,
    notes=notes.WIKI_STANDIN,
    files=(
        RemoteFile(
            name="toxicity_nonfuzzed_testset.csv",
            url=f"{_BIAS_ANALYSIS}/eval_datasets/toxicity_nonfuzzed_testset.csv",
            sha256="c11caefa0c487cb7a7fc0726cb53358d4e5463bd071d65979398af59fa80f881",
            size=943_090,
        ),
    ),
    file_options=("vectors",),
    stand_in="a stand-in for Wikipedia Talk Labels: Toxicity (1,492 comments of 159,686, chosen for "
    "their identity terms); results are not comparable with those on the whole",
    folder="wiki",
)

_MADLIBS = Source(
    name="madlibs",
    summary="stand-in for wiki: 76,564 sentences filled into templates",
    preparations={"plain": "ratecli.datasets.wiki:prepare_madlibs"},
    rows=76_564,
    label="toxic = no",
    sensitive=("mentions_gay",),
    licence="CC BY 4.0",
    citation=_DIXON,
    notes=notes.MADLIBS,
    files=(
        RemoteFile(
            name="bias_madlibs_77k.csv",
            url=f"{_BIAS_ANALYSIS}/eval_datasets/bias_madlibs_77k.csv",
            sha256="aac542254cf158415ec74623d54fa76176f26a7e7d8ef20788e1748a05ba5b4c",
            size=3_355_157,
        ),
    ),
    file_options=("vectors",),
    stand_in="a stand-in for Wikipedia Talk Labels: Toxicity (sentences made from templates, no "
    "comments); results are not comparable with those on the corpus",
    folder="wiki",
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
    source.name: source
    for source in (
        _ADULT,
        _A9A,
        _COMPAS,
        _BANK,
        _COMMUNITIES,
        _LAW,
        _GPA,
        _WIKI,
        _WIKI_STANDIN,
        _MADLIBS,
        _LOANS,
        _CLICKS,
    )
}
