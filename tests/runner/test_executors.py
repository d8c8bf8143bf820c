import math
import os
import re
from graphlib import CycleError

import pytest
from small_trials import act, numbers

from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.limits import UNLIMITED, TrialLimits
from ratecli.experiment.plan import Task
from ratecli.ledger.records import TrialResult
from ratecli.runner.executors import (
    DaskExecutor,
    Hooks,
    ProcessExecutor,
    Schedule,
    SerialExecutor,
)
from ratecli.runner.workers import THREAD_VARIABLES, failure_result


@pytest.fixture(params=["serial", "processes", "dask"])
def executor(request):
    """What all executors do, with two workers where there are any."""
    if request.param == "dask":
        return DaskExecutor(request.getfixturevalue("cluster"))
    return SerialExecutor() if request.param == "serial" else ProcessExecutor(2)


@pytest.fixture(params=["processes", "dask"])
def workers(request):
    """Executors whose workers can die."""
    return (
        ProcessExecutor(2)
        if request.param == "processes"
        else DaskExecutor(request.getfixturevalue("cluster"))
    )


def task(key, what="fine", detail="", needs=(), limits=UNLIMITED):
    return Task(key, needs, (key, what, detail), limits)


def run(executor, tasks, function=act, **hooks):
    """The results by key, in the order in which they came."""
    results = {}

    def keep(result):
        assert result.key not in results
        results[result.key] = result

    executor.run(tasks, function, keep, Hooks(**hooks))
    return results


@pytest.mark.parametrize("jobs", [1, 5])
def test_results_do_not_depend_on_how_many_work(jobs):
    assert_alike(ProcessExecutor(jobs))


def test_results_do_not_depend_on_the_executor(executor):
    assert_alike(executor)


def assert_alike(executor):
    tasks = [Task(f"k{i}", (f"k{i - 3}",) if i >= 3 else (), (f"k{i}", 0)) for i in range(20)]
    results = run(executor, tasks, numbers)
    assert dict(sorted(results.items())) == dict(
        sorted(run(SerialExecutor(), tasks, numbers).items())
    )
    assert len(results) == 20


def test_needs_come_first_and_are_given(executor):
    tasks = [task("c", detail=3, needs=("a", "b")), task("b", detail=2, needs=("a",)), task("a")]
    results = run(executor, tasks)
    assert list(results) == ["a", "b", "c"]
    assert results["c"].info["needs"] == {"a": "", "b": 2}


def test_needs_of_an_earlier_run_are_recalled(executor):
    earlier = {"old": TrialResult("old", "ok", info={"detail": 7})}
    results = run(executor, [task("new", needs=("old",))], recall=earlier.__getitem__)
    assert results["new"].info["needs"] == {"old": 7}


def test_failed_needs_block_their_dependants_and_no_others(executor):
    tasks = [
        task("a", "raise", "no convergence"),
        task("b", needs=("a",)),
        task("c", needs=("b",)),
        task("d"),
    ]
    results = run(executor, tasks)
    assert {key: result.status for key, result in results.items()} == {
        "a": "error", "b": "error", "c": "error", "d": "ok",
    }  # fmt: skip
    assert results["b"].reason == (
        "needs trial a, which ended as error: ValueError: no convergence"
    )
    assert results["c"].reason.startswith("needs trial b, ")


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("raise", "ValueError: a b"),
        ("fault", "E402: cannot fetch adult; E403: wrong hash"),
        ("leave", "SystemExit: enough"),
        ("unstorable", "TypeError: Object of type object is not JSON serializable"),
    ],
)
def test_an_exception_is_a_result_with_one_line(executor, what, reason):
    results = run(executor, [task("x", what, "a\n   b"), task("y")])
    assert (results["x"].status, results["x"].reason) == ("error", reason)
    assert "Traceback (most recent call last)" in results["x"].info["traceback"]
    assert results["y"].status == "ok"


def test_what_cannot_be_sent_fails_alone(workers):
    tasks = [task("x", detail=lambda: 0), task("y")]
    results = run(workers, tasks)
    assert results["x"].status == "error"
    assert "pickle" in results["x"].reason
    assert results["y"].status == "ok"


@pytest.mark.parametrize(("what", "how"), [("vanish", "exit code 9"), ("killed", "signal 9")])
def test_a_dying_worker_takes_no_other_trial_along(workers, what, how):
    tasks = [task(f"k{i}") for i in range(12)]
    tasks[1:1] = [task("x", what, 9), task("y", what, 9), task("z", needs=("x",))]
    results = run(workers, tasks)
    assert {key for key, result in results.items() if result.status == "error"} == set("xyz")
    assert f"({how})" in results["x"].reason
    assert len(results) == 15


