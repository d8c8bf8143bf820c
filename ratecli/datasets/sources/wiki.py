"""Comments of Wikipedia's talk pages, toxic or not, and two stand-ins for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ratecli.datasets import columns
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError

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
