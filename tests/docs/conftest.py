import sys
from pathlib import Path

import pytest
from bitmaps import leave_out_bitmaps
from data_folder import forbid_network

from ratecli.runner import executors

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Return an empty working folder without data or network, apart from a mirror.

    Trials run in this process, because each worker process imports for seconds. Pages show the
    vector graphics of plots.
    """
    leave_out_bitmaps(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(executors, "USUAL_JOBS", 1)
    monkeypatch.setenv("RATECLI_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    forbid_network(monkeypatch)
    return tmp_path
