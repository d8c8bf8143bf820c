"""Experiments of one command: what can be made of their files, and what they must not do to each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ratecli.cli.collect import collect_errors
from ratecli.errors import Diagnostic, FaultError

if TYPE_CHECKING:
    from ratecli.experiment.prepare import PreparedExperiment
    from ratecli.runner.run import RunRequest

EXIT_NO_DATA = 4
"""The exit code where data cannot be had."""


def prepare_files(
    files: Sequence[Path], make: Callable[[Path], PreparedExperiment]
) -> tuple[list[PreparedExperiment], list[Diagnostic]]:
    """What `make` gives of the files, and the faults of those whose data cannot be had (E4xx).

    A mistake in any file stops all; data only the experiment that needs it, if there are others. Raises
    FaultError otherwise.
    """
    ready: list[PreparedExperiment] = []
    lacking: list[Diagnostic] = []
    wrong: list[Diagnostic] = []
    for file in files:
        try:
            ready.append(make(file))
        except FaultError as error:
            found = with_file_name(file, error.faults) if len(files) > 1 else error.faults
            (lacking if error.exit_code == EXIT_NO_DATA else wrong).extend(found)
    if wrong or not ready:
        raise FaultError([*wrong, *lacking])
    return ready, lacking


def with_file_name(file: Path, faults: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Faults of one file among several: those without a place say which."""
    return [
        replace(fault, message=f"{file}: {fault.message}") if fault.place is None else fault
        for fault in faults
    ]


def check_models_not_overwritten(asked: Sequence[RunRequest]) -> None:
    """E310 for files that compare with a model which this very command writes."""
    from ratecli.sampling.deployed import check_model_preserved  # noqa: PLC0415

    results = {one.folder: one.prepared.path for one in asked}
    made = [one.prepared for one in asked]
    collect_errors(
        made,
        lambda one: check_model_preserved(one.experiment, one.document, one.data.folder, results),
    )
