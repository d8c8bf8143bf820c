"""Stored results of an experiment with a constraint, whose solution and failure rates are known."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from synthetic_ledger import measured, planned

from ratecli.ledger.records import PlannedTrial, TrialResult
from ratecli.ledger.view import Ledger

AMOUNTS = (100, 300, 1000, 3000, 10000)
TRIALS = 20
PLOT = {"kind": "guarantee", "x": "amount", "y": "error"}
SAFE = "seldonian"
PLAIN = "unconstrained"
SOLVED = {SAFE: (0, 5, 14, 20, 20), PLAIN: (20,) * 5}
VIOLATED = {SAFE: (0, 1, 0, 1, 0), PLAIN: (9, 10, 12, 11, 13)}
"""Numbers of trials at each amount: with a classifier, and with one that violates parity."""


def returned(trial: PlannedTrial, violation: float, error: float = 0.2, **more: Any) -> TrialResult:
    """Return a classifier with this violation on the test set, and none on the training set."""
    numbers = {
        ("main", "train"): {"error": error, "violation.parity": -0.1},
        ("main", "test"): {"error": error, "violation.parity": violation},
    }
    return measured(trial, numbers, **more)


def nothing(trial: PlannedTrial, status: str = "no_solution_found", **more: Any) -> TrialResult:
    reason = f"parity: the upper end {trial.seed / 100 + 0.01} on 40 rows is above 0"
    return TrialResult(trial.key, status, reason, **more)


def ledger_of(
    pairs: Sequence[tuple[PlannedTrial, TrialResult | None]], **experiment: Any
) -> Ledger:
    """Return a ledger of trials in the order of the plan, each with its result."""
    meta = {"name": "x", "constraints": {"parity": "..."}, "metrics": {"error": "error"}}
    found = {trial.key: result for trial, result in pairs if result is not None}
    return Ledger([trial for trial, _ in pairs], found, {"experiment": meta | experiment})


def ledger_of_known_rates(**experiment: Any) -> Ledger:
    """Return two algorithms at five amounts, 20 trials each, with the rates above."""
    pairs = []
    for label, (k, amount) in itertools.product((SAFE, PLAIN), enumerate(AMOUNTS)):
        for seed in range(TRIALS):
            trial = planned(label, seed, amount=amount)
            violation = 0.05 if seed < VIOLATED[label][k] else -0.05
            error = 0.3 - 0.03 * k + 0.02 * (label == SAFE) + 0.01 * (seed % 5 - 2)
            solved = seed < SOLVED[label][k]
            pairs.append((trial, returned(trial, violation, error) if solved else nothing(trial)))
    return ledger_of(pairs, report={"plots": [PLOT]}, **experiment)


def leaf(text: str, low: Any, high: Any, deltas: Any = (0.0125, 0.0125), **more: Any) -> dict:
    """Return a bounded quantity of a certificate's tree."""
    facts = {
        "estimate": (low + high) / 2,
        "rows": [312],
        "delta": list(deltas),
        "bound": "student_t",
    }
    return {"text": text, "interval": [low, high], "children": [], **facts, **more}


def node(text: str, low: Any, high: Any, *children: dict) -> dict:
    return {"text": text, "interval": [low, high], "children": list(children)}


def number_of(value: float) -> dict:
    return node(f"{value:g}", value, value)


def tutorial() -> dict:
    """Return the tree of the tutorial's figure 2, with the intervals of its example."""
    difference = node(
        "-", 0.0, 2.0, leaf("mean_error[men]", 3.0, 4.0), leaf("mean_error[women]", 2.0, 3.0)
    )
    return node("-", -0.05, 1.95, node("abs", 0.0, 2.0, difference), number_of(0.05))


def certificate(tree: dict, upper: Any = 1.95, **more: Any) -> dict:
    record = {
        "constraint": "parity", "variant": "main", "classifier": "deterministic", "delta": 0.05,
        "method": "leaves", "bound": "student_t", "exact": False, "upper": upper, "estimate": 0.95,
        "passed": False, "explanation": "'parity': the upper bound reached 1.95", "tree": tree,
    }  # fmt: skip
    return record | more


def certified(*records: dict, **experiment: Any) -> Ledger:
    """Return one unsolved trial with these certificates."""
    trial = planned(SAFE, 0, amount=100)
    result = nothing(trial, info={"certificates": list(records)})
    return ledger_of([(trial, result)], **experiment)
