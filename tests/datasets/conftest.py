from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from data_folder import data  # noqa: F401  a fixture
from toy_source import Answers

from ratecli.datasets import files


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """The server, no proxy before it, and no mirror."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("RATECLI_DATA_MIRROR", raising=False)
    monkeypatch.setattr(files, "RETRY_SECONDS", 0.01)
    answers = Answers()
    thread = threading.Thread(target=answers.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield answers
    answers.server.shutdown()
    thread.join()
    answers.server.server_close()
