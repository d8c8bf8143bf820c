"""Speed as ratios against peers in the same run: `make bench`.

Measuring rates against scikit-learn, on a9a where it is at hand, else `loans`.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from common import SCOPE, fastest
from sklearn.metrics import accuracy_score, recall_score

from ratecli.config.dataset import DatasetSpec
from ratecli.datasets.files import fetch_files
from ratecli.datasets.registry import find_source
from ratecli.errors import FaultError
from ratecli.rates.matrix import Predictions, measure
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import resolve
from ratecli.runner.workers import limit_to_one_thread
from ratecli.sampling.rows import ExperimentData, TrialData, load_trial_data


def rows() -> tuple[str, TrialData]:
    try:
        fetch_files(find_source("a9a"), offline=not os.environ.get("RATECLI_DATA_MIRROR"))
    except FaultError:
        return "loans", load_trial_data(
            ExperimentData.of(
                {"data": DatasetSpec.model_validate({"source": "loans"})}, Path.cwd()
            ),
            0,
        )
    return "a9a", load_trial_data(
        ExperimentData.of({"data": DatasetSpec.model_validate({"source": "a9a"})}, Path.cwd()), 0
    )


def bench_measure(name: str, found: TrialData) -> None:
    """Accuracy and recall of two groups, against scikit-learn's on masked arrays."""
    texts = [f"{rate}[{group}]" for rate in ("accuracy", "tpr") for group in ("women", "men")]
    expressions = [resolve(parse_expression(text), SCOPE) for text in texts]
    decisions = (np.random.default_rng(0).random(len(found.sample)) > 0.7).astype(float)
    predictions = Predictions(decisions, decisions, decisions)
    sample = found.sample

    def theirs() -> None:
        test = sample.part == "test"
        for measure_of in (accuracy_score, recall_score):
            for value in ("Female", "Male"):
                mask = test & (sample.columns["sex"] == value)
                measure_of(sample.label[mask], decisions[mask])

    ours = fastest(lambda: measure(expressions, sample, "test", predictions), 20)
    peer = fastest(theirs, 20)
    print(f"measuring 4 rates, {name}: {1e3 * ours:.1f} ms, scikit-learn takes {peer / ours:.1f} "
          "times as long")  # fmt: skip


if __name__ == "__main__":
    data_name, found_rows = rows()
    with limit_to_one_thread():
        bench_measure(data_name, found_rows)
