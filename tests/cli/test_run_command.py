"""`run`, `plan`, `report`: their output and their files, also of small and of several runs."""

import json
import math
import re
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest
from small import PLAIN, SMALL, TRIALS, read_rows

from ratecli.datasets.sources import SOURCES
from ratecli.ledger.records import CONSTRAINT_TOLERANCE
from ratecli.ledger.view import Ledger
from ratecli.report.groups import trial_values
from ratecli.runner.executors import Executor, parse_executor


@pytest.fixture
def run(cli):
    """`ratecli run` in this process."""
    return partial(cli, "run", "--executor", "serial")


@pytest.fixture
def plain(folder):
    path = folder / "small.yaml"
    path.write_text(PLAIN)
    return path


def test_executor_option():
    assert parse_executor(None, 1) == parse_executor("serial", None) == Executor()
    assert parse_executor(None, 2) == parse_executor("processes", 2) == Executor("processes", 2)
    assert parse_executor("dask", 3) == Executor("dask", 3)
    assert parse_executor("dask://here:8786", None) == Executor("dask", None, "tcp://here:8786")
    assert parse_executor("tls://10.0.0.1:8786", 4) == Executor("dask", 4, "tls://10.0.0.1:8786")


def test_two_experiments_of_one_name_are_refused(folder, cli, small):
    other = folder / "other.yaml"
    other.write_text(SMALL)
    answer = cli("run", small, other)
    assert answer.code == 2
    assert "would share results/small" in answer.err
    assert not (folder / "results").exists()


def test_fresh_deletes_stored_trials(run, plain):
    run(plain, "-q", "--set", "seeds=1")
    assert f"({TRIALS} run now)" in run(plain, "--fresh").out


def test_a_failed_trial_does_not_stop_the_rest(folder, run):
    """The training rows of seed 2 have one class only."""
    rows = "x,y\n" + "1,1\n" + "".join(f"{k},0\n" for k in range(5))
    (folder / "few.csv").write_text(rows)
    (folder / "few.yaml").write_text(
        "name: few\n"
        "datasets: {d: {path: few.csv, label: y, split: {train: 1/2, test: 1/2}}}\n"
        "constraints: {a: tpr >= 0.5}\n"
        "algorithms: [majorize]\n"
        "seeds: [1, 2]\n"
    )
    answer = run("few.yaml")
    assert answer.code == 1
    assert "error[E501]: majorize seed=" in answer.err
    assert "E408: 'tpr' is a mean over no rows" in answer.err
    assert "failed: majorize seed=" in answer.out
    first, second = read_rows(folder / "results/few/trials.csv")
    assert first["status"] != "error" == second["status"]
    again = run("few.yaml", "-v")
    assert again.code == 1
    assert "(1 run now)" in again.out
    assert "Traceback" in again.err


def test_plan_counts_the_trials_of_each_algorithm_and_writes_nothing(cli, run, plain, listing):
    def planned(label):
        before, answer = listing(), cli("plan", plain)
        assert (answer.code, listing()) == (0, before)
        return next(line for line in answer.out.splitlines() if line.startswith(label)).split()

    assert planned("all") == ["all", str(TRIALS), "0", str(TRIALS), "unknown"]
    run(plain, "-q", "--set", "seeds=1")
    assert planned("majorize")[:4] == ["majorize", "4", "2", "2"]
    assert "unknown" not in planned("all")


def test_report_writes_the_same_again(folder, cli, run, small):
    run(small, "-q", "--set", "seeds=[1]")
    results = folder / "results" / "small"
    model = "models/majorize-kappa=0.9-seed=1/deterministic.npz"
    made = ("metrics.csv", "report.html", "figures/tradeoff.svg", model)
    before = {name: (results / name).read_bytes() for name in made}
    for name in made:
        (results / name).unlink()
    answer = cli("report", small)
    assert answer.code == 0
    assert {"results/small/report.html", "results/small/models"} < set(answer.out.split())
    assert {name: (results / name).read_bytes() for name in made} == before


@pytest.fixture
def files(folder, cli):
    """Write three experiments and run the first two."""
    made = folder / "exp"
    made.mkdir()
    for name in ("one", "two", "three"):
        (made / f"{name}.yaml").write_text(PLAIN.replace("name: small", f"name: {name}"))
    for name in ("one", "two"):
        few = ("--set", "seeds=1", "--set", "algorithms=[unconstrained]")
        assert cli("run", made / f"{name}.yaml", "-q", *few, "-j", 1).code == 0
    return made


