"""`deployed: {model: ...}` compares with a model that another run stored."""

import shutil

import pytest
from people import DATA, measured, read, trial
from thinned import one_in

BASE = f"datasets: {{people: {{label: y, {DATA}}}}}\nalgorithms: [unconstrained]\nreport: {{plots: []}}\n"
STORED = f"{trial('majorize')}/deterministic.npz"
SECOND = f"""\
name: second
{BASE}deployed: {{model: {STORED}}}
metrics: {{churn: churn, their_churn: 'of(deployed, churn)', women: 'churn[sex = F]'}}
"""
COPY = "copy the model to another folder and use the copy"


def test_churn_against_the_stored_model(folder, cli, rows):
    (folder / "second.yaml").write_text(SECOND)
    assert cli("run", "second.yaml", "-q", "-j", 1).code == 0
    ours = f"{trial('unconstrained', 'second')}/deterministic.npz"
    old, new = (read(cli("predict", model, "people.csv").out).decision for model in (STORED, ours))
    changed = old != new
    known = measured("second", "unconstrained", "deterministic")
    for split in ("train", "test"):
        part = rows.part == split
        assert 0 < changed[part].sum() < part.sum()
        assert known["churn", split] == pytest.approx(changed[part].mean(), abs=1e-12)
        women = part & (rows.sex == "F")
        assert known["women", split] == pytest.approx(changed[women].mean(), abs=1e-12)
        assert known["their_churn", split] == 0.0


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("output", ["results", "elsewhere"])
def test_a_run_may_not_compare_with_its_own_models(folder, cli, output):
    def write(model: object) -> None:
        text = f"name: itself\n{BASE}deployed: {{model: {model}}}\nmetrics: {{churn: churn}}\n"
        (folder / "itself.yaml").write_text(text)

    shutil.copy(STORED, "first.npz")
    write("first.npz")
    assert cli("run", "itself.yaml", "-q", "-j", 1, "-o", output).code == 0
    inside = f"{output}/itself/models"
    own = f"{inside}/unconstrained-seed=0/deterministic.npz"
    shutil.copy("first.npz", f"{inside}/mine.npz")
    (folder / "link.npz").symlink_to(folder / own)
    for model in (own, f"{inside}/mine.npz", "link.npz", folder / own):
        write(model)
        for command in ("run", "plan"):
            answer = cli(command, "itself.yaml", "-o", output)
            assert answer.code == 2
            assert f"error[E310]: 'itself.yaml' replaces the models in '{inside}'" in answer.err
            assert "--> itself.yaml:5:19" in answer.err
            assert COPY in answer.err


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("reverse", one_in(2, [False, True]))
def test_two_runs_of_a_command_may_not_share_a_model(folder, cli, reverse):
    (folder / "second.yaml").write_text(SECOND)
    files = sorted(["first.yaml", "second.yaml"], reverse=reverse)
    both = ("run", *files, "-q", "-j", 1)
    answer = cli(*both)
    assert answer.code == 2
    message = "'first.yaml' replaces the models in 'results/first/models'"
    assert f"error[E310]: {message}\n  --> second.yaml:5:19" in answer.err
    assert f"{COPY}, or run the files one by one" in answer.err
    assert not (folder / "results" / "second").exists()
    assert cli("run", "second.yaml", "-q", "-j", 1).code == 0
    assert cli(*both, "-o", "new").code == 0
