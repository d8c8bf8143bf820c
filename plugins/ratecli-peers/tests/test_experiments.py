"""The experiments with algorithms of this package are valid."""

from pathlib import Path

import pytest

from experiments import COMPARISON
from ratecli.experiment.prepare import check_file

FILES = (*COMPARISON, *sorted((Path(__file__).parents[1] / "experiments").glob("*.yaml")))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_experiments_are_valid_without_data(path):
    for package in ("lightgbm", *["error_parity"] * ("other-python" in path.parent.name)):
        pytest.importorskip(package)
    check_file(path)