def test_the_joint_page_names_missing_and_broken_results(cli, folder, files):
    joint = folder / "results" / "report.html"
    answer = cli("report", files)
    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "results/report.html"
    assert "results/one/report.html" in answer.out
    said = (
        "not run: nothing is stored in 'results/three' yet: run `ratecli run exp/three.yaml` first"
    )
    assert said in answer.err.replace(f"{folder}/", "")
    for part in ('href="one/report.html">one</a>', ">three<"):
        assert part in joint.read_text()
    alone = cli("report", files / "one.yaml")
    assert (alone.code, alone.out.splitlines()[-1]) == (0, "results/one/models")
    (folder / "results" / "one" / "trials.sqlite").write_bytes(b"no ledger" * 1000)
    broken = cli("report", files)
    assert broken.code == 2
    assert broken.err.count("error[") == 1
    assert "'results/one/trials.sqlite' is not a ledger" in broken.err
    assert broken.out.splitlines()[-1] == "results/report.html"
    for part in ("cannot be read: E502: ", 'href="two/report.html">two</a>', ">three<"):
        assert part in joint.read_text()
    other = cli("report", files / "one.yaml", files / "two.yaml", "-o", "elsewhere")
    assert other.code == 2
    assert "nothing is stored in 'elsewhere/one' yet" in other.err
    assert not (folder / "elsewhere").exists()


TWO = """
name: two
datasets:
  a: {source: loans, rows: 200}
  b: {source: loans, rows: 300}
groups: {women: sex = Female, men: sex = Male}
objective: error
constraints: {close: 'error <= slack * of(unconstrained, error)'}
sweep: {dataset: [a, b], slack: [1.1, 1.2]}
algorithms:
  - unconstrained
  - thresholded
report: {plots: []}
"""


NOBODY = """
name: nobody
datasets: {loans: {source: loans, rows: 400}}
objective: positive_rate
constraints: {few: precision >= 0.1, ratio: fpr / tpr <= 2}
algorithms: [unconstrained]
report: {plots: []}
"""


def test_a_model_that_is_worse_than_a_constant_is_not_offered(folder, cli):
    """Nobody is selected at less cost, but precision is then 0 / 0."""
    (folder / "nobody.yaml").write_text(NOBODY)
    answer = cli("run", "nobody.yaml", "--executor", "serial")
    assert answer.code == 0
    (rate,) = pd.read_csv("results/nobody/metrics.csv").query(
        "split == 'test' and metric == 'objective'"
    )["value"]
    said = (
        f"it is worse than selecting nobody by {rate:.4f} (positive_rate 0.0000). "
        "There, few and ratio are 0 / 0 and count as not satisfied"
    )
    assert said in answer.out
    assert (
        "against 0; for the constant, few and ratio are 0 / 0 and count as not satisfied"
        in answer.err
    )
    assert "ratecli fit" not in answer.out


def test_a_smoke_run_is_at_the_goal_and_lists_nothing_else(folder, cli):
    (folder / "exp.yaml").write_text(PLAIN + "goal: {kappa: 0.9}\n")
    answer = cli("run", "exp.yaml", "--smoke", "--executor", "serial")
    assert answer.code == 0, answer.err
    ran = pd.read_csv("results/small/metrics.csv")
    assert set(ran.kappa) == {0.9}
    assert "kappa = 0.9: " in answer.out
    rows = [line.split()[:2] for line in answer.out.splitlines()]
    assert [row for row in rows if row[1:] == ["0.6"]] == []


def test_smoke_runs_one_trial_of_each_algorithm_and_data_set(folder, cli):
    (folder / "two.yaml").write_text(TWO)
    answer = cli("run", "two.yaml", "--smoke", "--executor", "serial")
    assert answer.code == 0
    said = "two: 4 trials: 4 ok (4 run now)\n4 more trials planned: run without --smoke"
    assert said in answer.out
    few = pd.read_csv("results/two/metrics.csv")
    ran = few[["algorithm", "dataset", "slack", "seed"]].drop_duplicates().to_numpy().tolist()
    both = [
        [name, dataset, 1.1, 0] for name in ("thresholded", "unconstrained") for dataset in "ab"
    ]
    assert sorted(ran) == both
    assert cli("check", "two.yaml").code == 3
    assert cli("pin", "two.yaml").code == 2
    answer = cli("run", "two.yaml", "--executor", "serial")
    assert "8 trials: 8 ok (4 run now)" in answer.out
    assert "--smoke" not in answer.out
    both = few.merge(pd.read_csv("results/two/metrics.csv"), how="inner")
    assert len(both) == len(few)
    assert not (folder / "results" / "two" / "figures").exists()  # an empty list of plots


WHAT = "a stand-in for real loans; results are not comparable with those on them"
SAID = f"The data set loans is {WHAT}."


