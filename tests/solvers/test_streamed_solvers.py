"""Optima on streamed rows compared with those of the same rows in memory, also on a cluster."""

import time
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from oracles.goals import run

from ratecli.config.dataset import DatasetSpec
from ratecli.rates.analysis import objective_goal
from ratecli.rates.matrix import RowKinds
from ratecli.runner.trial import training_problem
from ratecli.sampling.rows import ExperimentData, load_trial_data
from ratecli.solvers.baselines import streamed as plain
from ratecli.solvers.baselines.options import Unconstrained
from ratecli.solvers.baselines.streamed import StreamedNewton, fit_plain_streamed
from ratecli.solvers.design_matrix import add_ones_column
from ratecli.solvers.liblinear import fit_liblinear
from ratecli.solvers.players import rows as player
from ratecli.solvers.players.rows import LaneRows
from ratecli.solvers.problem import ERROR_RATE
from ratecli.streaming.stream import SCHEDULER_VARIABLE, RowStream, cluster_client


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RATECLI_DATA", str(tmp_path / "data"))
    return tmp_path


def table(rows, seed=0):
    rng = np.random.default_rng(seed)
    word = rng.choice(["a", "b", "c"], rows, p=[0.6, 0.39, 0.01])
    x, z = rng.normal(size=(2, rows))
    y = x - z + (word == "a") + rng.logistic(size=rows) > 0.3
    rare = np.where(rng.random(rows) < 0.004, "yes", "no")
    return pd.DataFrame({"x": x, "z": z, "word": word, "rare": rare, "y": y.astype(int)})


def problems(folder, rows=1200, l2=1e-3):
    """The same problem in memory and streamed."""
    table(rows).to_parquet(folder / "t.parquet")
    found = []
    for stream in (False, True):
        entry = {"path": "t.parquet", "label": "y", "split": {"test": 0.2}}
        entry |= {"stream": True} if stream else {}
        spec, slices = DatasetSpec.model_validate(entry), (("rare", ()),)
        rows_of = load_trial_data(ExperimentData.of({"t": spec}, folder, slices=slices), 0)
        found.append(training_problem(rows_of, objective_goal("error", ERROR_RATE), (), l2))
    return found


def loss(problem, classifier, l2):
    """Mean logistic and hinge loss with the penalty."""
    signs, weights = problem.labels()
    margin = signs * classifier.score(problem.X)
    penalty = 0.5 * l2 * (classifier.weights @ classifier.weights + classifier.bias**2)
    losses = np.logaddexp(0, -margin), np.maximum(0, 1 - margin)
    return tuple(weights @ each + penalty for each in losses)


@pytest.mark.parametrize("l2", [1e-6, 1e-3, 1.0])
def test_plain_classifiers_have_the_smallest_loss(folder, l2):
    memory, stream = problems(folder, l2=l2)
    (found, reason), (svm, late) = (fit_plain_streamed(stream, x) for x in ("logistic", "hinge"))
    assert (reason, late) == ("", "")
    signs, weights = memory.labels()
    X, options = add_ones_column(memory.X), {"seed": 0, "tolerance": 1e-10, "iterations": 10**4}
    w, _ = fit_liblinear("logistic", X, signs, weights / l2, **options)
    best = replace(found, weights=w[:-1], bias=float(w[-1]))
    assert loss(memory, found, l2)[0] <= loss(memory, best, l2)[0] + 1e-8
    np.testing.assert_allclose(found.weights, best.weights, atol=2e-3)
    least = run(Unconstrained(), memory).variants["deterministic"]
    assert loss(memory, svm, l2)[1] == pytest.approx(loss(memory, least, l2)[1], rel=2.1e-5)


def test_pass_returns_value_slopes_curvature_and_a_bound(folder):
    _, stream = problems(folder, l2=0.01)
    descent, rng = StreamedNewton.of(stream), np.random.default_rng(0)
    d = stream.stream.shape[1] + 1
    least = fit_plain_streamed(stream, "hinge")[0]
    bound = descent.at(np.append(least.weights, least.bias), 1e-3, 1e3).primal
    for width in (0.0, 0.5):
        w, step = 0.3 * rng.normal(size=(2, d))
        here = descent.at(w, width, 1e3)
        ends = [descent.at(w + sign * 1e-5 * step, width, 1e3) for sign in (1, -1)]
        slope = (ends[0].value - ends[1].value) / 2e-5
        assert here.slope @ step == pytest.approx(slope, rel=1e-6)
        bend = (ends[0].slope - ends[1].slope) / 2e-5
        np.testing.assert_allclose(here.curve @ step, bend, rtol=0.05 if width else 1e-6, atol=1e-3)
        if width:
            assert here.dual <= bound <= here.primal


