"""Several experiments in one command or one call of `run_experiments`."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager, nullcontext

import pytest
import typer
from small import PLAIN, SMALL, command, stored

from ratecli.cli.batch import MAX_SHOWN_REASONS, reason_lines, run_batch
from ratecli.datasets.sources import loans
from ratecli.experiment.prepare import prepare
from ratecli.files import LEDGER_FILE
from ratecli.ledger.locks import lock_results
from ratecli.ledger.records import TrialResult
from ratecli.ledger.store import LedgerStore
from ratecli.runner import dask_pool, workers
from ratecli.runner.executors import Executor
from ratecli.runner.run import RunRequest, run_experiments

ONE = PLAIN.replace("seeds: 2", "seeds: 1")
TRIALS = 4
OTHER = ONE.replace("name: small", "name: other").replace("rows: 200", "rows: 210")
EXPECT = """\
expect:
  - {algorithm: unconstrained, metric: error, at_most: 0.99}
  - {algorithm: unconstrained, metric: error, at_least: 0.99}
  - {algorithm: unconstrained, metric: error, paper: 0.2}
"""


@pytest.fixture
def files(folder):
    """Two experiments of other rows: small.yaml, other.yaml."""
    (folder / "small.yaml").write_text(ONE)
    (folder / "other.yaml").write_text(OTHER + EXPECT)
    return folder / "small.yaml", folder / "other.yaml"


def ledger(folder, name):
    return folder / "results" / name / LEDGER_FILE


def requests(folder, *texts):
    """Write the experiments and return the requests to run them."""
    found = []
    for at, text in enumerate(texts):
        path = folder / f"e{at}.yaml"
        path.write_text(text)
        prepared = prepare(path)
        found.append(RunRequest(prepared, folder / "results" / prepared.experiment.name))
    return found


def read_results(request):
    with LedgerStore(request.folder / LEDGER_FILE, readonly=True) as store:
        return {key: store.result(key) for key in store.results()}


class Counting:
    """A serial executor, and its pool, that record the keys of the trials.

    It may overwrite a ledger as soon as the first trial has ended, and be interrupted at the end.
    """

    capacity = 1

    def __init__(self, broken_ledger=None, *, interrupted=False):
        self.keys = []
        self._broken, self._interrupted = broken_ledger, interrupted

    def check(self):
        """Accept all trials, like the executor that it uses."""

    @contextmanager
    def open_pool(self, tasks):
        with Executor().open_pool(tasks) as self._pool:
            yield self
        if self._interrupted:
            raise KeyboardInterrupt

    def submit(self, task, run):
        self.keys.append(task.key)
        return self._pool.submit(task, run)

    def result(self, future):
        if self._broken:
            self._broken.write_bytes(b"no ledger" * 1000)
        return self._pool.result(future)


def run_all(found, executor=None):
    """Run requests; return the outcomes, and the failures with the folder and the code of each."""
    ended, failures = [], []
    executor = executor or Executor()
    run_experiments(found, executor, ended.append, lambda *each: failures.append(each), quiet=True)
    failed = [(request.folder.name, error.faults[0].code) for request, error in failures]
    return {outcome.folder.name: outcome for outcome in ended}, failed


def test_one_table_for_all_experiments(folder, cli, files):
    one = ("--jobs", 1)
    answer = cli("run", *files, *one)
    assert answer.code == 0
    heads, small, other, *_, total, page = map(str.split, answer.out.splitlines())
    assert heads == ["experiment", "trials", "run", "now", "ended", "expect", "report"]
    assert (*small[:3], small[-1]) == ("small", "4", "4", "results/small/report.html")
    assert (*other[:3], *other[-5:-1]) == ("other", "4", "4", "2", "of", "4", "hold")
    assert " ".join(total) == "2 experiments: 8 trials, 8 run now"
    assert page == ["report", "results/report.html"]
    assert "small/report.html" in (folder / "results" / "report.html").read_text()
    assert "other.yaml: 'error' of unconstrained (" in answer.err  # the W501, with its file
    assert answer.err.count("4/4  ") == 2
    again = cli("run", *files, *one)
    assert again.out.splitlines()[-2] == "2 experiments: 8 trials, 0 run now"


def test_reasons_that_are_left_out_are_counted():
    result = TrialResult("k", "failed", reason="why")
    lines = reason_lines("failed", [(f"{k} seed=0", result) for k in range(MAX_SHOWN_REASONS + 2)])
    assert lines[-2:] == ["failed: 9 seed=0: why", "... 2 more failed: see trials.csv"]


def test_shared_trials_run_once(folder):
    same = ONE.replace("name: small", "name: same").replace("ratio:", "quotient:")
    more = same.replace("name: same", "name: more").replace("seeds: 1", "seeds: 2")
    found, executor = requests(folder, ONE, same, more), Counting()
    ended, _ = run_all(found, executor)
    assert len(executor.keys) == len(set(executor.keys)) == TRIALS * 2
    assert [outcome.ran for outcome in ended.values()] == [TRIALS, 0, TRIALS]
    ledgers = [read_results(each) for each in found]
    assert ledgers[0] == ledgers[1]
    assert ledgers[0].items() <= ledgers[2].items()


def test_stored_results_are_copied_to_other_experiments(folder):
    more = ONE.replace("name: small", "name: more").replace("seeds: 1", "seeds: 2")
    found = requests(folder, ONE, more)
    run_all(found[:1])
    executor = Counting()
    ended, _ = run_all(found, executor)
    assert len(executor.keys) == TRIALS
    assert [(name, outcome.ran) for name, outcome in ended.items()] == [("small", 0), ("more", 4)]
    ledgers = [read_results(each) for each in found]
    assert ledgers[0].items() <= ledgers[1].items()
    assert len(ledgers[1]) == TRIALS * 2
    assert all(result.models and result.encoding for result in ledgers[1].values())


def test_results_are_not_copied_if_constraint_names_differ_or_trials_failed(folder):
    renamed = ONE.replace("name: small", "name: more").replace("parity:", "fair:")
    same = ONE.replace("name: small", "name: same")
    found = requests(folder, ONE, renamed, same)
    failed = TrialResult(found[2].prepared.plan.tasks[0].key, "error", "no memory")
    found[2].folder.mkdir(parents=True)
    with LedgerStore(found[2].folder / LEDGER_FILE) as store:
        store.put(failed)
    first, second = Counting(), Counting()
    run_all(found[2:], first)
    assert failed.key in first.keys
    run_all(found[:2], second)
    run_all(found[1:], second)
    assert len(second.keys) == 2 * TRIALS


def test_the_plan_counts_shared_trials_once(folder, cli, files):
    more = ONE.replace("name: small", "name: more").replace("seeds: 1", "seeds: 2")
    (folder / "more.yaml").write_text(more)
    (folder / "far.yaml").write_text(SMALL.replace("source: loans, rows: 200", "source: adult"))
    three = (*files, folder / "more.yaml")

    def rows(answer):
        return {line.split()[0]: line.split()[1:] for line in answer.out.splitlines() if line}

    plan = cli("plan", *three)
    before = rows(plan)
    assert before["small"] == before["other"] == ["4", "0", "4", "unknown"]
    assert before["more"] == ["8", "0", "8", "unknown"]
    assert before["all"] == ["12", "0", "12", "unknown"]
    assert cli("run", files[0], "-q", "--executor", "serial").code == 0
    after = rows(cli("plan", *three))
    assert after["small"] == ["4", "4", "0", "0.0", "s"]
    assert (after["other"][:3], after["more"][:3]) == (["4", "0", "4"], ["8", "4", "4"])
    assert after["all"][:3] == ["12", "4", "8"]
    files[0].unlink()
    lacking = cli("plan", "*.yaml")
    assert lacking.code == 0
    assert rows(lacking)["small"][:3] == ["8", "0", "8"]
    assert rows(lacking)["all"][:3] == ["20", "4", "16"]
    assert (
        "adult/adult.data, adult/adult.test; download with `ratecli fetch far.yaml`" in lacking.out
    )


def test_the_plan_scales_stated_times_and_reads_no_rows(folder, cli, monkeypatch):
    stated = "trial_seconds: {unconstrained: 0.5, majorize: 30}\n"
    text = PLAIN.replace("rows: 200", "rows: 213")
    (folder / "one.yaml").write_text(text + stated)
    text = text.replace("name: small", "name: two").replace("seeds: 2", "seeds: [8, 9]")
    (folder / "two.yaml").write_text(text + stated.replace(", majorize: 30", ""))
    monkeypatch.setattr(loans, "prepare", None)  # reading a table would fail
    answer = cli("plan", "one.yaml", "two.yaml")
    lines = [line.split() for line in answer.out.splitlines()]
    assert ["small", "8", "0", "8", "2", "min"] in lines  # 4 * 0.5 + 4 * 30 s
    assert ["two", "8", "0", "8", ">", "2.0", "s"] in lines
    assert ["all", "16", "0", "16", ">", "2", "min"] in lines
    assert answer.code == 0


def test_the_plan_finds_stored_trials_whose_rules_depend_on_rows(folder, cli):
    rule = "positive_rate[women] >= kappa * positive_rate[men]"
    text = ONE.replace(rule, "max_gap(positive_rate, by=sex) <= kappa")
    (folder / "one.yaml").write_text(text)
    (folder / "two.yaml").write_text(text.replace("name: small", "name: two"))
    assert cli("run", "one.yaml", "-q", "--executor", "serial").code == 0
    lines = [line.split()[:4] for line in cli("plan", "one.yaml", "two.yaml").out.splitlines()]
    assert ["small", "4", "4", "0"] in lines


def test_an_unreadable_ledger_stops_its_own_experiment_only(folder):
    found = requests(folder, ONE, ONE.replace("name: small", "name: same"))
    run_all(found[:1])
    with closing(sqlite3.connect(found[0].folder / LEDGER_FILE)) as db, db:
        db.execute("PRAGMA user_version = 7")
    executor = Counting()
    ended, failed = run_all(found, executor)
    assert (list(ended), failed) == (["same"], [("small", "E502")])
    assert len(executor.keys) == TRIALS


def test_an_experiment_ends_with_its_own_last_trial(folder):
    found, seen = requests(folder, ONE, OTHER), []
    other = found[1].folder / LEDGER_FILE
    run_experiments(found, Executor(), lambda _: seen.append(stored(other)), quiet=True)
    assert seen == [0, TRIALS]


def test_a_ledger_that_breaks_stops_its_own_experiment_only(folder):
    found = requests(folder, ONE, OTHER)
    ended, failed = run_all(found, Counting(found[0].folder / LEDGER_FILE))
    assert failed in ([("small", "E502")], [("small", "E503")])
    assert {name: outcome.ran for name, outcome in ended.items()} == {"other": TRIALS}


def test_trials_that_others_depend_on_still_run_after_a_failure(folder):
    text = ONE + "  best: of(unconstrained, error)\n"
    both = requests(folder, text, text.replace("name: small", "name: same"))
    run_all(requests(folder, text.replace("  - majorize: {iterations: 2}\n", "")))
    ended, _ = run_all(both, Counting(both[1].folder / LEDGER_FILE))
    assert list(ended) == ["small"]
    assert "error" not in ended["small"].counts


@pytest.mark.parametrize(
    ("code", "message"),
    [(2, "small.yaml: another command is writing to results/small"), (4, "error[E401]")],
    ids=["in use", "no data"],
)
def test_an_experiment_that_cannot_run_does_not_stop_others(folder, cli, files, code, message):
    if code == 4:
        files[0].write_text(SMALL.replace("source: loans, rows: 200", "source: adult"))
    with lock_results(folder / "results" / "small") if code == 2 else nullcontext():
        answer = cli("run", *files, "--executor", "serial", "--offline")
    assert answer.code == code
    assert message in answer.err
    assert ("small 4 stopped: E504" in " ".join(answer.out.split())) == (code == 2)
    assert (folder / "results" / "small").exists() == (code == 2)
    assert [stored(ledger(folder, name)) for name in ("other", "small")] == [4, 0]


def test_an_interrupt_reports_the_stored_trials_of_each(folder, files):
    for file in files:
        file.write_text(file.read_text().replace("seeds: 1", "seeds: 30"))
    with subprocess.Popen(
        command("run", *files, "--jobs", 1), stdout=-1, stderr=-1, cwd=folder, text=True
    ) as run:
        while stored(ledger(folder, "small")) < 3:
            assert run.poll() is None
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=600)
    assert (run.returncode, out) == (130, "")
    count = stored(ledger(folder, "small"))
    assert err.splitlines()[-2:] == [
        f"interrupted: {count} of 120 trials are stored in results/small; run again to continue",
        "interrupted: 0 of 120 trials are stored in results/other; run again to continue",
    ]
    assert "Traceback" not in err


def test_an_interrupt_after_a_broken_ledger(folder, capsys):
    found = requests(folder, ONE, OTHER)
    executor = Counting(found[0].folder / LEDGER_FILE, interrupted=True)
    with pytest.raises(typer.Exit) as ended:
        run_batch(found, executor, quiet=True)
    assert ended.value.exit_code == 130
    err = capsys.readouterr().err
    assert f"interrupted: {TRIALS} of {TRIALS} trials are stored in {found[1].folder};" in err
    assert f"stored in {found[0].folder}" not in err


@pytest.mark.parametrize(
    ("limit", "reason", "count"),
    [
        (("--timeout", "0.001s"), "took longer than the time limit of 0.001 s", "1 timeout"),
        pytest.param(
            *(("--memory", "64 MiB"), "of memory, the limit is 64 MiB", "1 error"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_limits_on_the_command_line(cli, files, limit, reason, count):
    one = ("--smoke", "--set", "algorithms=[unconstrained]", "--executor", "serial")
    answer = cli("run", files[0], *one, *limit)
    assert answer.code == 1
    assert reason in answer.out
    assert f"{count} (1 run now)" in answer.out


def test_fresh_deletes_nothing_without_a_cluster(folder, cli, files, monkeypatch):
    assert cli("run", files[0], "-q", "--executor", "serial").code == 0
    before = ledger(folder, "small").read_bytes()
    monkeypatch.setattr(dask_pool, "CONNECT_SECONDS", 0.2)
    answer = cli("run", files[0], "--fresh", "--executor", "dask://127.0.0.1:9")
    assert answer.code == 2
    assert "error[E512]: no Dask scheduler at tcp://127.0.0.1:9" in answer.err
    assert ledger(folder, "small").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--executor dusk", "serial, processes, dask and dask://HOST:PORT"),
        ("--executor serial --jobs 2", "one process runs one trial at a time"),
        ("--executor dask", "error[E512]: Dask is not installed = help: pip install "),
        ("--executor serial --memory 2GiB", "error[E511]: limits.memory cannot be enforced"),
    ],
    ids=["unknown", "jobs of one process", "without dask", "without /proc and ps"],
)
def test_executors_that_cannot_run(cli, small, monkeypatch, options, message):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setattr(workers, "HAS_PROC", False)
    monkeypatch.setenv("PATH", os.devnull)
    answer = cli("run", small, *options.split())
    assert answer.code == 2
    assert message in " ".join(answer.err.split())
    if "dask" in options:
        assert not (small.parent / "results").exists()