@pytest.mark.parametrize("stand_in", ["", WHAT])
def test_results_and_show_say_that_data_is_a_stand_in(cli, folder, small, monkeypatch, stand_in):
    monkeypatch.setitem(SOURCES, "loans", replace(SOURCES["loans"], stand_in=stand_in))
    table = "{rows: [algorithm], columns: [error], file: errors}"
    few = ("algorithms=[unconstrained]", "sweep.kappa=[0.6]", "seeds=1")
    small.write_text(PLAIN.replace("plots: []", f"plots: [], tables: [{table}]"))
    changes = [part for each in few for part in ("--set", each)]
    assert cli("run", small, "-j", 1, *changes).code == 0
    results = folder / "results" / "small"
    for name in ("summary.md", "tables/errors.md", "report.html"):
        assert (SAID in (results / name).read_text()) == bool(stand_in)
    manifest = json.loads((results / "manifest.json").read_text())
    assert manifest["data"]["loans"].get("stand_in", "") == stand_in
    assert (WHAT in cli("show", "loans").out) == bool(stand_in)


DIVERGING = """\
name: long
datasets: {loans: {source: loans, rows: 300, split: {validation: 1/3}}}
groups: {women: sex = Female}
objective: kl(base_rate, positive_rate[women])
constraints: {a: error <= 0.3}
algorithms:
  - three_player: {as: steps, steps: 60, optimizer: sgd, rates: surrogate, learning_rate: 1e+10}
  - three_player: {as: prices, steps: 60, multipliers: swap_regret, multiplier_rate: 1e+10}
  - three_player: {as: oracle, steps: 20, oracle: linear, multipliers: swap_regret,
      multiplier_rate: 1e+10}
  - three_player: {as: grid, steps: 60, optimizer: sgd, rates: surrogate,
      tune: {learning_rate: [0.1, 1e+10]}}
report: {plots: [], tables: [{rows: [algorithm, variant], columns: [objective]}]}
"""


def test_a_diverged_trial_has_no_numbers(folder, cli):
    (folder / "long.yaml").write_text(DIVERGING)
    answer = cli("run", "long.yaml", "-j", 1, "-q")
    assert answer.code == 1
    written = folder / "results" / "long"
    rows = read_rows(written / "metrics.csv")
    assert {row["algorithm"] for row in rows} == {"grid"}
    assert all(re.fullmatch(r"-?\d.*", row["value"]) for row in rows)
    summary = (written / "summary.md").read_text()
    assert "nan" not in summary
    for label in ("steps", "prices", "oracle"):
        assert re.search(rf"\| {label} .*\| diverged 1 *\|", summary)
        assert re.search(rf"E501.: {label} seed=0: the .* became infinite: lower", answer.err)
    assert "lower multiplier_rate" in (written / "report.html").read_text()


TRACED = """\
name: traces
datasets: {d: {source: loans, rows: 300, split: {validation: 0.2}}}
groups: {women: sex = Female, men: sex = Male}
constraints: {parity: 'positive_rate[women] >= 0.8 * positive_rate[men]'}
algorithms:
  - unconstrained
  - thresholded
  - thresholded: {as: plug_in, free: true}
  - zafar
  - post_shift
  - majorize: {iterations: 3}
  - mixture
  - three_player: {steps: 40, tune: {learning_rate: [0.01, 0.1]}}
report: {plots: []}
"""


def test_columns_of_traces(folder, cli):
    (folder / "traces.yaml").write_text(TRACED)
    answer = cli("run", "traces.yaml", "-q", "--executor", "serial")
    assert answer.code == 0, answer.err
    ledger = Ledger.read(folder / "results" / "traces" / "trials.sqlite")
    traces = {trial.label: ledger.results[trial.key].trace for trial in ledger.plan}
    assert {label for label, trace in traces.items() if not trace} == {"unconstrained"}
    for label, trace in traces.items():
        rows = [[row[key] for key in ("iteration", "seconds")] for row in trace]
        assert rows == sorted(rows), label
        assert all(row["violation"] >= 0 for row in trace), label
        assert all(not math.isnan(row["objective"]) for row in trace), label
    found = {
        (trial.label, split, metric): value
        for trial in ledger.plan
        for _, split, metric, value in trial_values(ledger, trial)
    }
    for label in ("thresholded", "plug_in", "zafar"):
        measured = found[label, "train", "violation.parity"]
        assert traces[label][0]["violation"] == pytest.approx(max(measured, 0.0), abs=1e-9), label
    assert traces["plug_in"][0]["violation"] > CONSTRAINT_TOLERANCE
    assert [row["iteration"] for row in traces["three_player"]] == [0, 10, 20, 30, 40, 41]
    assert traces["mixture"][-1]["violation"] <= CONSTRAINT_TOLERANCE
