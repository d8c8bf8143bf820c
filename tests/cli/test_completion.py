"""Shell completion, requested as shells do."""

import subprocess
import sys

import pytest


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


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("show majori", ["majorize"]),
        ("va", ["validate"]),
        ("ls d", ["datasets"]),
        ("fetch compas", ["compas"]),
        ("init --template sel", ["seldonian"]),
        *((f"{name} ", []) for name in ("run", "explain", "predict")),  # the shell offers files
    ],
)
def test_names_are_completed(bash, line, offered):
    assert bash(f"ratecli {line}") == offered


def test_all_names_are_offered(bash):
    assert {"recall", "error", "loans", "kl", "tradeoff"} <= set(bash("ratecli show "))


def test_completion_imports_nothing_slow():
    code = (
        "import os, sys\n"
        "os.environ.update(_RATECLI_COMPLETE='complete_bash')\n"
        "os.environ.update(COMP_WORDS='ratecli show ', COMP_CWORD='2')\n"
        "from ratecli.cli.app import main; main([])\n"
        "slow = {'numpy', 'pandas', 'scipy', 'pyarrow', 'sklearn'}\n"
        "print(slow & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "set()"
