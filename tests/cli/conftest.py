from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from bitmaps import leave_out_bitmaps
from data_folder import forbid_network
from people import EXPERIMENTS, people
from small import SMALL

from ratecli.cli.app import main


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """An empty working folder without data, mirror or network; bitmaps of plots are left out."""
    leave_out_bitmaps(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATECLI_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("RATECLI_DATA_MIRROR", raising=False)
    forbid_network(monkeypatch)
    return tmp_path


@pytest.fixture
def cli(capsys):
    """`cli("run", "exp.yaml")` in this process."""

    def call(*arguments) -> Answer:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture
def listing(folder):
    """Every file of the working folder with its bytes."""

    def look() -> dict[str, bytes | None]:
        found = (Path(root) / name for root, _, names in os.walk(folder) for name in (*names, "."))
        return {
            str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
            for path in found
        }

    return look


@pytest.fixture
def small(folder):
    path = folder / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="session")
def ran(tmp_path_factory) -> Path:
    """Run the experiments on people once; return the folder with the table and the results."""
    place = tmp_path_factory.mktemp("ran")
    people().to_csv(place / "people.csv", index=False)
    for name, text in EXPERIMENTS.items():
        path = place / f"{name}.yaml"
        path.write_text(text)
        assert main(["run", str(path), "-q", "-j", "1", "-o", str(place / "results")]) == 0
    return place


@pytest.fixture
def rows(folder, ran) -> pd.DataFrame:
    """Copy the table and the results to the working folder; return the table."""
    shutil.copytree(ran, folder, dirs_exist_ok=True)
    return people()
