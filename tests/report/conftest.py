from pathlib import Path

import pytest
import synthetic_ledger
from bitmaps import leave_out_bitmaps

from ratecli.ledger.view import Ledger
from ratecli.report.plots import draw_plots
from ratecli.report.plots.canvas import PlotImage
from ratecli.report.write import write_report


@pytest.fixture(autouse=True)
def vectors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the bitmaps of plots, unless a test compares whole images."""
    if "images" not in request.fixturenames:
        leave_out_bitmaps(monkeypatch)


@pytest.fixture(scope="session")
def example() -> Ledger:
    return synthetic_ledger.example()


@pytest.fixture(scope="session")
def images(example: Ledger) -> list[PlotImage]:
    return draw_plots(example)


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory, example: Ledger) -> Path:
    """A results folder whose report is written; tests leave it as it is."""
    folder = synthetic_ledger.store(tmp_path_factory.mktemp("quickstart"), example, example.plan)
    with pytest.MonkeyPatch.context() as patch:
        leave_out_bitmaps(patch)
        write_report(folder)
    return folder
