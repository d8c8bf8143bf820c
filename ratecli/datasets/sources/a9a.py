"""Adult as LIBSVM's binary features.

The rows of `adult` in the same order, with the same labels and the same official split. Each number
is cut at quantiles: 123 binary features, a sparse matrix used without encoding or scaling. The test
file stops at index 122, but its matrix also has 123 columns.

Four columns are added to select rows by; they repeat information of the features.

sex            Female, Male                                              features 72, 73
race           White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black          67-71
age_bucket     17-25, 26-32, 33-40, 41-49, 50-90                                      1-5
education_top  yes, no: 13 or more on the scale of education_num                       39

Feature 39 is the group that the published code of Goh et al. (2016) takes for men; their Figure 2
matches this group rather than sex.
"""

from __future__ import annotations

from ratecli.datasets.lazy import NDArray, Table, np, pd, sparse
from ratecli.datasets.source import Raw, RemoteFile, Source, notes_of

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"

SOURCE = Source(
    name="a9a",
    summary="Adult as LIBSVM's 123 binary features",
    preparations={"plain": f"{__name__}:prepare"},
    rows=48842,
    label="+1, income over 50,000 dollars",
    sensitive=("sex", "race", "age_bucket"),
    licence="none stated by LIBSVM; derived from Adult, CC BY 4.0",
    citation="Chang, C.-C. and Lin, C.-J. (2011). LIBSVM: a library for support vector machines.",
    notes=notes_of(__doc__),
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

WIDTH = 123

RACES = ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black")
GROUPS: dict[str, dict[int, str]] = {
    "sex": {72: "Female", 73: "Male"},
    "race": dict(enumerate(RACES, start=67)),
    "age_bucket": {1: "17-25", 2: "26-32", 3: "33-40", 4: "41-49", 5: "50-90"},
    "education_top": {39: "yes"},
}
"""Readable columns: the value of a row that has the feature (numbered from 1), at most one."""


def prepare(raw: Raw) -> Table:
    from sklearn.datasets import load_svmlight_file

    loaded = [
        load_svmlight_file(raw.paths[name], n_features=WIDTH, zero_based=False)
        for name in ("a9a", "a9a.t")
    ]
    matrix = sparse.csr_array(sparse.vstack([rows for rows, _ in loaded], format="csr"))
    return raw.table(
        pd.DataFrame({name: _readable_column(matrix, codes) for name, codes in GROUPS.items()}),
        np.concatenate([labels > 0 for _, labels in loaded]).astype(np.float64),
        matrix=matrix,
        part=np.repeat(["train", "test"], [len(labels) for _, labels in loaded]),
    )


def _readable_column(matrix: sparse.csr_array, codes: dict[int, str]) -> NDArray[np.object_]:
    values = np.full(matrix.shape[0], "no", dtype=object)
    for feature, value in codes.items():
        values[matrix[:, [feature - 1]].toarray().ravel() > 0] = value
    return values
