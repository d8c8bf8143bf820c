"""Experiments on streamed data sets, against the same tables in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bitmaps import leave_out_bitmaps
from oracles.goals import tangent
from scipy.stats import norm
from typer.testing import CliRunner

from experiments import run_file, write
from ratecli.cli.app import app
from ratecli.cli.console import ProgressMeter
from ratecli.errors import FaultError
from ratecli.experiment.prepare import check_file, prepare
from ratecli.ledger.records import NEW_DATA_KEY
from ratecli.models.composed import MajorityVote, MixtureClassifier
from ratecli.models.linear import Logistic, Ramp, RandomizedLogistic, Threshold
from ratecli.rates import expression as ex
from ratecli.rates.matrix import build_rate_matrix, measure
from ratecli.runner.trial import check_outputs
from ratecli.sampling.rows import load_trial_data
from ratecli.solvers.judges import EXTRA_NOISE

BASE = """
name: streams
datasets:
  people: {path: people.parquet, label: y, weight: w, drop: [old],
           split: {validation: 0.2, stratify: [sex, label]}}
groups: {women: sex = F, men: sex = M, young: age < 30}
bins: {age: [25, 44]}
objective: error
constraints: {parity: 'positive_rate[women] >= 0.9 * positive_rate[men]',
              some: 'tpr[young, women] >= 0.5'}
algorithms:
  - unconstrained
  - unconstrained: {as: logistic, loss: logistic}
seeds: 1
deployed: {column: old}
metrics: {err: error, women: 'positive_rate[women]', f: 'f1[young]', loss: log_loss,
          gap: 'max_gap(tpr, by=sex)', jobs: 'max_gap(fpr, by=job)', churn: 'churn[men]',
          known: 'disclosivity(by=sex)', at: 'error[age = 44]@test',
          wins: 'wins[women] - losses[men]',
          ages: 'demographic_parity_ratio(by=[sex, age])', either: 'error[not (young or sex = F)]',
          none: 'share[sex != F, x > 99.5]'}
