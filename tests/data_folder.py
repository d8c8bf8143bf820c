from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, not made yet."""
    folder = tmp_path / "data"
    monkeypatch.setenv("RATECLI_DATA", str(folder))
    return folder


def forbid_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set proxies that nothing answers."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:9")
