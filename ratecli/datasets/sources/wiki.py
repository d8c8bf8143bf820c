"""Comments of Wikipedia's talk pages, toxic or not, and two stand-ins for them.

Wikipedia Talk Labels: Toxicity, as split by Dixon et al. (2018): 95,692 training, 32,128 validation
and 31,866 test rows (official split). A comment is toxic if more than half of its annotators, about
ten, said so; the others, about 90%, are positive.

toxic          yes, no: the label
mentions_gay   yes where the text contains 'gay', in any case and inside any word; else no
features       TF-IDF of words hashed to 16,384 columns, a sparse matrix: counts of words in lower
               case, weighted by their rarity in the training rows, each row scaled to length 1. Or,
               with `vectors: glove.6B.100d.txt` (your own file with a word and its numbers on each
               line; not downloaded), the mean of the vectors of a text's words, unscaled

The texts, some of them offensive, are not in the table.
other          rev_id, year, ns, sample

The sha256 of the two files is unknown: the authors of ratecli have not seen them, and the counts
above come from the literature. `ratecli fetch wiki` downloads them, refuses them (E403), and
reports what to write to SHA256SUMS next to them if you trust the download; from then on they are
verified like any other file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ratecli.datasets.lazy import NDArray, Table, columns, np, pd, sparse
from ratecli.datasets.source import Raw, RemoteFile, Source, notes_of
from ratecli.errors import Diagnostic, FaultError

_FIGSHARE = "https://ndownloader.figshare.com/files"
_BIAS_ANALYSIS = (
    "https://raw.githubusercontent.com/conversationai/unintended-ml-bias-analysis/main"
    "/archive/unintended_ml_bias/eval_datasets"
)
_DIXON = (
    "Dixon, L., Li, J., Sorensen, J., Thain, N. and Vasserman, L. (2018). Measuring and mitigating "
    "unintended bias in text classification. AIES 2018, 67-73."
)

IDENTITY_TERM = "gay"
PART_NAMES = {"train": "train", "dev": "validation", "test": "test"}

HASHED_TERMS = 2**14
"""Features of hashed words; words with the same hash are counted together."""

_EVERY_WORD = r"(?u)\b\w+\b"


def prepare(raw: Raw) -> Table:
    """Return the corpus; a comment is toxic if more than half of its annotators said so."""
    comments = pd.read_csv(raw.paths["toxicity_annotated_comments.tsv"], sep="\t")
    annotations = pd.read_csv(raw.paths["toxicity_annotations.tsv"], sep="\t")
    toxic = annotations.groupby("rev_id")["toxicity"].mean() > 0.5
    known = comments[comments["rev_id"].isin(toxic.index)].reset_index(drop=True)
    text = known["comment"].str.replace("NEWLINE_TOKEN|TAB_TOKEN", " ", regex=True)
    part = known["split"].map(PART_NAMES).to_numpy(dtype=str)
    others = known[["rev_id", "year", "ns", "sample"]]
    return _table(raw, text, toxic.loc[known["rev_id"]].to_numpy(), others, part)


def prepare_standin(raw: Raw) -> Table:
    """Return the real comments that were chosen for their identity terms.

    STAND-IN for `wiki`: toxicity_nonfuzzed_testset.csv, 1,492 comments of Wikipedia's talk pages
    chosen for the identity terms in them, 248 toxic, 160 with 'gay'. The texts are real, but few
    and from another distribution: results cannot be compared with numbers published on the corpus.
    No official split.

    The columns toxic and mentions_gay, the features and the option `vectors` are those of `wiki`.
    The other column is rev_id.
    """
    read = pd.read_csv(raw.paths["toxicity_nonfuzzed_testset.csv"], keep_default_na=False)
    toxic = read["toxic"].astype(str).eq("True").to_numpy()
    return _table(raw, read["comment"], toxic, read[["rev_id"]])


def prepare_madlibs(raw: Raw) -> Table:
    """Return the sentences made from templates.

    STAND-IN for `wiki`: bias_madlibs_77k.csv, 76,564 sentences made from templates and lists of
    words, half of them toxic; 1,514 contain 'gay', and half of these are toxic, too. Made to
    measure bias, not to train on: results cannot be compared with numbers published on the corpus.
    No official split.

    The columns toxic and mentions_gay, the features and the option `vectors` are those of `wiki`.
    The other column is template.
    """
    read = pd.read_csv(raw.paths["bias_madlibs_77k.csv"], keep_default_na=False)
    others = read[["Template"]].rename(columns=str.lower)
    return _table(raw, read["Text"], read["Label"].eq("BAD").to_numpy(), others)


def _table(
    raw: Raw,
    text: pd.Series,
    toxic: NDArray[np.bool_],
    others: pd.DataFrame,
    part: NDArray[np.str_] | None = None,
) -> Table:
    """Return the table of some texts, without the texts themselves, which rules cannot use."""
    named = text.str.lower().str.contains(IDENTITY_TERM, regex=False)
    frame = others.assign(
        mentions_gay=np.where(named, "yes", "no"), toxic=np.where(toxic, "yes", "no")
    )
    texts, vectors = text.tolist(), raw.paths.get("vectors")
    return raw.table(
        frame,
        columns.as_float_array(frame["toxic"] == "no"),
        part=part,
        matrix=hashed_counts(texts) if vectors is None else mean_vectors(texts, vectors),
        counts=vectors is None,
    )


def hashed_counts(texts: Sequence[str]) -> sparse.csr_array:
    """Return (n, `HASHED_TERMS`) counts of the words of two letters or more, in lower case.

    Nothing is learned from the texts, so no information leaks between rows.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(n_features=HASHED_TERMS, alternate_sign=False, norm=None)
    return sparse.csr_array(hashing.transform(texts))


