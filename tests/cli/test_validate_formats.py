"""`validate --format`, and folders and patterns in place of files."""

import json
from pathlib import Path

import pytest
import typer
from broken_files import HEAD
from marked import marked

from ratecli.cli.arguments import experiment_files


def test_all_formats_have_the_same_content(folder, cli):
    text, ((line, column),) = marked(f"{HEAD}constraints:\n  a: ⟦recal⟧[women] >= 0.8\n")
    (folder / "a, b.yaml").write_text(text)
    answers = {
        form: cli("validate", "a, b.yaml", "--format", form) for form in ("text", "json", "github")
    }
    assert {answer.code for answer in answers.values()} == {2}
    (record,) = json.loads(answers["json"].out)
    assert (record["code"], record["file"]) == ("E203", "a, b.yaml")
    assert (record["line"], record["column"]) == (line, column)
    assert f"error[E203]: {record['message']}\n" in answers["text"].err
    place = (
        f"file=a%2C b.yaml,line={line},endLine={line},col={column},endColumn={record['end_column']}"
    )
    assert answers["github"].out.startswith(f"::error {place},title=E203::{record['message']}")
    (folder / "sub").mkdir()
    (folder / "sub" / "two.yaml").write_text("name: X\n")
    both = cli("validate", "a, b.yaml", "sub", "s*/*.yaml", "--format", "json")
    found = [each["file"] for each in json.loads(both.out) if each["code"] in {"E104", "E203"}]
    assert (both.code, found) == (2, ["a, b.yaml", "sub/two.yaml"])


@pytest.fixture
def tree(tmp_path, monkeypatch):
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
def test_what_is_meant_each_once_in_the_order_given(tree, given, files):
    found = experiment_files([Path(each.format(tree, tree.name)) for each in given])
    assert [path.as_posix() for path in found] == [each.format(tree) for each in files]


@pytest.mark.parametrize("given", ["*.yml", "c"])
def test_a_folder_or_a_pattern_that_means_nothing_is_refused(tree, given):
    (tree / "c").mkdir()
    with pytest.raises(typer.BadParameter, match="there is no experiment"):
        experiment_files([Path(given)])
