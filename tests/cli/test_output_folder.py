"""Results that cannot be written: one message, before trials run."""

import os

import pytest
from small import SMALL

from ratecli.cli.results import REFERENCE
from ratecli.config.experiment import RESERVED_RESULT_FILES
from ratecli.files import COMPARISON_FOLDER, LEDGER_FILE, REPORT_FILE
from ratecli.ledger.locks import LOCK_FILE, REPORT_LOCK_FILE
from ratecli.report.write import REPORT_FILES, REPORT_FOLDERS, check_report_folder


@pytest.fixture
def refused(folder, small, cli):
    """Run, expect that nothing is run, and return the errors."""

    def call(*options) -> list[str]:
        answer = cli("run", small.name, "-j", 1, *options)
        assert (answer.code, answer.out) == (2, "")
        assert not (folder / "results" / "small" / LEDGER_FILE).is_file()
        return [line for line in answer.err.splitlines() if line.startswith("error[")]

    return call


@pytest.mark.parametrize(
    ("kind", "names", "message"),
    [
        ("file", ("small",), ""),
        ("file", ("small/figures",), "it is not a folder"),
        ("folder", ("small/metrics.csv", "small/report.html"), "it is a folder"),
        ("folder", ("small/trials.sqlite",), ""),
    ],
)
def test_all_that_is_in_the_way_is_reported_at_once(folder, refused, kind, names, message):
    for path in (folder / "results" / name for name in names):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if kind == "folder" else path.touch()
    errors = refused("--fresh")
    assert len(errors) == len(names)
    for error, name in zip(errors, names, strict=True):
        assert error.startswith(f"error[E505]: cannot write to 'results/{name}': {message}")
    if "sqlite" in names[0]:
        assert refused()[0].startswith("error[E503]")
    (error,) = refused("-o", "small.yaml/deep")
    assert error.startswith("error[E505]: cannot write to 'small.yaml/deep/small': ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("name", ["", *REPORT_FOLDERS])
def test_a_folder_without_permission(folder, refused, name):
    place = folder / "results" / "small" / name
    place.mkdir(parents=True)
    place.chmod(0o500)
    (error,) = refused()
    assert error.startswith("error[E505]: cannot write to ")


def test_a_plot_that_cannot_be_written(folder, cli):
    (folder / "small.yaml").write_text(SMALL.replace("seeds: 2", "seeds: 1"))
    (folder / "results" / "small" / "figures" / "tradeoff.svg").mkdir(parents=True)
    for name in ("run", "report"):
        answer = cli(name, "small.yaml", *(["-q", "-j", 1] if name == "run" else []))
        assert answer.code == 2
        assert "error[E505]: cannot write to 'results/small/figures/tradeoff.svg': " in answer.err


def test_the_names_that_are_checked_are_those_written(folder, small, cli):
    assert cli("run", small, "-q", "-j", 1, "--set", "seeds=1").code == 0
    results = folder / "results" / "small"
    check_report_folder(results)
    record = ["experiment.yaml", "resolved.yaml", "manifest.json"]
    record += [LEDGER_FILE, LOCK_FILE, REPORT_LOCK_FILE]
    names = {path.name for path in results.iterdir()}
    assert names == {*REPORT_FILES, *record, "figures", "models"}


def test_reserved_names_of_experiments():
    assert set(RESERVED_RESULT_FILES) == {REFERENCE.name, REPORT_FILE, COMPARISON_FOLDER}
