"""Shell completion, requested as shells do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from small import SMALL, command

TABLE = 'id,sex,"full, name",y\n1,F,a,0\n2,M,b,1\n'


@pytest.fixture
def bash(monkeypatch, capsys):
    """Return the completions of the last word of a line."""
    from ratecli.cli.app import main  # noqa: PLC0415

    def ask(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_RATECLI_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        capsys.readouterr()
        assert main([]) == 0
        monkeypatch.delenv("_RATECLI_COMPLETE")
        out, err = capsys.readouterr()
        assert err == ""
        return [word for word in out.split("\n") if word]

    return ask


@pytest.fixture
def files(folder):
    (folder / "exp").mkdir()
    (folder / "exp" / "a.yaml").write_text(SMALL)
    (folder / "exp" / "broken.yaml").write_text("name: [\n")
    (folder / "exp" / "notes.txt").write_text("")
    (folder / "exp" / ".hidden.yaml").write_text("")
    (folder / "t.csv").write_text(TABLE)
    (folder / "results" / "small" / "models" / "majorize-seed=0").mkdir(parents=True)
    return folder


def test_names(bash):
    assert bash("ratecli show majori") == ["majorize"]
    assert {"recall", "error", "loans", "kl", "tradeoff"} <= set(bash("ratecli show "))
    assert bash("ratecli ls d") == ["datasets"]
    assert bash("ratecli fetch com") == ["compas", "communities"] or bash(
        "ratecli fetch compas"
    ) == ["compas"]
    assert bash("ratecli init --template sel") == ["seldonian"]
    assert "validate" in bash("ratecli va")


@pytest.mark.usefixtures("files")
def test_files(bash):
    for name in ("run", "plan", "explain", "validate", "report", "fetch"):
        assert bash(f"ratecli {name} exp/") == ["exp/a.yaml", "exp/broken.yaml"], name
        assert "exp/" in bash(f"ratecli {name} e"), name
    assert bash("ratecli predict results/") == [
        "results/small/models/majorize-seed=0",
        "results/small/",
    ]
    assert bash("ratecli predict model t") == ["t.csv"]


@pytest.mark.usefixtures("files")
def test_keys_of_the_named_file(bash):
    assert bash("ratecli run exp/a.yaml --set see") == ["seeds="]
    offered = bash("ratecli plan exp/a.yaml --set ")
    assert {"sweep.kappa=", "datasets.loans.rows=", "algorithms.1.majorize.iterations="} <= set(
        offered
    )
    assert bash("ratecli run exp/broken.yaml --set see") == []
    assert bash("ratecli run nowhere.yaml --set see") == []


def test_columns_of_the_named_table(bash, files):
    assert bash("ratecli init --data t.csv --label ") == ["id", "sex", "full, name", "y"]
    assert bash("ratecli filter t.csv --by s") == ["sex"]
    (files / "t.csv").write_bytes(b"\xff\xfe\0")
    assert bash("ratecli init --data t.csv --label ") == []


def test_errors_give_no_completions(bash, files):
    (files / "exp" / "wild\x1b[31m.yaml").write_text("")
    assert bash("ratecli run exp/") == ["exp/a.yaml", "exp/broken.yaml"]
    assert bash("ratecli run nowhere/") == []


@pytest.mark.parametrize(
    ("shell", "asked", "offered"),
    [
        ("bash", {"COMP_WORDS": "ratecli show majori", "COMP_CWORD": "2"}, "majorize\n"),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "ratecli show majori"}, '"majorize":"ramp rates'),
        ("fish", {"_TYPER_COMPLETE_ARGS": "ratecli show majori", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "majorize\tramp rates"),
    ],
)  # fmt: skip
def test_shells(shell, asked, offered):
    environment = {**os.environ, **asked, "_RATECLI_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(
        command(), env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    assert offered in done.stdout


def test_completion_imports_nothing_slow():
    code = (
        "import os, sys; os.environ.update(_RATECLI_COMPLETE='complete_bash', COMP_WORDS='ratecli show ', COMP_CWORD='2')\n"
        "from ratecli.cli.app import main; main([])\n"
        "print({'numpy', 'pandas', 'scipy', 'pyarrow', 'sklearn'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "set()"
