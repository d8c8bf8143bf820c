"""Results that cannot be written: one message, before trials run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from small import SMALL

from ratecli.cli.results import JOINED_REPORT, REFERENCE
from ratecli.config.experiment import RESERVED_RESULT_FILES
from ratecli.files import LEDGER_FILE
from ratecli.ledger.store import LOCK_FILE, REPORT_LOCK_FILE
from ratecli.report.write import REPORT_FILES, REPORT_FOLDERS, check_report_folder

SEVERAL = (("report.html",), ("metrics.csv", "summary.md"))


@pytest.fixture
def refused(folder, cli):
    """What `run` says of the reason, having run nothing."""
    (folder / "small.yaml").write_text(SMALL)

    def call(*options) -> list[str]:
        answer = cli("run", "small.yaml", "-j", 1, *options)
        assert answer.code == 2
        assert "Traceback" not in answer.err
        assert "internal" not in answer.err
        assert answer.out == ""
        assert not (folder / "results" / "small" / LEDGER_FILE).is_file()
        return [line for line in answer.err.splitlines() if line.startswith("error[")]

    return call


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="there is no such file system")
def test_a_folder_that_cannot_be_made(refused):
    (error,) = refused("-o", "/proc/nope")
    assert error == ("error[E505]: cannot write to '/proc/nope/small': No such file or directory")


def test_a_file_where_the_folder_should_be(folder, refused):
    (folder / "results").mkdir()
    (folder / "results" / "small").touch()
    (error,) = refused()
    assert error.startswith("error[E505]: cannot write to 'results/small': ")
    (error,) = refused("-o", "small.yaml/deep")
    assert error.startswith("error[E505]: cannot write to 'small.yaml/deep/small': ")


@pytest.mark.parametrize("names", SEVERAL)
def test_folders_where_files_should_be(folder, refused, names):
    for name in names:
        (folder / "results" / "small" / name).mkdir(parents=True)
    assert refused() == [
        f"error[E505]: cannot write to 'results/small/{name}': it is a folder" for name in names
    ]


def test_a_file_where_figures_should_be(folder, refused):
    (folder / "results" / "small").mkdir(parents=True)
    (folder / "results" / "small" / "figures").touch()
    assert refused() == ["error[E505]: cannot write to 'results/small/figures': it is no folder"]


def test_the_ledger_is_a_folder(folder, refused):
    (folder / "results" / "small" / LEDGER_FILE).mkdir(parents=True)
    assert refused("--fresh")[0].startswith(
        "error[E505]: cannot write to 'results/small/trials.sqlite': "
    )
    assert refused()[0].startswith("error[E503]")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("name", ["", *REPORT_FOLDERS])
def test_a_folder_without_permission(folder, refused, name):
    place = folder / "results" / "small" / name
    place.mkdir(parents=True)
    place.chmod(0o500)
    (error,) = refused()
    assert error.startswith("error[E505]: cannot write to ")


def test_a_report_that_cannot_be_written_again(folder, cli):
    """What no look beforehand finds."""
    (folder / "small.yaml").write_text(SMALL.replace("seeds: 2", "seeds: 1"))
    (folder / "results" / "small" / "figures" / "tradeoff.svg").mkdir(parents=True)
    for name in ("run", "report"):
        answer = cli(name, "small.yaml", *(["-q", "-j", 1] if name == "run" else []))
        assert answer.code == 2
        assert "error[E505]: cannot write to 'results/small/figures/tradeoff.svg': " in answer.err


def test_what_is_looked_at_beforehand_is_what_is_written(folder, cli):
    (folder / "small.yaml").write_text(SMALL.replace("seeds: 2", "seeds: 1"))
    assert cli("run", "small.yaml", "-q", "-j", 1).code == 0
    results = folder / "results" / "small"
    check_report_folder(results)
    record = {
        "experiment.yaml",
        "resolved.yaml",
        "manifest.json",
        LEDGER_FILE,
        LOCK_FILE,
        REPORT_LOCK_FILE,
    }
    assert {path.name for path in results.iterdir()} == {
        *REPORT_FILES,
        *record,
        "figures",
        "models",
    }


def test_no_experiment_takes_the_place_of_what_else_is_in_the_folder_of_results():
    assert set(RESERVED_RESULT_FILES) == {REFERENCE.name, JOINED_REPORT}
