"""The corpus in miniature: files of the published layout, and a user who vouches for them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from entries import load_entry_table, missing_entry_files, table_digest

from ratecli.datasets.files import missing_source_files, source_checksums
from ratecli.datasets.sources import SOURCES
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


def test_file_with_another_sha256_is_refused(data: Path, mirror: Path):
    vouch(data)
    (mirror / "toxicity_annotations.tsv").write_text(ANNOTATIONS + "14.0\t2\t0\t1.0\n")
    (fault,) = refused()
    assert "is not the published file" in fault.message
    assert missing_source_files(SOURCES["wiki"]) == ["wiki/toxicity_annotations.tsv"]


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
    assert missing_entry_files(entry, tmp_path) == [f"wiki/{name}" for name in FILES]
    table = load_entry_table(entry, tmp_path, offline=True)
    np.testing.assert_allclose(table.matrix, [[0.5, 0.5], [3, 3], [1, 0], [0, 0]])
    assert not table.counts
    assert [name for name, _ in table.files] == [*FILES, "glove.txt"]
    assert table.digest == table_digest(entry, tmp_path) != table_digest(ENTRY, tmp_path)
    path.write_text("good 1 1\n")
    assert table_digest(entry, tmp_path) != table.digest
