"""The certificates of a trial as a file beside its models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ratecli.ledger.records import VIOLATION_PREFIX, PlannedTrial
from ratecli.ledger.view import Ledger

CERTIFICATES = "certificates.json"


def certificate_file(
    ledger: Ledger, trial: PlannedTrial, models: Mapping[str, str]
) -> dict[str, bytes]:
    """The file of a trial that was tested, by its name; `models` are the files of its variants.

    It says by itself what was certified of whom: the ledger need not be at hand to read it.
    """
    result = ledger.results.get(trial.key)
    records = result.info.get("certificates") if result else None
    if not result or not records:
        return {}
    rows = (result.info.get("rows") or {}).get("safety")
    about = {"seed": trial.seed, "safety_rows": rows}
    content = {
        "key": trial.key,
        "algorithm": trial.label,
        "point": dict(trial.point),
        "status": result.status,
        "reason": result.reason,
        "certificates": [_named(ledger, trial, each, models) | about for each in records],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    return {CERTIFICATES: f"{text}\n".encode()}


def _named(
    ledger: Ledger, trial: PlannedTrial, record: Mapping[str, Any], models: Mapping[str, str]
) -> dict[str, Any]:
    """A record with the rule as the file has it, and as it was measured: at most 0 at this sweep point."""
    name, variant = record["constraint"], record.get("variant", "")
    return {
        "constraint": name,
        "rule": ledger.constraints.get(name, ""),
        "violation": trial.metrics.get(VIOLATION_PREFIX + name, ""),
        "variant": variant,
        "model": models.get(variant),
        **record,
    }
