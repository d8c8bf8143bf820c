"""What a Seldonian algorithm costs, as ratios to the Seldonian Toolkit in the same run: `make bench`.

On the GPA data (where they are at hand), the toolkit's own problems with its own settings: the last 60%
of the rows for the test, Student's t for each rate, an inflation of 2 or 1. The objective on candidate rows
and the upper bounds, predicted and on safety rows, are computed by the toolkit, for our candidates, too;
beside them stand our own where they differ: our estimates of grades are cut off at 0 and 4.
Our seconds are those of a whole trial, the test and all measurements in them, the toolkit's of candidate
selection and test; of the processor, on one core, once the rows are read. Ratios are medians of five runs
in turn, with their range.

Then the three-plot experiment of the ratio of 0.8: 50 trials at 15 amounts of data, on two cores, from the
command to the report.

The toolkit runs by the interpreter that SELDONIAN_PYTHON names:

    python3.11 -m venv toolkit
    toolkit/bin/pip install autograd==1.6.2 cma graphviz matplotlib 'numpy<1.24' pandas 'scikit-learn<1.4' tqdm
    toolkit/bin/pip install --no-deps seldonian-engine==0.8.11
    SELDONIAN_PYTHON=toolkit/bin/python make bench
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from common import ratio_text

from ratecli.config.dataset import DatasetSpec
from ratecli.datasets.files import fetch_files
from ratecli.datasets.load import load_entry_table
from ratecli.datasets.registry import find_source
from ratecli.datasets.table import Table
from ratecli.errors import FaultError
from ratecli.experiment.prepare import prepare
from ratecli.ledger.records import TrialResult
from ratecli.models.base import Array
from ratecli.models.storage import loads
from ratecli.runner.trial import run_trial
from ratecli.runner.workers import THREAD_VARIABLES, limit_to_one_thread
from ratecli.sampling.rows import load_trial_data

RATIO = "min((PR | [M])/(PR | [F]), (PR | [F])/(PR | [M])) >= {}"
OUR_RATIO = "min(positive_rate[men] / positive_rate[women], positive_rate[women] / positive_rate[men]) >= {}"
GAP = "abs((Mean_Error | [M]) - (Mean_Error | [F])) <= {}"
OUR_GAP = "abs(mean_error[men] - mean_error[women]) <= {}"
KKT_STEPS, CMA_STEPS = 1000, 1000
ROUNDS = 5
OPTIMIZERS = ("sequential", "lagrangian", "cma")


@dataclass(frozen=True)
class Task:
    """A problem in the toolkit's language and in ours."""

    name: str
    kind: str
    theirs: str
    ours: str
    delta: float = 0.05
    inflation: int = 2

    def experiment(self, optimizer: str) -> dict[str, object]:
        regression = self.kind == "regression"
        test = {"fraction": 0.6, "order": "positional", "bound": "student_t", "method": "leaves"}
        return {
            "name": "bench",
            "datasets": {"gpa": {"source": "gpa", "preparation": self.kind, "split": {"train": 1}}},
            "groups": {"men": "sex = Male", "women": "sex = Female"},
            "objective": "mse" if regression else "log_loss",
            "regularization": {"l2": 1e-9},
            "constraints": {"limit": self.ours},
            "safety": {"delta": self.delta, **test},
            "algorithms": [
                {"seldonian": {"inflation": self.inflation, "optimizer": optimizer}},
            ],
        }