"""


def people(rows, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], rows)
    job = rng.choice([f"j{k}" for k in range(12)], rows).astype(object)
    job[rng.random(rows) < 0.05] = None
    x = rng.normal(size=rows) * 3 + 100 + 0.8 * (sex == "M")
    z = rng.normal(size=rows)
    score = (x - 100) / 3 + z + 0.7 * rng.logistic(size=rows) + (job == "j3")
    return pd.DataFrame({
        "sex": sex, "x": x, "z": z, "age": rng.integers(18, 90, rows), "job": job,
        "y": (score > 0.4).astype(int), "old": (x > 100.3).astype(int), "w": rng.random(rows) + 0.5,
    })  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RATECLI_DATA", str(tmp_path / "data"))
    people(1500).to_parquet(tmp_path / "people.parquet")
    return tmp_path


STREAM = "datasets.people.stream=true"


def values_of(store):
    return {
        (plan.label, plan.seed, value.variant, value.split, value.metric): value.value
        for plan in store.plan()
        for value in store.result(plan.key).values
    }


def test_metrics_equal_those_in_memory(folder):
    path = write(folder, BASE)
    here, there = prepare(path), prepare(path, [STREAM])
    rows, streamed = (load_trial_data(each.data, 0, "old") for each in (here, there))
    assert streamed.splits() == rows.splits()
    assert len(streamed.sample) < len(rows.sample)
    assert json.loads(streamed.encoding)["others"] == json.loads(rows.encoding)["others"]
    rng, d = np.random.default_rng(1), rows.X.shape[1]
    thresholds = [Threshold(rng.normal(size=d), rng.normal()) for _ in range(5)]
    mixture = MixtureClassifier(tuple(thresholds), np.full(5, 0.2))
    classifiers = {
        "threshold": thresholds[0],
        "logistic": Logistic(rng.normal(size=d), 0.3),
        "chance": RandomizedLogistic(rng.normal(size=d), 0.1),
        "ramp": Ramp(0.2 * rng.normal(size=d), 0.1),
        "mixture": mixture,
        "vote": MajorityVote(mixture.members, mixture.chances),
        "nested": MixtureClassifier((mixture, thresholds[1]), np.array([0.5, 0.5])),
    }
    answers = streamed.answers(classifiers)
    metrics = list(here.cases[0].metrics.values())
    assert len(metrics) > 12
    for name, classifier in classifiers.items():
        known = rows.predictions(classifier)
        for split in rows.splits():
            one = measure(metrics, rows.sample, split, known)
            other = measure(metrics, streamed.sample, split, answers[name])
            np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-14)


@dataclass(frozen=True)
class Decides(Threshold):
    value: float = 1.0

    def decide(self, X):
        return np.full(X.shape[0], self.value)


def test_streamed_predictions_are_checked_and_have_only_what_was_measured(folder):
    rows = load_trial_data(prepare(write(folder, BASE), [STREAM]).data, 0, "old")
    wrong = {
        str(value): Decides(np.ones(rows.stream.shape[1]), value=value) for value in (np.nan, 2.0)
    }
    for name, found in rows.answers(wrong, estimated=False).items():
        with pytest.raises(ValueError, match=f"the decisions of 'it' are {name} in"):
            check_outputs("it", found, rows)
        with pytest.raises(KeyError, match="error"):
            found.measure("error", rows.sample.label)


UNWEIGHTED = BASE.replace(" weight: w, drop: [old],", " drop: [old, w],")


def test_standard_errors_equal_those_in_memory(folder):
    path = write(folder, UNWEIGHTED)
    here, there = prepare(path), prepare(path, [STREAM])
    rows, streamed = (load_trial_data(each.data, 0, "old") for each in (here, there))
    classifier = Threshold(np.random.default_rng(1).normal(size=rows.X.shape[1]), 0.2)
    (parity,) = (goal for goal in here.cases[0].constraints if goal.name == "parity")
    errors = []
    for data in (rows, streamed):
        matrix = build_rate_matrix(ex.leaves(parity.expression), data.sample, "train")
        decisions = data.predictions(classifier).decisions
        slopes = tangent(parity.expression, matrix.rates(decisions), matrix.index()).slopes
        counts = None if data.stream is None else data.stream.count
        errors.append(matrix.standard_error(slopes, {"decision": decisions}, counts))
    assert errors[1] == pytest.approx(errors[0], rel=1e-12)


def test_constraints_on_streamed_rows_hold_on_new_rows(folder):
    """The margin that the main variant keeps on training rows is that of the standard error."""
    text = UNWEIGHTED.replace("0.9 *", "1.1 *").replace("some: 'tpr[young, women] >= 0.5'", "")
    algorithm = (
        "algorithms=[{three_player: {steps: 100, batch: 300, holds: new_rows, randomize: true}}]"
    )
    _, store = run_file(write(folder, text), STREAM, algorithm)
    (planned,) = store.plan()
    result, metric = store.result(planned.key), planned.metrics["violation.parity"]
    main, levels = result.values[0].variant, result.info[NEW_DATA_KEY]["levels"]
    found = {
        each.split: each.value
        for each in result.values
        if (each.variant, each.metric) == (main, metric)
    }
    ((_, test_error),) = result.info[NEW_DATA_KEY]["pieces"][main][metric]
    rows = result.info["rows"]
    error = test_error * np.sqrt(rows["test"] / rows["train"])
    assert levels == {main: 0.9}
    assert found["train"] == pytest.approx(-norm.ppf(0.9) * EXTRA_NOISE * error, rel=0.15)


GAME = BASE.replace("0.9 *", "1.1 *").replace(
    "seeds: 1",
    "  - three_player: {steps: 600, batch: 300, randomize: true, variants: [deterministic, hashed]}\n"
    "  - three_player: {as: whole, steps: 200, randomize: true, variants: [last]}\n"
    "  - three_player: {as: hinges, steps: 200, batch: 300, rates: surrogate}",
)


def test_batches_of_streamed_rows_find_the_solutions_in_memory(folder):
    path = write(folder, GAME)
    here, there = (values_of(run_file(path, *more)[1]) for more in ((), (STREAM,)))
    assert here.keys() == there.keys()
    assert len({key[0] for key in there}) == 5
    for key, value in here.items():
        label, _, variant, split, metric = key
        if label == "unconstrained":  # a gap of 1e-5 of the loss, and so the same decisions
            assert there[key] == pytest.approx(value, abs=1e-9, nan_ok=True)
        if (label, split, metric) == ("logistic", "train", "log_loss"):  # LIBLINEAR stops there
            assert there[key] == pytest.approx(value, abs=3e-5)
        if label != "hinges" and variant == "stochastic" and split == "train" and metric == "error":
            assert there[key] == pytest.approx(value, abs=0.012)
            parity = (*key[:4], "1.1 * positive_rate[sex = M] - positive_rate[sex = F]")
            assert there[parity] < 2e-3
        if label == "whole" and variant == "last" and np.isfinite(value):
            # the same steps but for rounding, until a row changes sides
            assert there[key] == pytest.approx(value, abs=0.05)


REFUSED = {
    "majorize": ["algorithms=[majorize]"],
    "three_player: {oracle": ["algorithms=[{three_player: {oracle: linear}}]"],
    "roc_auc": ["metrics.auc=roc_auc[women]"],
    "resample": ["resample=0.5", "datasets.people.split=null"],
    "safety": ["safety={delta: 0.05}", "algorithms=[unconstrained]"],
    "unequal weight": ["algorithms=[{three_player: {holds: new_rows}}]"],
    "deployed": ["deployed={algorithm: unconstrained}"],
    "filter": ["filter={algorithm: balanced_tree, balance: sex}"],
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_features_are_refused_before_rows_are_read(folder, what):
    (folder / "people.parquet").write_bytes(b"not looked at")
    path = write(folder, BASE)
    check_file(path, REFUSED[what])  # in memory it is accepted
    with pytest.raises(FaultError) as caught:
        check_file(path, [STREAM, *REFUSED[what]])
    faults = caught.value.faults
    assert {fault.code for fault in faults} == {"E414"}
    assert all(fault.place is not None and fault.help for fault in faults)
    if what == "majorize":
        assert all(name in faults[0].help for name in ("unconstrained", "three_player"))
    # the file can be explained all the same
    warned = check_file(path, [STREAM, *REFUSED[what]], refuse=False).warnings
    assert set(faults) <= set(warned)


def test_streamed_data_set_cannot_be_combined(folder):
    more = "  more: {path: people.parquet, label: y, weight: w, drop: [old]}"
    text = BASE.replace("groups:", f"{more}\ngroups:")
    with pytest.raises(FaultError, match=r"E414: .* but 'people' is streamed"):
        check_file(write(folder, text), [STREAM])
    people(900, 1).rename(columns={"age": "years"}).to_parquet(folder / "more.parquet")
    text = text.replace("more: {path: people", "more: {path: more")
    text = text.replace("error[age = 44]@test", "error").replace("by=[sex, age]", "by=[sex]")
    text = text.replace("young: age < 30", "young: {people: age < 30, more: years < 30}")
    swept = write(folder, text + "sweep: {dataset: [people, more]}\n")
    outcome, _ = run_file(swept, STREAM)
    assert outcome.counts == {"ok": 4}


def test_memory_limit_below_the_need_is_refused(folder):
    path = write(folder, BASE)
    with pytest.raises(FaultError, match="E412"):
        prepare(path, [STREAM, "limits={memory: 100 MiB}"])
    assert prepare(path, [STREAM, "limits={memory: 600 MiB}"]).plan.tasks


def test_options_that_conflict_with_streams(folder):
    for more, code in (
        ("datasets.people.levels=3", "E104"),
        ("datasets.people.target=number", "E104"),
        ("datasets.people={source: adult, stream: true}", "E101"),
        ("datasets.people.split={test: 0.0001}", "E410"),
        ("datasets.people.split={stratify: [nothing]}", "E205"),
        ("groups.young=x < 0", "E408"),
        ("groups.young=job = j77", "E206"),
    ):
        with pytest.raises(FaultError, match=code):
            prepare(write(folder, BASE), [STREAM, more])


def test_commands_accept_streamed_data(folder, monkeypatch):
    leave_out_bitmaps(monkeypatch)
    text = BASE.replace("unconstrained\n", "three_player: {steps: 50, batch: 99}\n")
    text = text.replace("path: people.parquet", "path: people.parquet, stream: true")
    path, runner = write(folder, text), CliRunner()
    for command in ("validate", "explain", "plan"):
        assert runner.invoke(app, [command, str(path)]).exit_code == 0
    asked = ["run", str(path), "--output", str(folder), "--executor", "serial"]
    assert runner.invoke(app, asked).exit_code == 0
    assert (folder / "streams" / "report.html").exists()
    (model, *_) = sorted((folder / "streams" / "models").iterdir())
    people(1500).to_csv(folder / "people.csv", index=False)
    asked = [str(model), str(folder / "people.csv"), "--output", str(folder / "out.csv")]
    assert runner.invoke(app, ["predict", *asked]).exit_code == 0
    assert len(pd.read_csv(folder / "out.csv")) == 1500


def test_progress_of_writing_records(folder, capsys):
    people(1500).to_csv(folder / "people.csv", index=False)
    path, runner = write(folder, BASE), CliRunner()

    def progress(command, *options):
        said = runner.invoke(app, [command, str(path), "--set", STREAM, *options]).stderr
        return [line for line in said.splitlines() if line.startswith("writing")]

    assert progress("plan") == ["writing records of 'people': 1,500 rows"]
    assert progress("plan") == []
    own = progress("validate", "--set", "datasets.people.path=people.csv")
    assert own == ["writing records of 'people'"]
    counter = ProgressMeter(live=True)
    counter.record("big", 0, 1000)
    counter.record("big", 1000, 1000)
    counter.record("other", 70_000, None)
    counter.end()
    *_, last, other = capsys.readouterr().err.split("\r")
    assert last == "writing records of 'big': 1,000 rows, 1,000 done\n"
    assert other == "writing records of 'other', 70,000 done\n"


MEASURED = """
import sys
from pathlib import Path
from ratecli.experiment.prepare import prepare
from ratecli.runner.trial import run_trial

