from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer

from ratecli.datasets.encode import Encoder
from ratecli.datasets.sources.wiki import HASHED_TERMS, hashed_counts, mean_vectors
from ratecli.datasets.table import Table
from ratecli.errors import FaultError

TEXTS = ["A dog, a DOG and a cat.", "the cat", "!", "dog dog dog bird"]
TRAIN = np.arange(3)

GLOVE = "the 1 0\ndog 0 1\na 4 4\ncat -1 0.5\nunused not numbers\n"


def table(counts: sparse.csr_array, *, are_counts: bool = True) -> Table:
    rows = counts.shape[0]
    frame = pd.DataFrame(index=range(rows))
    return Table(frame, (), np.zeros(rows), "", matrix=counts, counts=are_counts)


def test_words_are_counted_in_any_case():
    counts = hashed_counts(TEXTS)
    assert counts.shape == (4, HASHED_TERMS)
    assert [sorted(counts[[row]].data) for row in range(4)] == [[1, 1, 2], [1, 1], [], [1, 3]]
    assert set(counts[[1]].indices) - set(counts[[0]].indices)
    assert (counts != hashed_counts([text.upper() for text in TEXTS])).nnz == 0


def test_tf_idf_by_hand_and_by_scikit_learn():
    counts = sparse.csr_array(np.array([[2.0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 5]]))
    encoder = Encoder.fit([table(counts)], [TRAIN])
    idf = 1 + np.log(4 / np.array([3, 2, 1]))  # of 3 rows: in 2, in 1, in none
    np.testing.assert_allclose(encoder.idf, idf)
    first = np.array([2 * idf[0], idf[1], 0])
    expected = [first / np.linalg.norm(first), [1, 0, 0], [0, 0, 0], [0, 0, 1]]
    np.testing.assert_allclose(encoder.transform(table(counts)).toarray(), expected)
    assert counts.data.tolist() == [2, 1, 1, 5]
    hashed = hashed_counts(TEXTS)
    X = Encoder.fit([table(hashed)], [TRAIN]).transform(table(hashed))
    expected = TfidfTransformer().fit(hashed[TRAIN]).transform(hashed)
    np.testing.assert_allclose(X.toarray(), expected.toarray())
    assert isinstance(X, sparse.csr_array)


def test_idf_is_fitted_on_training_rows_of_all_tables():
    counts = hashed_counts(TEXTS)
    tables = [table(counts[:2]), table(counts[2:])]
    apart = Encoder.fit(tables, [TRAIN[:2], TRAIN[2:] - 2])
    assert apart == Encoder.fit([table(counts)], [TRAIN])
    changed = hashed_counts([*TEXTS[:3], "other words"])
    assert Encoder.fit([table(changed)], [TRAIN]) == apart


@pytest.mark.parametrize(("second", "some", "code"), [(False, True, "E411"), (True, False, "E410")])
def test_texts_that_cannot_be_weighted(second: bool, some: bool, code: str):
    counts = hashed_counts(TEXTS)
    tables = [table(counts), table(counts, are_counts=second)]
    with pytest.raises(FaultError) as caught:
        Encoder.fit(tables, [TRAIN[: 3 * some], TRAIN[: 3 * some]])
    assert [fault.code for fault in caught.value.faults] == [code]


def test_mean_of_the_vectors_of_known_words(tmp_path: Path):
    path = tmp_path / "glove.txt"
    path.write_text(GLOVE)
    X = mean_vectors(TEXTS, path)
    first = (3 * np.array([4, 4]) + 2 * np.array([0, 1]) + np.array([-1, 0.5])) / 6
    np.testing.assert_allclose(X, [first, [0, 0.25], [0, 0], [0, 1]])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("the 1 0\ndog 0\n", "line 2 is not a word and 2 numbers"),
        ("the 1 0\ndog 0 x\n", "line 2 is not a word and 2 numbers"),
        ("the 1 0\ndog 0 nan\n", "line 2 is not a word and 2 numbers"),
        ("house 1 0\n", "none of the words"),
        ("", "none of the words"),
    ],
)
def test_invalid_files_of_vectors(tmp_path: Path, content: str, said: str):
    path = tmp_path / "glove.txt"
    path.write_text(content)
    with pytest.raises(FaultError) as caught:
        mean_vectors(TEXTS, path)
    (fault,) = caught.value.faults
    assert fault.code == "E404"
    assert said in fault.message
    assert fault.help
