from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, not made yet."""
    folder = tmp_path / "data"
    monkeypatch.setenv("RATECLI_DATA", str(folder))
    return folder