def mean_vectors(texts: Sequence[str], path: Path) -> NDArray[np.float64]:
    """Return the (n, d) mean vector of each text's words, in lower case; 0 if none has a vector.

    `path` is a file like those of GloVe (Pennington et al., 2014): each line has a word and d
    numbers. Raises E404 if the file has another format or contains none of the words.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    counting = CountVectorizer(token_pattern=_EVERY_WORD)
    counts = sparse.csr_array(counting.fit_transform(texts), dtype=np.float64)
    vectors = read_vectors(path, counting.vocabulary_)
    known = counts[:, [counting.vocabulary_[word] for word in vectors]]
    words = np.asarray(known.sum(axis=1)).ravel()
    sums = known @ np.stack(list(vectors.values()))
    return np.asarray(sums / np.maximum(words, 1.0)[:, None])


def read_vectors(path: Path, wanted: Mapping[str, int]) -> dict[str, NDArray[np.float64]]:
    """Return the vectors of the `wanted` words; raises E404 if the file is invalid or has none."""
    found: dict[str, NDArray[np.float64]] = {}
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        width = 0
        for number, line in enumerate(lines, start=1):
            width = width or line.count(" ")
            word, *numbers = line.rstrip("\r\n").rsplit(" ", width)
            if word in wanted:
                vector = pd.to_numeric(np.array(numbers, dtype=object), errors="coerce")
                if len(vector) != width or not np.isfinite(vector).all():
                    raise _no_vectors(path, f"line {number} is not a word and {width} numbers")
                found[word] = vector.astype(np.float64)
    if not found:
        raise _no_vectors(path, "it has none of the words that occur in the texts")
    return found


def _no_vectors(path: Path, reason: str) -> FaultError:
    message = f"'{path.name}' is not a file of word vectors: {reason}"
    way = "each line must be a word and its numbers, separated by spaces, as in GloVe's files"
    return FaultError(Diagnostic("E404", message, way, loc=("vectors",)))


CORPUS = Source(
    name="wiki",
    summary="comments on Wikipedia's talk pages: toxic or not?",
    preparations={"plain": f"{__name__}:prepare"},
    rows=159_686,
    label="toxic = no",
    sensitive=("mentions_gay",),
    licence="CC0 for the labels; the comments, from Wikipedia, CC BY-SA 3.0",
    citation="Thain, N., Dixon, L. and Wulczyn, E. (2017). Wikipedia Talk Labels: Toxicity. "
    f"figshare, doi:10.6084/m9.figshare.4563973. {_DIXON}",
    notes=notes_of(__doc__),
    files=(
        RemoteFile("toxicity_annotated_comments.tsv", f"{_FIGSHARE}/7394542", sha256="", size=0),
        RemoteFile("toxicity_annotations.tsv", f"{_FIGSHARE}/7394539", sha256="", size=0),
    ),
    file_options=("vectors",),
)

STAND_IN = replace(
    CORPUS,
    name="wiki_standin",
    summary="stand-in for wiki: 1,492 real comments that name an identity",
    preparations={"plain": f"{__name__}:prepare_standin"},
    rows=1492,
    licence="CC BY 4.0; the comments, from Wikipedia, CC BY-SA 3.0",
    citation=_DIXON,
    notes=notes_of(prepare_standin.__doc__),
    files=(
        RemoteFile(
            name="toxicity_nonfuzzed_testset.csv",
            url=f"{_BIAS_ANALYSIS}/toxicity_nonfuzzed_testset.csv",
            sha256="c11caefa0c487cb7a7fc0726cb53358d4e5463bd071d65979398af59fa80f881",
            size=943_090,
        ),
    ),
    stand_in="a stand-in for Wikipedia Talk Labels: Toxicity (1,492 comments of 159,686, chosen "
    "for their identity terms); results are not comparable with those on the whole",
    folder="wiki",
)

MADLIBS = replace(
    STAND_IN,
    name="madlibs",
    summary="stand-in for wiki: 76,564 sentences filled into templates",
    preparations={"plain": f"{__name__}:prepare_madlibs"},
    rows=76_564,
    licence="CC BY 4.0",
    notes=notes_of(prepare_madlibs.__doc__),
    files=(
        RemoteFile(
            name="bias_madlibs_77k.csv",
            url=f"{_BIAS_ANALYSIS}/bias_madlibs_77k.csv",
            sha256="aac542254cf158415ec74623d54fa76176f26a7e7d8ef20788e1748a05ba5b4c",
            size=3_355_157,
        ),
    ),
    stand_in="a stand-in for Wikipedia Talk Labels: Toxicity (sentences made from templates, no "
    "comments); results are not comparable with those on the corpus",
)
