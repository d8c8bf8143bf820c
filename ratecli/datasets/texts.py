"""Texts made into features: counts of hashed words, or the mean of their words' vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

from ratecli.errors import Diagnostic, FaultError

Floats = NDArray[np.float64]

HASHED_TERMS = 2**14
"""Features of hashed words; words that share one are counted together."""

_EVERY_WORD = r"(?u)\b\w+\b"


def hashed_counts(texts: Sequence[str]) -> sparse.csr_array:
    """(n, TERMS) how often each word of two letters or more occurs, in lower case.

    Nothing is learned from the texts, so no row leaks into another.
    """
    hashing = HashingVectorizer(n_features=HASHED_TERMS, alternate_sign=False, norm=None)
    return sparse.csr_array(hashing.transform(texts))


def mean_vectors(texts: Sequence[str], path: Path) -> Floats:
    """(n, d) means over the words of a text, in lower case, that have a vector; 0 where none has.

    `path` is a file as those of GloVe (Pennington et al., 2014): a line a word, then d numbers.
    E404 if it is not, or has none of the words.
    """
    counting = CountVectorizer(token_pattern=_EVERY_WORD)
    counts = sparse.csr_array(counting.fit_transform(texts), dtype=np.float64)
    vectors = read_vectors(path, counting.vocabulary_)
    known = counts[:, [counting.vocabulary_[word] for word in vectors]]
    words = np.asarray(known.sum(axis=1)).ravel()
    sums = known @ np.stack(list(vectors.values()))
    return np.asarray(sums / np.maximum(words, 1.0)[:, None])


def read_vectors(path: Path, wanted: Mapping[str, int]) -> dict[str, Floats]:
    """The vectors of the words wanted; E404."""
    found: dict[str, Floats] = {}
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        width = 0
        for number, line in enumerate(lines, start=1):
            width = width or line.count(" ")
            word, *numbers = line.rstrip("\r\n").rsplit(" ", width)
            if word in wanted:
                found[word] = _vector(path, number, numbers, width)
    if not found:
        raise _no_vectors(path, "it has none of the words that occur in the texts")
    return found


def _vector(path: Path, line: int, numbers: Sequence[str], width: int) -> Floats:
    try:
        vector = np.array(numbers, dtype=np.float64)
    except ValueError:
        vector = np.empty(0)
    if len(vector) != width or not np.isfinite(vector).all():
        raise _no_vectors(path, f"line {line} is not a word and {width} numbers")
    return vector


def _no_vectors(path: Path, reason: str) -> FaultError:
    message = f"'{path.name}' is no file of word vectors: {reason}"
    way = "a line a word: the word, then its numbers, with a space between, as in GloVe's files"
    return FaultError(Diagnostic("E404", message, way))
