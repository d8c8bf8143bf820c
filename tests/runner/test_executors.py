import math
import os
import re
from graphlib import CycleError

import pytest
from small_trials import act, numbers

from ratecli.config.trials import LimitsSpec
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.plan import UNLIMITED, Task
from ratecli.ledger.records import TrialResult
from ratecli.ledger.store import LedgerStore
from ratecli.runner.executors import Executor, run_tasks
from ratecli.runner.workers import THREAD_VARIABLES, failure_result


def executor_of(kind, request):
    """Return an executor, with two workers if it has any."""
    if kind == "dask":
        return Executor("dask", None, request.getfixturevalue("cluster"))
    return Executor(kind, 1 if kind == "serial" else 2)


@pytest.fixture(params=["serial", "processes", "dask"])
def executor(request):
    return executor_of(request.param, request)


@pytest.fixture(params=["processes", "dask"])
def workers(request):
    """Executors with worker processes."""
    return executor_of(request.param, request)


def task(key, what="fine", detail="", needs=(), limits=UNLIMITED):
    return Task(key, needs, (key, what, detail), limits)


def run(executor, tasks, function=act, stored=None):
    """Return the results by key, in the order in which trials ended; `stored` are earlier ones."""
    results, stored = {}, stored or {}

    def keep(result):
        assert result.key not in results
        results[result.key] = result

    with executor.open_pool(tasks) as pool:
        run_tasks(pool, tasks, function, keep, lambda key: results.get(key) or stored[key])
    return results


def test_results_do_not_depend_on_the_executor(request):
    tasks = [Task(f"k{i}", (f"k{i - 3}",) if i >= 3 else (), (f"k{i}", 0)) for i in range(20)]
    results = run(Executor(), tasks, numbers)
    assert len(results) == 20
    for other in (Executor("processes"), executor_of("dask", request)):
        assert run(other, tasks, numbers) == results


def test_dependencies_run_first_and_their_results_are_passed_or_recalled(executor):
    earlier = {"old": TrialResult("old", "ok", info={"detail": 7})}
    tasks = [task("c", detail=3, needs=("a", "b", "old")), task("b", needs=("a",)), task("a")]
    results = run(executor, tasks, stored=earlier)
    assert list(results) == ["a", "b", "c"]
    assert results["c"].info["needs"] == {"a": "", "b": "", "old": 7}


def test_a_failed_trial_stops_only_the_trials_that_depend_on_it(executor):
    failing = task("a", "raise", "no convergence")
    tasks = [failing, task("b", needs=("a",)), task("c", needs=("b",)), task("d")]
    results = run(executor, tasks)
    assert {key for key, result in results.items() if result.status == "error"} == set("abc")
    assert results["d"].status == "ok"
    assert results["b"].reason == (
        "needs trial a, which ended as error: ValueError: no convergence"
    )
    assert results["c"].reason.startswith("needs trial b, ")


def test_an_exception_becomes_an_error_result(executor):
    reasons = {
        "raise": "ValueError: a b",
        "fault": "E402: cannot fetch adult; E403: wrong hash",
        "leave": "SystemExit: enough",
        "unstorable": "TypeError: Object of type object is not JSON serializable",
    }
    results = run(executor, [*(task(what, what, "a\n   b") for what in reasons), task("y")])
    assert results.pop("y").status == "ok"
    assert {key: result.reason for key, result in results.items()} == reasons
    for result in results.values():
        assert result.status == "error"
        assert "Traceback (most recent call last)" in result.info["traceback"]


def test_a_trial_that_cannot_be_pickled_fails_alone(workers):
    tasks = [task("x", detail=lambda: 0), task("y")]
    results = run(workers, tasks)
    assert results["x"].status == "error"
    assert "pickle" in results["x"].reason
    assert results["y"].status == "ok"


