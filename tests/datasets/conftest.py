from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_source import Answers


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """The server, no proxy before it, and no mirror."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("RATECLI_DATA_MIRROR", raising=False)
    answers = Answers()
    thread = threading.Thread(target=answers.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield answers
    answers.server.shutdown()
    thread.join()
    answers.server.server_close()


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, not made yet."""
    folder = tmp_path / "data"
    monkeypatch.setenv("RATECLI_DATA", str(folder))
    return folder