TASKS = (
    Task("ratio of selection rates at least 0.8", "classification", RATIO.format(0.8),
         OUR_RATIO.format(0.8)),
    Task("ratio of selection rates at least 0.95", "classification", RATIO.format(0.95),
         OUR_RATIO.format(0.95)),
    Task("gap of mean errors at most 0.05", "regression", GAP.format(0.05), OUR_GAP.format(0.05)),
    Task("gap of mean errors at most 0.05, inflation 1", "regression", GAP.format(0.05),
         OUR_GAP.format(0.05), inflation=1),
    Task("mean squared error at most 2", "regression", "Mean_Squared_Error <= 2.0", "mse <= 2",
         delta=0.1),
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """Of one of our optimizers; `weights` in the toolkit's features, bias first, where it has some."""

    optimizer: str
    seconds: float
    result: TrialResult
    weights: Array | None


def table_of(task: Task) -> Table:
    return load_entry_table(
        DatasetSpec.model_validate({"source": "gpa", "preparation": task.kind}), Path.cwd()
    )


def toolkit_rows(table: Table) -> Array:
    """(n, 9) as the tutorials have them: standardized over all rows."""
    X = table.frame[list(table.features)].to_numpy(dtype=float)
    return (X - X.mean(axis=0)) / X.std(axis=0)


def ours(task: Task, optimizer: str, X: Array) -> Answer:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.yaml"
        path.write_text(yaml.safe_dump(task.experiment(optimizer)))
        ((job),) = (planned.payload for planned in prepare(path).plan.tasks)
        rows = load_trial_data(job.data, job.seed, None, job.case.sampling)
        begun = time.process_time()
        result = run_trial(job, {})
        seconds = time.process_time() - begun
        if not result.models:
            return Answer(optimizer, seconds, result, None)
        classifier = loads(next(iter(result.models.values())))
        ones = np.column_stack([np.ones(len(X)), X])
        weights, *_ = np.linalg.lstsq(ones, classifier.score(rows.X), rcond=None)
        return Answer(optimizer, seconds, result, weights)


def toolkit(
    task: Task, optimizer: str, others: Sequence[Array], python: str
) -> Mapping[str, Array]:
    """What seldonian_peer.py finds."""
    table = table_of(task)
    X = toolkit_rows(table)
    weights = np.array(others) if others else np.zeros((0, X.shape[1] + 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(
            path,
            X=X,
            label=table.label if task.kind == "regression" else table.label.astype(int),
            groups=table.frame[["M", "F"]].to_numpy(),
            names=["M", "F"],
            kind=task.kind,
            constraint=task.theirs,
            delta=task.delta,
            inflation=task.inflation,
            optimizer=optimizer,
            iterations=KKT_STEPS if optimizer == "kkt" else CMA_STEPS,
            weights=weights,
        )
        script = Path(__file__).with_name("seldonian_peer.py")
        done = subprocess.run(
            [python, "-I", str(script), str(path)],  # -I: this file has the name of the package
            cwd=folder,  # CMA-ES leaves files
            env=os.environ | dict.fromkeys(THREAD_VARIABLES, "1"),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"the toolkit failed by {python}:\n{done.stderr}")
        return dict(np.load(path.with_suffix(".toolkit.npz")))


def bench_task(task: Task, python: str | None) -> None:
    X = toolkit_rows(table_of(task))
    print(f"\n{task.name}")
    ours(task, OPTIMIZERS[0], X)  # compiles and imports
    wanted = [name for name in OPTIMIZERS if name != "cma" or importlib.util.find_spec("cma")]
    answers = [ours(task, name, X) for name in wanted]
    known = [answer for answer in answers if answer.weights is not None]
    peers: dict[str, list[Mapping[str, Array]]] = {}
    repeated = [answers[0].seconds]
    for k in range(ROUNDS if python is not None else 0):
        given = [answer.weights for answer in known if answer.weights is not None]
        peers.setdefault("KKT", []).append(toolkit(task, "kkt", given, python))
        peers.setdefault("CMA-ES", []).append(toolkit(task, "cmaes", (), python))
        repeated += [ours(task, OPTIMIZERS[0], X).seconds] * (k > 0)
    print(f"  {'':22}{'seconds':>9}{'objective':>11}{'predicted':>11}{'safety':>10}  result")
    for name, (peer, *_) in peers.items():
        line(f"toolkit, {name}", float(peer["seconds"]), peer["figures"][0], bool(peer["passed"]))
    judged = iter(peers["KKT"][0]["figures"][1:] if peers else [])
    for answer in answers:
        figures = next(judged, None) if answer.weights is not None else None
        passed = answer.result.status == "ok"
        line(f"ours, {answer.optimizer}", answer.seconds, figures, passed)
        if not passed:
            print(f"      {answer.result.reason}")
        elif figures is None or not np.allclose(own(answer.result), figures[[0, 2]], atol=5e-5):
            print(
                "      by our own count: objective {:.6f}, safety {:+.4f}".format(
                    *own(answer.result)
                )
            )
    for name, runs in peers.items():
        ratio = ratio_text(np.array([float(run["seconds"]) for run in runs]), np.array(repeated))
        print(f"    the toolkit's {name} takes {ratio} times as long as {answers[0].optimizer}")


def own(result: TrialResult) -> tuple[float, float]:
    """Objective on candidate rows and upper bound of the test, as the trial has them."""
    objective = next(
        value.value
        for value in result.values
        if value.split == "train" and value.metric in {"mse", "log_loss"}
    )
    return objective, float(result.info["certificates"][0]["upper"])


def line(name: str, seconds: float, figures: Array | None, passed: bool) -> None:
    shown = f"{'-':>11}{'-':>11}{'-':>10}"
    if figures is not None:
        shown = f"{figures[0]:11.6f}{figures[1]:+11.4f}{figures[2]:+10.4f}"
    print(f"  {name:22}{seconds:9.3f}{shown}  {'passes' if passed else 'no solution'}")


def bench_three_plots() -> None:
    experiment = TASKS[0].experiment("sequential") | {
        "sweep": {"amount": "logspace(0.001, 1, 15)"},
        "resample": "amount",
        "seeds": 50,
        "metrics": {"accuracy": "accuracy"},
        "report": {"plots": [{"kind": "guarantee", "x": "amount", "y": "accuracy"}]},
    }
    experiment["datasets"] = {"gpa": {"source": "gpa"}}
    experiment["safety"] = experiment["safety"] | {"order": "shuffled"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.yaml"
        path.write_text(yaml.safe_dump(experiment))
        begun = time.perf_counter()
        command = [sys.executable, "-m", "ratecli", "run", str(path), "-o", folder, "-j", "2", "-q"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - begun
    print(f"\nthree plots, 50 trials at 15 amounts on 2 cores: {seconds:.0f} s by the clock")
    if done.returncode:
        print(f"  exit code {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")


def main() -> None:
    python = os.environ.get("SELDONIAN_PYTHON")
    print("the toolkit is not here: SELDONIAN_PYTHON names no interpreter" if python is None
          else f"the toolkit is run by {python}")  # fmt: skip
    try:
        fetch_files(find_source("gpa"), offline=False)
    except FaultError as fault:
        print(f"the GPA data is left out: {fault}")
        return
    with limit_to_one_thread():
        for task in TASKS:
            bench_task(task, python)
    bench_three_plots()


if __name__ == "__main__":
    main()
