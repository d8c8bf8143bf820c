from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest
import typer.main

from ratecli.runner import executors

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))


@pytest.fixture(scope="session", autouse=True)
def commands():
    """What Typer makes of the app, made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty working folder without data or network; a mirror is left, where there is one.

    Trials run in this process: numbers do not hang on where, and each worker imports for seconds.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(executors, "USUAL_JOBS", 1)
    monkeypatch.setenv("RATECLI_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:9")
    return tmp_path