def test_a_trial_whose_worker_died_is_tried_once_more(workers, tmp_path):
    results = run(workers, [task("x", "vanish_once", str(tmp_path / "marker")), task("y")])
    assert {result.status for result in results.values()} == {"ok"}


def test_no_more_processes_than_jobs_and_each_runs_many(executor):
    results = run(executor, [task(f"k{i}", "process") for i in range(8)])
    processes = {result.info["pid"] for result in results.values()}
    assert len(processes) <= (1 if executor == SerialExecutor() else 2)
    assert (os.getpid() in processes) == (executor == SerialExecutor())


def test_what_runs_too_long_is_ended(executor):
    tasks = [task("x", "spin", limits=TrialLimits(time=0.3)), task("y", needs=("x",)), task("z")]
    results = run(executor, tasks)
    assert results["x"].status == "timeout"
    assert results["x"].reason == "took longer than 0.3 s, the limit of time"
    assert 0.3 <= results["x"].seconds < 30
    assert results["y"].reason.startswith("needs trial x, which ended as timeout: ")
    assert results["z"].status == "ok"


def test_what_holds_too_much_is_ended(executor):
    tasks = [task("x", "hoard", 700, limits=TrialLimits(memory=400 * 2**20)), task("y")]
    results = run(executor, tasks)
    assert results["x"].status == "error"
    found = re.fullmatch(
        r"its process held ([4-9]\d\d) MiB of memory, the limit is 400 MiB; "
        r"(\d+) MiB of it before the trial began",
        results["x"].reason,
    )
    assert int(found[2]) < 300 < int(found[1])
    assert results["y"].status == "ok"


def test_a_limit_below_what_a_process_takes(executor):
    results = run(executor, [task("x", "lock", os.devnull, limits=TrialLimits(memory=2**20))])
    assert results["x"].status == "error"
    assert results["x"].reason.endswith("a process alone takes more than the limit")


def test_what_earlier_trials_left_in_memory_is_nobodys_fault():
    limits = TrialLimits(memory=300 * 2**20)
    tasks = [task(key, "hoard", 150, limits=limits) for key in "abc"]
    results = run(ProcessExecutor(1), tasks)
    assert {result.status for result in results.values()} == {"ok"}
    assert len({result.info["pid"] for result in results.values()}) == 3


def test_what_keeps_its_limits_is_let_be(executor):
    limits = TrialLimits(60, 2**40)
    results = run(executor, [task(f"k{i}", "process", limits=limits) for i in range(4)])
    assert {result.status for result in results.values()} == {"ok"}
    assert os.getpid() not in {result.info["pid"] for result in results.values()}


def test_nothing_to_do_is_done(executor):
    assert run(executor, []) == {}


def test_sums_are_added_up_by_one_thread(executor, monkeypatch):
    here = run(SerialExecutor(), [task("a", "threads")])["a"]
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "2")
    before = dict(os.environ)
    result = run(executor, [task("a", "threads")])["a"]
    assert set(result.info["threads"]) == {1}
    assert result.values == here.values
    assert math.isfinite(result.values[0].value)
    assert dict(os.environ) == before


def test_each_start_is_told(executor):
    started = []
    tasks = [task("a"), task("b", "raise"), task("c", needs=("b",)), task("d", needs=("a",))]
    run(executor, tasks, on_start=started.append)
    assert sorted(started) == ["a", "b", "d"]


def test_a_fault_of_the_ledger_ends_the_run(executor):
    ended = []

    def full(result):
        ended.append(result.key)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        executor.run([task("a"), task("b"), task("c")], act, full)
    assert len(ended) == 1


def test_one_key_is_one_task():
    assert list(run(SerialExecutor(), [task("a"), task("a")])) == ["a"]


def test_cycles_and_strangers_are_refused():
    with pytest.raises(CycleError):
        run(SerialExecutor(), [task("a", needs=("b",)), task("b", needs=("a",))])
    with pytest.raises(KeyError, match="neither planned nor stored"):
        run(SerialExecutor(), [task("a", needs=("b",))])


def test_results_are_kept_only_while_needed():
    tasks = [task("a"), task("b", needs=("a", "a")), task("c", needs=("a",))]
    schedule = Schedule(tasks, lambda _: None)
    for key in "abc":
        assert schedule.take()[0].key == key
        schedule.end(TrialResult(key, "ok"))
    assert schedule._results == {}
    assert schedule.take() is None


def test_a_failed_trial_says_its_code_once():
    """It is shown as an E501 itself."""
    other = FaultError([Diagnostic("E501", "no classifier"), Diagnostic("E311", "no value")])
    assert failure_result("k", other).reason == "no classifier; E311: no value"
