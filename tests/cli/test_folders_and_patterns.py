"""Folders and patterns in place of files."""

from pathlib import Path

import pytest
import typer

from ratecli.cli.arguments import experiment_files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b/two.yaml", "b/one.yml", "a.yaml", "b/notes.txt", ".hidden/x.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "files"),
    [
        (["."], ["a.yaml", "b/one.yml", "b/two.yaml"]),
        (["b", "a.yaml"], ["b/one.yml", "b/two.yaml", "a.yaml"]),
        (["b/*.yaml"], ["b/two.yaml"]),
        (["**/*.yaml"], ["a.yaml", "b/two.yaml"]),
        (["b/two.yaml", "b", "../{1}/b/one.yml"], ["b/two.yaml", "b/one.yml"]),
        (["missing.yaml"], ["missing.yaml"]),
        (["{0}/b/t*.yaml"], ["{0}/b/two.yaml"]),  # an absolute pattern
    ],
)
def test_what_is_meant_each_once_in_the_order_given(folder, given, files):
    found = experiment_files([Path(each.format(folder, folder.name)) for each in given])
    assert [path.as_posix() for path in found] == [each.format(folder) for each in files]


@pytest.mark.parametrize(
    ("given", "said"), [("*.yml", "no file matches"), ("c", "no file matches")]
)
def test_a_folder_or_a_pattern_that_means_nothing_is_refused(folder, given, said):
    (folder / "c").mkdir()
    with pytest.raises(typer.BadParameter, match=said):
        experiment_files([Path(given)])
