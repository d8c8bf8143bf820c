"""`ratecli check` and `ratecli pin` of one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ratecli.config.experiment import Experiment
from ratecli.config.names import SOLUTION_RATE
from ratecli.errors import Fault, FaultError
from ratecli.experiment.filter_stage import LEAST
from ratecli.experiment.prepare import Prepared
from ratecli.files import atomic_write, writing
from ratecli.ledger.records import STAGE
from ratecli.ledger.view import SPLITS, Ledger
from ratecli.rates.direction import Direction, direction
from ratecli.rates.parser import parse_value
from ratecli.rates.table import SPREADS
from ratecli.report.regression.compare import compare
from ratecli.report.regression.current import NothingError, standing, unanswered
from ratecli.report.regression.expected import expected
from ratecli.report.regression.findings import Check, Finding, Verdict
from ratecli.report.regression.notes import notes
from ratecli.report.regression.reference import OBJECTIVE, Reference, read, reference, text
from ratecli.report.regression.verdicts import PIN_AGAIN, Terms

LOW_OF_FILTERS = tuple(f"{STAGE}{name}" for name in (*SPREADS, OBJECTIVE))
"""Of the filter before training; of the metrics there, `LEAST` is better high."""


def check(prepared: Prepared, folder: Path, place: Path, tolerance: float) -> Check:
    """What is stored in `folder` against what the file expects and the reference at `place`."""
    name = prepared.experiment.name
    try:
        known = read(place) if place.exists() else None
        ledger = standing(prepared, folder)
    except NothingError as nothing:
        return Check(prepared.path, name, None, [nothing.finding])
    except FaultError as error:  # E506, E502, E503: other files can still be compared
        return Check(prepared.path, name, None, list(map(_fault, error.faults)))
    found = list(unanswered(ledger, prepared.path))
    found += expected(ledger, prepared.experiment.expect)
    if known is None and not any(each.against == "expect" for each in found):
        told = f"there is nothing to compare with: no reference at '{place}', and no number in `expect`"
        way_out = (
            f"`ratecli pin {prepared.path}` once the numbers are right, or state some in `expect`"
        )
        found.append(Finding(Verdict.NOT_COMPARED, "reference", told=told, way_out=way_out))
    if known is None:
        return Check(prepared.path, name, None, _placed(prepared, found))
    found += _pinned(prepared, ledger, known, tolerance)
    versions = _versions(known.versions, ledger.meta["versions"])
    remarks = list(notes(ledger, known, found))
    return Check(prepared.path, name, place, _placed(prepared, found), versions, remarks)


def pin(prepared: Prepared, folder: Path, place: Path) -> Reference:
    """Write the reference of what is stored in `folder` to `place`.

    Raises
    ------
    FaultError
        E507 where trials are missing or failed, E505 where the file cannot be written.
    """
    try:
        ledger = standing(prepared, folder)
        found = list(unanswered(ledger, prepared.path))
    except NothingError as nothing:
        found = [nothing.finding]
    if found:
        name = prepared.experiment.name
        raise FaultError(
            Fault("E507", f"'{name}' cannot be pinned: {each.sentence}", each.way_out)
            for each in found
        )
    made = reference(ledger)
    with writing(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(place, text(made))
    return made


def directions(experiment: Experiment) -> dict[str, Direction]:
    """Which way each metric of a file gets better."""
    found = {name: direction(parse_value(rule)) for name, rule in experiment.metrics.items()}
    low = dict.fromkeys((OBJECTIVE, *LOW_OF_FILTERS), Direction.LOW)
    return found | low | dict.fromkeys((SOLUTION_RATE, LEAST), Direction.HIGH)


def rows(ledger: Ledger) -> dict[str, int]:
    """How many rows a split has, summed over trials."""
    found: Counter[str] = Counter()
    for trial in ledger.plan:
        result = ledger.results.get(trial.key)
        found.update((result.info.get("rows") if result else None) or {})
    return {split: found[split] for split in SPLITS if split in found}


def _placed(prepared: Prepared, found: Sequence[Finding]) -> list[Finding]:
    """What is of a whole algorithm at its entry."""
    labels = [entry.label for entry in prepared.experiment.algorithms]
    return [
        replace(each, loc=("algorithms", labels.index(each.algorithm)))
        if each.loc == ("algorithms",) and each.algorithm in labels
        else each
        for each in found
    ]


def _fault(fault: Fault) -> Finding:
    way_out = fault.help or ""
    return Finding(
        Verdict.NOT_COMPARED, "reference", told=fault.message, way_out=way_out, code=fault.code
    )


def _pinned(
    prepared: Prepared, ledger: Ledger, known: Reference, tolerance: float
) -> list[Finding]:
    if known.name != prepared.experiment.name:
        told = f"the reference is one of '{known.name}'"
        return [Finding(Verdict.NOT_COMPARED, "reference", told=told, way_out="name the right one")]
    again = PIN_AGAIN.format(file=prepared.path)
    terms = Terms(tolerance, directions(prepared.experiment), rows(ledger))
    return [
        replace(each, way_out=again) if each.way_out == PIN_AGAIN else each
        for each in compare(ledger, known, terms)
    ]


def _versions(was: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    pairs = {name: (was.get(name, "-"), now.get(name, "-")) for name in {**was, **now}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
