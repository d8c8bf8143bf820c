"""`validate --format`: the same diagnostics as text, JSON and GitHub annotations."""

from __future__ import annotations

import json

from broken_files import HEAD
from marked import marked


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


def test_files_folders_and_patterns_at_once(folder, cli):
    names = ("one.yaml", "sub/deep/three.yml", "sub/two.yaml")
    for path in names:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("name: X\n")
    answer = cli("validate", "one.yaml", "sub", "s*/*.yaml", "--format", "json")
    assert answer.code == 2
    found = [record["file"] for record in json.loads(answer.out) if record["code"] == "E104"]
    assert found == list(names)
