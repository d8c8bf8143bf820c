"""The trials of a results folder as runs of an MLflow store, which MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import os
import re
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ratecli.errors import Diagnostic, FaultError, exception_line
from ratecli.files import LEDGER_FILE, MODELS_FOLDER, REPORT_FILE
from ratecli.ledger.records import FAILED_STATUSES, PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report.answer_text import answer_lines
from ratecli.report.groups import main_variant, trial_values
from ratecli.report.write import trials_with_files

DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # MLflow's own default waits for minutes
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Variables of MLflow that are set unless the user has set them."""
REPORT = "report"
"""The tag `key` of an experiment's run for the report, the parent of those for trials."""


def check_tracker() -> None:
    """Raise E202 if MLflow is not installed."""
    if find_spec("mlflow") is None:
        message = "--track mlflow needs MLflow, which is not installed"
        raise FaultError(Diagnostic("E202", message, "pip install 'ratecli[mlflow]'"))


def track(folder: Path) -> str:
    """Log the trials of a results folder that the MLflow store lacks, and the report.

    Each trial is one run of the MLflow experiment with the name of the ratecli experiment. A trial
    is known by its key and name. It is logged again if its status has changed, or if an earlier
    attempt to log it was interrupted. Return a line on what was logged where.

    Raises
    ------
    FaultError
        E202 if MLflow is not installed, E503 if there are no results, E514 if the store fails.
    """
    check_tracker()
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    ledger = Ledger.read(folder / LEDGER_FILE)
    try:
        return _without_password(_log(ledger, folder))
    except Exception as error:  # each kind of store has its own
        what = _without_password(exception_line(error))
        message = f"the results in '{folder}' are complete, but MLflow did not take them: {what}"
        hint = "check MLFLOW_TRACKING_URI, then run again: only missing trials are logged"
        raise FaultError(Diagnostic("E514", message, hint)) from error


def _log(ledger: Ledger, folder: Path) -> str:
    import mlflow  # noqa: PLC0415  optional, and slow to import

    client, experiment = mlflow.MlflowClient(), ledger.experiment["name"]
    known = client.get_experiment_by_name(experiment)
    place = known.experiment_id if known else client.create_experiment(experiment)
    runs = mlflow.search_runs([place], output_format="list")
    logged = {(run.data.tags.get("key"), run.info.run_name): run for run in runs}

    def find_run(key: str, name: str, seconds: float = 0.0, **tags: str) -> Any:
        """Return the run of a key and a name, a new one that began some seconds ago if needed."""
        start = int(1000 * (time.time() - seconds))
        found = logged.get((key, name))
        return found or client.create_run(place, start, {"key": key, **tags}, name)

    parent, new = find_run(REPORT, experiment).info.run_id, 0
    ended = {(each.key, each.name): each for each in ledger.plan if each.key in ledger.results}
    folders = {(each.key, each.name): name for name, each in trials_with_files(ledger).items()}
    for known_by, trial in ended.items():
        result, models = ledger.results[trial.key], folders.get(known_by)
        run = find_run(*known_by, result.seconds, **{"mlflow.parentRunId": parent})
        if run.data.tags.get("status") != result.status:
            new += 1
            if models is not None:
                client.log_artifacts(run.info.run_id, folder / MODELS_FOLDER / models, "model")
            _log_trial(client, run.info.run_id, ledger, trial)
    client.log_artifact(parent, folder / REPORT_FILE)
    client.set_tag(parent, "mlflow.note.content", "\n\n".join(answer_lines(ledger)))
    client.set_terminated(parent)
    where = f"experiment '{experiment}', {mlflow.get_tracking_uri()}"
    return f"mlflow   {new} of {len(ended)} trials logged now: {where}"


def _log_trial(client: Any, run: str, ledger: Ledger, trial: PlannedTrial) -> None:
    """Log a trial; its status comes last, which shows that the rest is complete."""
    from mlflow.entities import Metric, Param, RunTag  # noqa: PLC0415  optional

    main, result = main_variant(ledger, trial), ledger.results[trial.key]
    metrics = {"seconds": result.seconds}
    for variant, split, metric, value in trial_values(ledger, trial):
        name = f"{split}.{metric}"
        metrics[name if variant == main else f"{variant}.{name}"] = value
    options = {**trial.options, **trial.point, "seed": trial.seed}
    tags = {"algorithm": trial.label, "variant": main, "seed": trial.seed, "reason": result.reason}
    tags |= {f"sweep.{name}": value for name, value in trial.point.items()}
    now = int(1000 * time.time())
    client.log_batch(
        run,
        [Metric(name, value, now, 0) for name, value in metrics.items()],
        [Param(name, str(value)) for name, value in options.items()],
        [RunTag(name, str(value)) for name, value in tags.items() if value != ""],
    )
    client.set_tag(run, "status", result.status)
    client.set_terminated(run, "FAILED" if result.status in FAILED_STATUSES else "FINISHED")


def _without_password(text: str) -> str:
    return re.sub(r"://[^/@\s]*@", "://", text)
