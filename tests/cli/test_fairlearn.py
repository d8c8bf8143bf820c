"""The optional algorithm: with fairlearn it runs, without it the file is refused."""

import importlib.util
import re
from importlib import metadata

import pytest

from ratecli.solvers import registry

TEXT = """\
name: eg
datasets: {loans: {source: loans, rows: 300}}
groups: {women: sex = Female, men: sex = Male}
constraints: {parity: 'min_ratio(positive_rate, by=sex) >= 0.8'}
algorithms:
  - exponentiated_gradient: {iterations: 5}
report: {plots: []}
"""
installed = pytest.mark.skipif(
    importlib.util.find_spec("fairlearn") is None, reason="the extra 'fairlearn' is missing"
)


@installed
def test_it_runs_as_any_other_and_its_version_is_part_of_the_key(folder, cli, monkeypatch):
    (folder / "eg.yaml").write_text(TEXT)
    answer = cli("run", "eg.yaml", "-j", 1)
    assert (answer.code, "error" in answer.err) == (0, False)
    models = folder / "results" / "eg" / "models" / "exponentiated_gradient-seed=0"
    assert {path.name for path in models.glob("*.npz")} == {"deterministic.npz"}
    assert re.search(r"^all +1 +1 +0 ", cli("plan", "eg.yaml").out, re.MULTILINE)
    version = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: "99" if name == "fairlearn" else version(name)
    )
    assert re.search(r"^all +1 +0 +1 ", cli("plan", "eg.yaml").out, re.MULTILINE)


def test_without_fairlearn_it_is_listed_and_a_file_that_names_it_refused(folder, cli, monkeypatch):
    monkeypatch.setattr(registry, "find_spec", lambda _: None)
    assert "ratecli[fairlearn]" in cli("ls", "algorithms").out
    assert cli("show", "exponentiated_gradient").code == 0
    (folder / "eg.yaml").write_text(TEXT)
    answer = cli("validate", "eg.yaml")
    assert answer.code == 2
    message = "'exponentiated_gradient' needs fairlearn, which is not installed"
    assert f"error[E202]: {message}" in answer.err
    assert "--> eg.yaml:6:" in answer.err
    assert "pip install 'ratecli[fairlearn]'" in answer.err
    (folder / "eg.yaml").write_text(
        TEXT.replace("exponentiated_gradient: {iterations: 5}", "mixture")
    )
    assert cli("validate", "eg.yaml").code == 0
