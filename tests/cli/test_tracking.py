"""`run --track mlflow`, against a server that the test starts."""

import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec

import pytest
import requests
from small import PLAIN, environment, process, read_rows

RUN = ("run", "small.yaml", "-j", 1, "--track", "mlflow")


@pytest.mark.parametrize(
    ("tracker", "said"),
    [("mlflow", "E202]: --track mlflow needs MLflow"), ("wandb", "'wandb' is not one of 'mlflow'")],
)
@pytest.mark.usefixtures("small")
def test_nothing_runs_without_the_tracker(cli, listing, monkeypatch, tracker, said):
    monkeypatch.setitem(sys.modules, "mlflow", None)  # not installed
    before = listing()
    answer = cli("run", "small.yaml", "--track", tracker)
    assert (answer.code, said in answer.err) == (2, True)
    assert ("pip install 'ratecli[mlflow]'" in answer.err) == (tracker == "mlflow")
    assert listing() == before


@contextmanager
def server(folder):
    """Start an MLflow server that keeps all in a folder; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = ["--backend-store-uri", "sqlite:///store.db", "--artifacts-destination", "artifacts"]
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    with (folder / "log").open("w") as log:
        started = subprocess.Popen([*command, *store], cwd=folder, stdout=log, stderr=log)
        try:
            for _ in range(600):
                assert started.poll() is None, (folder / "log").read_text()
                try:
                    requests.get(f"http://127.0.0.1:{port}/health", timeout=5).raise_for_status()
                    break
                except requests.RequestException:
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            started.terminate()
            started.wait(60)


@pytest.mark.slow
@pytest.mark.skipif(
    not (find_spec("mlflow") and find_spec("flask")), reason="needs mlflow with its server"
)
def test_trials_are_logged_once_to_a_server(folder, tmp_path_factory, monkeypatch):
    (folder / "small.yaml").write_text(PLAIN)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with server(tmp_path_factory.mktemp("server")) as address:
        variables = environment(MLFLOW_TRACKING_URI=address)

        def ask(path, **content):
            found = requests.post(f"{address}/api/2.0/mlflow/{path}", json=content, timeout=60)
            found.raise_for_status()
            return found.json()

        def logged(*settings):
            answer = process(*RUN, *settings, env=variables)
            assert answer.returncode == 0, answer.stderr
            return next(line for line in answer.stdout.split("\n") if line.startswith("mlflow"))

        assert logged("--set", "seeds=1") == (
            f"mlflow   4 of 4 trials logged now: experiment 'small', {address}"
        )
        assert "4 of 8" in logged()
        listed = requests.get(
            f"{address}/api/2.0/mlflow/experiments/get-by-name?experiment_name=small", timeout=60
        ).json()["experiment"]

        def runs():
            found = ask("runs/search", experiment_ids=[listed["experiment_id"]], max_results=100)[
                "runs"
            ]
            return {run["info"]["run_name"]: run for run in found}

        found = runs()
        assert len(found) == 9
        parent = found.pop("small")
        rows = read_rows(folder / "results" / "small" / "metrics.csv")
        measured = {
            (row["algorithm"], row["kappa"], row["seed"], f"{row['split']}.{row['metric']}"): float(
                row["value"]
            )
            for row in rows
        }
        values = {}
        for run in found.values():
            tags = {each["key"]: each["value"] for each in run["data"]["tags"]}
            assert run["info"]["status"] == "FINISHED"
            assert tags["status"] == "ok"
            assert tags["mlflow.parentRunId"] == parent["info"]["run_id"]
            place = tags["algorithm"], tags["sweep.kappa"], tags["seed"]
            values |= {(*place, each["key"]): each["value"] for each in run["data"]["metrics"]}
        assert {key: value for key, value in values.items() if key[-1] != "seconds"} == measured

        one = found["majorize kappa=0.9 seed=1"]
        params = {each["key"]: each["value"] for each in one["data"]["params"]}
        assert (params["iterations"], params["kappa"], params["seed"]) == ("2", "0.9", "1")

        def artifact(run, path):
            place = f"{listed['experiment_id']}/{run['info']['run_id']}/artifacts/{path}"
            url = f"{address}/api/2.0/mlflow-artifacts/artifacts/{place}"
            return requests.get(url, timeout=60).content

        results = folder / "results" / "small"
        stored = results / "models" / "majorize-kappa=0.9-seed=1"
        files = {path.name: path.read_bytes() for path in stored.iterdir()}
        assert "encoder.json" in files
        assert {name: artifact(one, f"model/{name}") for name in files} == files
        assert artifact(parent, "report.html") == (results / "report.html").read_bytes()

        ask("runs/delete-tag", run_id=one["info"]["run_id"], key="status")  # as if interrupted
        assert "1 of 8" in logged()
        assert len(runs()) == 9

    lost = process(*RUN, "--fresh", env=variables)
    assert lost.returncode == 2
    assert lost.stderr.count("error[E514]: the results in 'results/small' are complete") == 1
    assert "report   results/small/report.html" in lost.stdout
