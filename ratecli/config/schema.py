"""The JSON schema of the file, for editors."""

from __future__ import annotations

from typing import Any

from ratecli.config.experiment import Experiment


def json_schema() -> dict[str, Any]:
    """Draft 2020-12; describes the file as it is written, defaults and short forms included."""
    schema = Experiment.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema
