"""`validate`, `explain` and `fetch`, which run nothing."""

import hashlib
import re

import pytest
from small import SMALL, quickstart

from ratecli.datasets.source import RemoteFile, Source
from ratecli.datasets.sources import SOURCES

CONTENT = b"a,b\n1,2\n" * 50


@pytest.fixture
def mirror(folder, monkeypatch):
    """The file in a mirror of a source that is nowhere else."""
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    file = RemoteFile("t.csv", "http://127.0.0.1:9/t.csv", sha256, len(CONTENT))
    source = Source(
        name="toy", summary="", preparations={"plain": "nowhere:prepare"}, rows=50, label="a",
        sensitive=(), licence="", notes="", files=(file,),
    )  # fmt: skip
    monkeypatch.setitem(SOURCES, "toy", source)
    place = folder / "mirror" / "toy"
    place.mkdir(parents=True)
    (place / "t.csv").write_bytes(CONTENT)
    monkeypatch.setenv("RATECLI_DATA_MIRROR", str(folder / "mirror"))
    return place / "t.csv"


def test_validate_good_files(cli, small, listing):
    before = listing()
    answer = cli("validate", small, quickstart())
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        f"{small}: no errors, 8 trials",
        f"{quickstart()}: no errors, 60 trials",
    ]
    assert listing() == before


def test_validate_without_the_data(cli, folder, small):
    small.write_text(SMALL.replace("source: loans, rows: 200", "source: compas"))
    said = "data not checked (compas/compas-scores-two-years.csv not present)"
    assert said in cli("validate", small).out
    assert not (folder / "data").exists()


def test_explain_shows_goals_that_an_algorithm_refuses(cli, small, listing):
    rule = "positive_rate[women] >= kappa * positive_rate[men]"
    small.write_text(SMALL.replace(rule, "max_gap(precision, by=sex) <= 0.1"))
    before = listing()
    answer = cli("explain", small)
    assert answer.code == 2
    assert "a comparison of ratios of rates" in answer.out
    assert "true_positives[sex = Female]" in answer.out
    assert "error[E308]: algorithm 'majorize' cannot enforce 'parity'" in answer.err
    assert listing() == before


def test_fetch_sources_and_the_data_of_experiments_from_a_mirror(cli, folder, small, mirror):
    small.write_text(SMALL.replace("loans: {source: loans, rows: 200}", "t: {source: toy}"))
    path = folder / "data" / "toy" / "t.csv"
    answer = cli("fetch", "toy", "loans", "--offline")
    assert answer.out.splitlines() == [f"{path}  verified", "loans: nothing to download"]
    assert "fetching t.csv" in answer.err
    assert path.read_bytes() == CONTENT
    mirror.unlink()
    again = cli("fetch", small, "--offline")
    assert (again.code, again.out, again.err) == (0, f"{path}  verified\n", "")


def test_fetch_an_unknown_name(cli):
    answer = cli("fetch", "adlut", "nowhere.yaml")
    assert answer.code == 2
    assert "did you mean 'adult'?" in answer.err
    assert "E005" in answer.err


def test_a_measure_of_scores_as_a_goal_is_refused_with_a_way_by_levels(cli, small):
    small.write_text(SMALL.replace("objective: error", "objective: 1 - roc_auc"))
    answer = cli("validate", small)
    assert answer.code == 2
    assert "write for example '1 - mean(tpr, by=level)' with an upper bound on" in answer.err
    rules = "".join(f"  l{k}: 'fpr[level = {k}] <= {(k + 1) / 3}'\n" for k in range(2))
    text = SMALL.replace("objective: error", "objective: 1 - mean(tpr, by=level)")
    text = text.replace("rows: 200", "rows: 200, levels: 2").replace("majorize", "mixture")
    text = re.sub(r"  parity: .*\nsweep: .*\n", rules, text).replace("{iterations: 2}", "{}")
    small.write_text(text)
    assert cli("validate", small).code == 0, cli("validate", small).err
