"""The corpus in miniature: files of the published layout, and a user who vouches for them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from entries import load_entry_table, table_digest
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer

from ratecli.datasets.encode import Encoder
from ratecli.datasets.files import missing_source_files, source_checksums
from ratecli.datasets.registry import find_source
from ratecli.datasets.sources import SOURCES
from ratecli.datasets.sources.wiki import HASHED_TERMS, hashed_counts, mean_vectors
from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError

COMMENTS = """\
rev_id	comment	year	logged_in	ns	sample	split
10.0	NEWLINE_TOKENGood work!	2004	True	article	random	train
11.0	"So GAYTAB_TOKENindeed"	2005	False	user	blocked	train
12.0	nobody looked at this	2006	True	user	random	train
13.0	`Not good  either`	2007	True	user	random	dev
14.0	a begayed word	2008	True	article	blocked	test
"""
ANNOTATIONS = """\
rev_id	worker_id	toxicity	toxicity_score
10.0	1	0	1.0
10.0	2	0	2.0
11.0	1	1	-1.0
11.0	2	1	-2.0
11.0	3	0	0.0
13.0	2	1	-1.0
13.0	3	0	0.0
14.0	1	1	-2.0
"""
FILES = {"toxicity_annotated_comments.tsv": COMMENTS, "toxicity_annotations.tsv": ANNOTATIONS}
ENTRY = {"source": "wiki"}


@pytest.fixture(autouse=True)
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mirror" / "wiki"
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.setenv("RATECLI_DATA_MIRROR", str(folder.parent))
    return folder


def vouch(data: Path) -> None:
    (data / "wiki").mkdir(parents=True, exist_ok=True)
    lines = [f"{hashlib.sha256(text.encode()).hexdigest()}  {name}" for name, text in FILES.items()]
    (data / "wiki" / "SHA256SUMS").write_text("\n".join(lines))


def refused() -> list[Diagnostic]:
    with pytest.raises(FaultError) as caught:
        load_entry_table(ENTRY, Path(), offline=True)
    assert caught.value.exit_code == 4
    assert {fault.code for fault in caught.value.faults} == {"E403"}
    return list(caught.value.faults)


def test_line_of_the_help_vouches_for_a_file(data: Path):
    before = table_digest(ENTRY, Path())
    lines = [str(fault.help).rpartition("SHA256SUMS: ")[2] for fault in refused()]
    (data / "wiki" / "SHA256SUMS").write_text(lines[0])
    (fault,) = refused()
    assert "toxicity_annotations.tsv" in fault.message
    (data / "wiki" / "SHA256SUMS").write_text("\n".join(lines))
    table = load_entry_table(ENTRY, Path(), offline=True)
    assert table.digest == table_digest(ENTRY, Path()) != before
    assert table.files == source_checksums(SOURCES["wiki"])
    assert all(len(sha256) == 64 for _, sha256 in table.files)
    (data / "wiki" / "toxicity_annotations.tsv").write_text(ANNOTATIONS + "14.0\t2\t0\t1.0\n")
    (fault,) = refused()
    assert "is not the published file" in fault.message


def test_labels_groups_and_parts_of_the_corpus(data: Path):
    vouch(data)
    table = load_entry_table(ENTRY, Path(), offline=True)
    expected = {
        "rev_id": [10, 11, 13, 14],  # 12 has no annotation
        "toxic": ["no", "yes", "no", "yes"],  # half is no majority
        "mentions_gay": ["no", "yes", "no", "yes"],
        "ns": ["article", "user", "user", "article"],
    }
    assert table.frame[list(expected)].to_dict("list") == expected
    assert table.label.tolist() == [1, 0, 1, 0]
    assert table.part.tolist() == ["train", "train", "validation", "test"]
    counts = [row.sum() for row in table.matrix.toarray()]
    assert counts == [2, 3, 3, 2]  # the tokens are no words, nor is 'a'
    assert table.counts


def test_vectors_replace_counts(data: Path, tmp_path: Path):
    vouch(data)
    path = tmp_path / "glove.txt"
    path.write_text("good 1 0\nwork 0 1\nindeed 3 3\n")
    entry = ENTRY | {"vectors": "glove.txt"}
    assert missing_source_files(find_source("wiki")) == [f"wiki/{name}" for name in FILES]
    table = load_entry_table(entry, tmp_path, offline=True)
    np.testing.assert_allclose(table.matrix, [[0.5, 0.5], [3, 3], [1, 0], [0, 0]])
    assert not table.counts
    assert [name for name, _ in table.files] == [*FILES, "glove.txt"]
    assert table.digest == table_digest(entry, tmp_path) != table_digest(ENTRY, tmp_path)
    path.write_text("good 1 1\n")
    assert table_digest(entry, tmp_path) != table.digest


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
