"""Runs on a Dask cluster that loses workers or its scheduler, or does not exist."""

import os
import pickle
import signal
import subprocess
import sys
import threading
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from distributed import LocalCluster
from small_trials import act, reading
from test_executors import run as results
from test_executors import task
from test_killed_runs import PATIENCE, import_paths, is_free, wait_for

from experiments import write
from ratecli.errors import FaultError
from ratecli.experiment.plan import UNLIMITED
from ratecli.experiment.prepare import prepare
from ratecli.runner import dask_pool
from ratecli.runner.dask_pool import DaskPool, connect_client, run_on_worker
from ratecli.runner.executors import Executor, run_tasks
from ratecli.runner.trial import run_trial
from ratecli.runner.workers import TaskMessage


def on(address, jobs=None):
    return Executor("dask", jobs, address)


@pytest.mark.parametrize(("times", "status"), [(1, "ok"), (99, "error")])
@pytest.mark.slow  # test_executors has workers that die without their Dask worker
def test_a_trial_whose_dask_worker_is_killed_is_retried_once(cluster, tmp_path, times, status):
    log = tmp_path / "log"
    tasks = [task(f"k{i}") for i in range(12)]
    tasks[1:1] = [task("x", "fell", (times, str(log)))]
    found = results(on(cluster), tasks)
    assert found.pop("x").status == status
    assert {result.status for result in found.values()} == {"ok"}
    assert len(found) == 12
    assert len(set(log.read_text().split())) == 2  # two workers of the cluster


@pytest.fixture
def separate_cluster():
    """Yield the process of a cluster, and the cluster's address."""
    program = (
        "import sys, time\n"
        "from ratecli.runner.dask_pool import start_local_cluster\n"
        "if __name__ == '__main__':\n"
        "    with start_local_cluster(1) as address:\n"
        "        print(address, flush=True)\n"
        "        sys.stdin.read()\n"
    )
    pipes = {"stdout": subprocess.PIPE, "stdin": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], env=import_paths(), **pipes) as process:
        yield process, process.stdout.readline().strip()
        process.kill()


@pytest.mark.slow
def test_a_lost_scheduler_is_reported_and_finished_trials_are_kept(separate_cluster, tmp_path):
    process, address = separate_cluster
    held = tmp_path / "lock"

    def kill():
        wait_for(Path(f"{held}.held").exists)
        process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    kept = []
    tasks = [task("a"), task(str(held), "lock", str(held))]
    with pytest.raises(FaultError) as told, on(address).open_pool(tasks) as pool:
        run_tasks(pool, tasks, act, kept.append, {}.__getitem__)
    killer.join()
    assert [fault.code for fault in told.value.faults] == ["E513"]
    assert told.value.exit_code == 1
    assert [result.key for result in kept] == ["a"]


def test_clusters_without_scheduler_or_workers_are_refused(monkeypatch):
    monkeypatch.setattr(dask_pool, "CONNECT_SECONDS", 0.3)
    with pytest.raises(FaultError, match="E512: no Dask scheduler at tcp:"):
        results(on("tcp://127.0.0.1:9"), [task("a")])
    with (
        LocalCluster(n_workers=0, dashboard_address=None) as cluster,
        pytest.raises(FaultError, match=r"E512: the Dask scheduler at .* has had no worker"),
    ):
        results(on(cluster.scheduler_address), [task("a")])


def test_workers_with_other_versions_are_refused(cluster, monkeypatch):
    monkeypatch.setattr(dask_pool, "code_versions", lambda: {"numpy": "0.1"})
    with pytest.raises(FaultError, match=r"E512: a Dask worker has numpy .* instead of 0\.1"):
        results(on(cluster), [task("a")])


def test_processes_of_an_idle_run_end(cluster):
    message = TaskMessage("a", pickle.dumps(partial(act, ("a", "process", ""), {})), UNLIMITED)
    usual = dask_pool.IDLE_SECONDS
    with connect_client(cluster) as client:
        client.run(setattr, dask_pool, "IDLE_SECONDS", 0.1)
        answer = client.submit(run_on_worker, "silent", {}, {}, message, pure=False).result()
        until_gone(answer.info["pid"])
        client.run(setattr, dask_pool, "IDLE_SECONDS", usual)


