"""How the features of a trial's models are made, as a file beside them: with it they can be applied."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from ratecli.files import ENCODER_FILE
from ratecli.ledger.records import PlannedTrial


def encoder_json(
    trial: PlannedTrial, encoding: str, names: Mapping[str, str], models: Mapping[str, bytes]
) -> dict[str, bytes]:
    """The file by its name; `names` are those of the variants' files, `models` what they hold.

    There is none where the trial is of an older ratecli, which kept no encoding.
    """
    if not encoding:
        return {}
    content = {
        "key": trial.key,
        "algorithm": trial.label,
        "point": dict(trial.point),
        "seed": trial.seed,
        "models": [
            {"variant": variant, "file": names[variant], "sha256": hashlib.sha256(data).hexdigest()}
            for variant, data in models.items()
        ],
        **json.loads(encoding),
    }
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return {ENCODER_FILE: f"{text}\n".encode()}