def test_a_dying_worker_does_not_affect_other_trials(workers):
    tasks = [task(f"k{i}") for i in range(12)]
    tasks[1:1] = [task("x", "vanish", 9), task("y", "killed"), task("z", needs=("x",))]
    results = run(workers, tasks)
    assert {key for key, result in results.items() if result.status == "error"} == set("xyz")
    for key, how in (("x", "exit code 9"), ("y", "signal 9")):
        assert f"({how})" in results[key].reason
    assert len(results) == 15


def test_a_trial_whose_worker_died_is_retried_once(workers, tmp_path):
    results = run(workers, [task("x", "vanish_once", str(tmp_path / "marker")), task("y")])
    assert {result.status for result in results.values()} == {"ok"}


def test_processes_are_reused(executor):
    results = run(executor, [task(f"k{i}", "process") for i in range(8)])
    processes = {result.info["pid"] for result in results.values()}
    assert len(processes) <= (1 if executor == Executor() else 2)
    assert (os.getpid() in processes) == (executor == Executor())


def test_a_trial_over_its_time_limit_is_killed(executor):
    wide = LimitsSpec(time=60, memory=2**40)
    tasks = [task("x", "spin", limits=LimitsSpec(time=0.3)), task("y", needs=("x",))]
    tasks.append(task("z", limits=wide))
    results = run(executor, tasks)
    assert results["x"].status == "timeout"
    assert results["x"].reason == "took longer than the time limit of 0.3 s"
    assert 0.3 <= results["x"].seconds < 30
    assert results["y"].reason.startswith("needs trial x, which ended as timeout: ")
    assert results["z"].status == "ok"


def test_a_trial_over_its_memory_limit_is_killed(executor):
    tasks = [task("x", "hoard", 700, limits=LimitsSpec(memory=400 * 2**20)), task("y")]
    results = run(executor, tasks)
    assert results["x"].status == "error"
    held = r"its process held [4-9]\d\d MiB of memory, the limit is 400 MiB"
    assert re.fullmatch(held, results["x"].reason)
    assert results["y"].status == "ok"


@pytest.mark.slow
def test_memory_left_by_earlier_trials_does_not_count():
    limits = LimitsSpec(memory=300 * 2**20)
    tasks = [task(key, "hoard", 150, limits=limits) for key in "abc"]
    results = run(Executor("processes"), tasks)
    assert {result.status for result in results.values()} == {"ok"}
    assert len({result.info["pid"] for result in results.values()}) == 3


def test_numerical_libraries_use_one_thread(executor, monkeypatch):
    here = run(Executor(), [task("a", "threads")])["a"]
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "2")
    before = dict(os.environ)
    result = run(executor, [task("a", "threads")])["a"]
    assert set(result.info["threads"]) == {1}
    assert result.values == here.values
    assert math.isfinite(result.values[0].value)
    assert dict(os.environ) == before


def test_an_exception_of_on_done_ends_the_run(executor):
    ended = []

    def full(result):
        ended.append(result.key)
        raise OSError("disk full")

    tasks = [task("a"), task("b"), task("c")]
    with pytest.raises(OSError, match="disk full"), executor.open_pool(tasks) as pool:
        run_tasks(pool, tasks, act, full, {}.__getitem__)
    assert len(ended) == 1


def test_reasons_omit_e501():
    found = FaultError([Diagnostic("E501", "no classifier"), Diagnostic("E311", "no value")])
    assert failure_result("k", found).reason == "no classifier; E311: no value"


def test_equal_tasks_run_once_and_cycles_and_unknown_dependencies_are_refused(tmp_path):
    assert list(run(Executor(), [task("a"), task("a")])) == ["a"]
    assert run(Executor("processes"), []) == {}
    with pytest.raises(CycleError):
        run(Executor(), [task("a", needs=("b",)), task("b", needs=("a",))])
    with (
        LedgerStore(tmp_path / "trials.sqlite") as stored,
        Executor().open_pool([]) as pool,
        pytest.raises(KeyError, match="'b'"),
    ):
        run_tasks(pool, [task("a", needs=("b",))], act, pytest.fail, stored.result)