for rows in sys.argv[1:]:
    for task in prepare(Path("big.yaml"), [f"datasets.big.path=big{rows}.parquet"]).plan.tasks:
        assert run_trial(task.payload, {}).status == "ok"
    # of this program: ru_maxrss begins at what the process had that started it
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    print(int(line.split()[1]) / 1024)
"""
BIG = """
name: big
datasets: {big: {path: big40000.parquet, stream: true, label: label}}
objective: error
constraints: {some: 'tpr[w0 = v1] >= 0.6'}
algorithms: [unconstrained: {loss: logistic}, three_player: {steps: 30, batch: 500}]
limits: {memory: 512 MiB}
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_rows(folder):
    """Four times the rows: 67 MiB more as features of a table in memory, which are not there."""
    names = pa.array([f"v{k}" for k in range(9)])
    for rows in (40_000, 160_000):
        rng = np.random.default_rng(rows)
        columns = {f"x{k}": rng.normal(size=rows).astype(np.float32) for k in range(20)}
        columns["label"] = (columns["x0"] + rng.logistic(size=rows) > 0).astype(np.int8)
        for k in range(6):
            codes = rng.integers(0, 9, rows).astype(np.int8)
            columns[f"w{k}"] = pa.DictionaryArray.from_arrays(codes, names)
        pq.write_table(pa.table(columns), folder / f"big{rows}.parquet", row_group_size=2**16)
    write(folder, BIG, "big.yaml")
    asked = [sys.executable, "-c", MEASURED, "40000", "160000"]
    found = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=True)
    small, large = map(float, found.stdout.split())
    assert large < min(small + 40, 600)  # compiling loops for the first time takes 30 of them