@pytest.mark.parametrize("kind", ["logistic", "hinge"])
def test_growing_samples_save_passes_and_keep_the_optimum(folder, monkeypatch, kind):
    memory, stream = problems(folder, rows=6000, l2=1e-4)
    passes, sums = [], RowStream.sums

    def counted(self, part, every=1):
        passes.append(every)
        return sums(self, part, every)

    monkeypatch.setattr(RowStream, "sums", counted)
    exact, _ = fit_plain_streamed(stream, kind)
    whole = len(passes)
    assert set(passes) == {1}
    passes.clear()
    monkeypatch.setattr(plain, "SAMPLE_ROWS", 64 * 4)  # runs of 64 rows from all over the table
    found, reason = fit_plain_streamed(stream, kind)
    assert reason == ""
    assert sorted(set(passes)) == [1, 18]
    assert passes == sorted(passes, reverse=True)
    assert passes.count(1) < whole
    which, close = (0, 1e-8) if kind == "logistic" else (1, 2.1e-5)
    least, reached = (loss(memory, each, 1e-4)[which] for each in (exact, found))
    assert reached == pytest.approx(least, rel=close)


def test_lane_passes_equal_those_in_memory(folder):
    memory, stream = problems(folder)
    kinds, cells = RowKinds.by(memory.rates), RowKinds.by(stream.rates)
    np.testing.assert_array_equal(kinds.patterns, cells.patterns)
    lanes, rows = LaneRows(memory.X, kinds), LaneRows(stream.stream, cells)
    rng = np.random.default_rng(0)
    W = rng.normal(size=(rows.width + 1, 20)).astype(np.float32)
    sides = rng.random((2 * kinds.count, 20))
    one, other = lanes.run(W, sides), rows.run(W, sides)
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_allclose(one[1], other[1], rtol=1e-4, atol=1e-2)
    for a, b in zip(lanes.hinges(W), rows.hinges(W), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("pool", [2**15, 256])
def test_batches_represent_all_rows(folder, monkeypatch, pool):
    """Each batch has the weight of all rows of each kind, and their decisions on average."""
    monkeypatch.setattr(player, "MIN_POOL_ROWS", pool)
    monkeypatch.setattr(player, "RARE_KIND_ROWS", 4)
    _, stream = problems(folder, rows=2500)
    kinds = RowKinds.by(stream.rates)
    rows = LaneRows(stream.stream, kinds)
    batch = rows.batches(24, np.random.default_rng(0))
    W = np.random.default_rng(1).normal(size=(rows.width + 1, 16)).astype(np.float32)
    yes = []
    for _ in range(400):
        some = next(batch)
        weights = np.add.reduceat(some.weight, some.starts[:-1])
        np.testing.assert_allclose(weights, kinds.totals, rtol=1e-5)
        yes.append(some.run(W)[0])
    exact, _ = rows.run(W)
    share = exact / kinds.totals[:, None]
    taken = np.diff(some.starts)[:, None]
    error = kinds.totals[:, None] * np.sqrt(share * (1 - share) / taken / len(yes))
    assert (np.abs(np.mean(yes, axis=0) - exact) < 5 * error + 1e-6).all()


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_sums_on_a_cluster_are_equal(folder, processes, monkeypatch):
    """Idle workers compute partitions; busy workers get none."""
    distributed = pytest.importorskip("distributed")
    _, problem = problems(folder, rows=3000)
    problem = replace(problem, stream=replace(problem.stream, partition=2**8))
    known, _ = fit_plain_streamed(problem, "logistic")
    options = {"threads_per_worker": 1, "processes": processes, "dashboard_address": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Dask, on closing
        with (
            distributed.LocalCluster(n_workers=2, **options) as cluster,
            distributed.Client(cluster) as client,
        ):
            monkeypatch.setenv(SCHEDULER_VARIABLE, cluster.scheduler_address)
            found, _ = fit_plain_streamed(problem, "logistic")
            shared = client.run_on_scheduler(_started_tasks)
            end = folder / "end"
            held = [client.submit(_wait_for, end, pure=False) for _ in range(2)]
            while sum(map(len, client.processing().values())) < 2:
                time.sleep(0.01)
            alone, _ = fit_plain_streamed(problem, "logistic")
            assert client.run_on_scheduler(_started_tasks) == shared + 2
            end.touch()
            client.gather(held)
            cluster_client(cluster.scheduler_address).close()
    assert shared > 5
    for other in (found, alone):
        np.testing.assert_array_equal(other.weights, known.weights)
        assert other.bias == known.bias


def _wait_for(end):
    while not end.exists():
        time.sleep(0.01)


def _started_tasks(dask_scheduler):
    """Return how many tasks workers have started."""
    return sum(entry[2] == "processing" for entry in dask_scheduler.transition_log)