def test_jobs_limits_parallel_trials_on_a_cluster(cluster):
    found = results(on(cluster, 1), [task(str(at), "process") for at in range(6)])
    spans = sorted(result.info["span"] for result in found.values())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def test_no_process_outlives_its_run(cluster):
    found = results(on(cluster), [task(key, "process") for key in "abcd"])
    for pid in {result.info["pid"] for result in found.values()}:
        until_gone(pid)


def test_a_worker_may_be_lost_at_the_end(cluster):
    with connect_client(cluster) as client:
        pool = DaskPool(client, 2)
        address, pid = min(client.run(os.getpid).items())
        os.kill(pid, signal.SIGKILL)
        pool.close()
        wait_for(lambda: address not in (known := client.nthreads()) and len(known) == 2)


def until_gone(pid):
    """Wait until a process has ended; its parent may reap it later."""
    status = Path(f"/proc/{pid}/stat")
    wait_for(lambda: not status.exists() or ") Z" in status.read_text())


MANY = """\
name: many
datasets: {loans: {source: loans, rows: 200}}
algorithms: [unconstrained, {majorize: {iterations: 2}}]
constraints: {parity: 'positive_rate[sex = Female] >= 0.8 * positive_rate'}
seeds: 2
metrics: {error: error, best: 'of(unconstrained, error)'}
"""


@pytest.mark.slow
def test_workers_read_data_once_and_results_do_not_depend_on_the_executor(cluster, tmp_path):
    tasks = prepare(write(tmp_path, MANY)).plan.tasks
    here = results(Executor(), tasks, run_trial)
    assert len(here) == 4
    for executor in (Executor("processes"), on(cluster, 1)):
        there = results(executor, tasks, reading)
        assert {key: facts(result) for key, result in there.items()} == {
            key: facts(result) for key, result in here.items()
        }
        assert {tuple(result.info["reads"]) for result in there.values()} == {(1, 1)}
        assert len({result.info["pid"] for result in there.values()}) <= 2


def facts(result):
    """Return all of a result except times, with numbers by their bits."""
    values = [(v.variant, v.split, v.metric, float(v.value).hex()) for v in result.values]
    return result.status, result.reason, values, result.models, result.encoding


class InterruptingObject:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_in_a_destructor_is_not_lost(cluster):
    tasks = [task(f"k{i}") for i in range(3)]
    with pytest.raises(KeyboardInterrupt), on(cluster, 1).open_pool(tasks) as pool:
        run_tasks(pool, tasks, act, lambda _result: InterruptingObject() and None, {}.__getitem__)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
@pytest.mark.parametrize("local", [True, False])
def test_an_interrupt_ends_trials_on_a_cluster(cluster, tmp_path, local):
    lock = tmp_path / "lock"
    program = (
        "import sys\n"
        "from small_trials import act\n"
        "from ratecli.runner.executors import Executor, run_tasks\n"
        "from ratecli.experiment.plan import Task\n"
        "if __name__ == '__main__':\n"
        "    address, path = sys.argv[1:]\n"
        "    tasks = [Task(path, (), (path, 'lock', path))]\n"
        "    tasks += [Task(str(k), (), (str(k), 'fine', k)) for k in range(9)]\n"
        "    show = lambda each: print(each.key, flush=True)\n"
        "    try:\n"
        "        executor = Executor('dask', 2 if address else 1, address or None)\n"
        "        with executor.open_pool(tasks) as pool:\n"
        "            run_tasks(pool, tasks, act, show, None)\n"
        "    except KeyboardInterrupt:\n"
        "        sys.exit(130)\n"
    )
    command = [sys.executable, "-c", program, "" if local else cluster, str(lock)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=import_paths(), start_new_session=True, **pipes) as run:
        try:
            wait_for(Path(f"{lock}.held").exists)
        finally:
            os.killpg(run.pid, signal.SIGINT)
        dots, errors = run.communicate(timeout=PATIENCE)
    assert (run.returncode, errors) == (130, b"")
    assert len(dots.split()) <= 9
    wait_for(lambda: is_free(lock))
