"""`validate --format`: the same diagnostics as text, JSON and GitHub annotations."""

from __future__ import annotations

import json
import re

import pytest
from broken_files import marked, rule
from json_schema import faults as misfits

RECORD = {
    "type": "object",
    "required": ["code", "severity", "message", "help", "file", "line", "column", "end_column"],
    "additionalProperties": False,
    "properties": {
        "code": {"type": "string", "pattern": "^[EW][0-9]{3}$"},
        "severity": {"enum": ["error", "warning"]},
        "message": {"type": "string", "minLength": 1},
        "help": {"type": ["string", "null"]},
        "file": {"type": ["string", "null"]},
        "line": {"type": ["integer", "null"], "minimum": 1},
        "column": {"type": ["integer", "null"], "minimum": 1},
        "end_column": {"type": ["integer", "null"], "minimum": 2},
    },
}
COMMAND = re.compile(r"::(error|warning) ([^:]+)::(.+)")


def unescaped(text: str) -> str:
    for code, sign in {"%3A": ":", "%2C": ",", "%0A": "\n", "%0D": "\r", "%25": "%"}.items():
        text = text.replace(code, sign)
    return text


def test_all_formats_have_the_same_content(folder, cli):
    text, ((line, column),) = marked(rule("⟦recal⟧[women] >= 0.8"))
    name = "a, b: 100%.yaml"
    (folder / name).write_text(text)
    plain = cli("validate", name)
    answer = cli("validate", name, "--format", "json")
    assert answer.code == plain.code == 2
    records = json.loads(answer.out)
    assert misfits({"type": "array", "items": RECORD}, records, {}) == []
    (record,) = records
    assert (record["code"], record["file"]) == ("E203", name)
    assert (record["line"], record["column"]) == (line, column)
    assert "error[E203]" in plain.err

    answer = cli("validate", name, "--format", "github")
    assert answer.code == 2
    (said,) = answer.out.splitlines()
    severity, listed, message = COMMAND.fullmatch(said).groups()
    properties = dict(pair.split("=") for pair in listed.split(","))
    assert severity == "error"
    assert {key: unescaped(value) for key, value in properties.items()} == {
        "file": name, "line": str(line), "endLine": str(line), "col": str(column),
        "endColumn": str(record["end_column"]), "title": "E203",
    }  # fmt: skip
    help_ = f"\nhelp: {record['help']}" if record["help"] else ""
    assert unescaped(message) == record["message"] + help_


@pytest.mark.parametrize("form", ["text", "json", "github"])
def test_files_folders_and_patterns_at_once(folder, cli, form):
    for path in ("one.yaml", "sub/two.yaml", "sub/deep/three.yml"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("name: X\n")
    answer = cli("validate", "one.yaml", "sub", "s*/*.yaml", "--format", form)
    assert answer.code == 2
    said = answer.out + answer.err
    assert [said.count(f"{name}.y") > 0 for name in ("one", "sub/two", "sub/deep/three")] == [
        True
    ] * 3
    if form == "json":
        found = [record["file"] for record in json.loads(answer.out) if record["code"] == "E104"]
        assert found == ["one.yaml", "sub/deep/three.yml", "sub/two.yaml"]
