"""Stored results with known numbers: of a small experiment, and of one with certificates."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ratecli.ledger.records import GROUP_RATES_KEY, MeasuredValue, PlannedTrial, TrialResult
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import Ledger
from ratecli.report.sheet import Sheet

METRICS = {
    "objective": "error",
    "ratio": "positive_rate[women] / positive_rate[men]",
    "error": "error",
    "violation.parity": "kappa * positive_rate[men] - positive_rate[women]",
}
KAPPAS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
HOSTILE = "<script>alert('x')</script> & \"quoted\""


def planned(label: str, seed: int, **point: Any) -> PlannedTrial:
    metrics = {
        name: text.replace("kappa", str(point.get("kappa"))) for name, text in METRICS.items()
    }
    key = f"{label}-{sorted(point.items())}-{seed}"
    return PlannedTrial(key, label, label, {}, point, seed, metrics)


def measured(
    trial: PlannedTrial,
    numbers: Mapping[tuple[str, str], Mapping[str, float]],
    status: str = "ok",
    **more: Any,
) -> TrialResult:
    """Return a result with numbers by display name: {(variant, split): {name: value}}."""
    values = tuple(
        MeasuredValue(variant, split, trial.metrics[name], value)
        for (variant, split), found in numbers.items()
        for name, value in found.items()
    )
    return TrialResult(trial.key, status, values=values, **more)


def example() -> Ledger:
    """Return three algorithms at six sweep points with five seeds; one trial failed."""
    noise = random.Random(1)
    plan = [
        planned(label, seed, kappa=kappa)
        for label in ("unconstrained", "majorize", "three_player")
        for kappa in KAPPAS
        for seed in range(5)
    ]
    return Ledger(plan, {trial.key: _answer(trial, noise) for trial in plan}, _meta())


def _answer(trial: PlannedTrial, noise: random.Random) -> TrialResult:
    kappa = trial.point["kappa"]
    if (trial.label, kappa, trial.seed) == ("majorize", 1.0, 2):
        return TrialResult(trial.key, "error", "E501: ZeroDivisionError: <b>division</b> by zero")
    if (trial.label, kappa) == ("three_player", 1.0):
        return TrialResult(trial.key, "no_solution_found", "no candidate passed")
    if trial.label == "unconstrained":
        noise.seed(trial.seed)
        found = {
            ("hinge", split): _numbers(0.45, 0.12, kappa, noise) for split in ("train", "test")
        }
        return measured(trial, found, status="not_met", info=_group_rates(found))
    error = 0.12 + 0.2 * (kappa - 0.45) ** 2
    found = {
        (variant, split): _numbers(kappa + 0.02, error + more, kappa, noise)
        for variant, more in (("stochastic", 0.0), ("deterministic", 0.008))
        for split in ("train", "test")
    }
    info = {"warnings": ["W402: parity holds on train, not on test"]} | _group_rates(found)
    return measured(trial, found, info=info)


def _group_rates(numbers: Mapping[tuple[str, str], Mapping[str, float]]) -> dict[str, Any]:
    rates = {
        variant: {
            "sex = Female": {"positive_rate": [found["ratio"] / 2, 300]},
            "sex = Male": {"positive_rate": [0.5, 300]},
        }
        for (variant, split), found in numbers.items()
        if split == "test"
    }
    counts = {"sex = Female": 300, "sex = Male": 300}
    return {GROUP_RATES_KEY: {"split": "test", "rows": counts, "rates": rates}}


def _numbers(ratio: float, error: float, kappa: float, noise: random.Random) -> dict[str, float]:
    ratio += noise.gauss(0, 0.01)
    error += noise.gauss(0, 0.004)
    violation = 0.4 * (kappa - ratio)
    return {"objective": error, "ratio": ratio, "error": error, "violation.parity": violation}


def _meta() -> dict[str, Any]:
    plot = {"kind": "tradeoff", "x": "ratio", "y": "error"}
    constraint = "positive_rate[women] >= kappa * positive_rate[men]"
    return {
        "experiment": {
            "name": "quickstart",
            "description": f"How much accuracy does each algorithm pay? {HOSTILE}",
            "objective": "error",
            "constraints": {"parity": constraint},
            "groups": {"women": "sex = Female", "men": "sex = Male"},
            "metrics": {name: METRICS[name] for name in ("ratio", "error")},
            "report": {
                "tables": [
                    {"rows": ["algorithm", "variant", "kappa"], "split": "test",
                     "columns": ["ratio", "error", "violation.parity"]},
                    {"rows": ["algorithm"], "columns": ["error"], "split": "train",
                     "file": "errors"},
                ],
                "plots": [plot | {"split": "test"}, plot | {"split": "train", "title": HOSTILE}],
            },
        },
        "goals": [
            {"name": "objective", "text": "error", "class": "affine"},
            {"name": "parity", "text": constraint, "class": "affine"},
        ],
        "datasets": {"loans": {"digest": "sha256:" + "0a" * 32, "rows": 4000, "files": []}},
        "versions": {"ratecli": "0.1.0", "numpy": "2.4.6"},
        "manifest": {"git": {"commit": "1f" * 20, "clean": True}, "command": ["ratecli", "run"]},
        "warnings": ["W401: group 'women' of 'loans' has 12 rows"],
        "frontier": {"0": [[0.0, 0.115], [0.4, 0.115], [0.6, 0.12], [0.8, 0.14], [1.0, 0.17]]},
        "plots": [{"levels": [{"value": k, "label": f"kappa = {k}"} for k in KAPPAS]}],
    }  # fmt: skip


def texts(sheet: Sheet) -> list[list[str]]:
    return [[cell.text for cell in row] for row in sheet.rows]


def store(folder: Path, ledger: Ledger, order: Iterable[PlannedTrial]) -> Path:
    """Store the ledger in a results folder, the trials in the given order."""
    with LedgerStore(folder / "trials.sqlite") as file:
        file.begin(ledger.plan, ledger.meta)
        for trial in order:
            file.put(ledger.results[trial.key])
    return folder


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
    meta = {"name": "x", "constraints": {"parity": "gap <= 0"}, "metrics": {"error": "error"}}
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
    facts = {"rows": [312], "delta": list(deltas), "bound": "student_t"}
    return node(text, low, high) | {"estimate": (low + high) / 2} | facts | more


def node(text: str, low: Any, high: Any, *children: dict) -> dict:
    return {"text": text, "interval": [low, high], "children": list(children)}


def number_of(value: float) -> dict:
    return node(f"{value:g}", value, value)


def tutorial() -> dict:
    """Return the tree of the tutorial's figure 2, with the intervals of its example."""
    men, women = leaf("mean_error[men]", 3.0, 4.0), leaf("mean_error[women]", 2.0, 3.0)
    difference = node("-", 0.0, 2.0, men, women)
    return node("-", -0.05, 1.95, node("abs", 0.0, 2.0, difference), number_of(0.05))


def certificate(tree: dict, upper: Any = 1.95, **more: Any) -> dict:
    record = {
        "constraint": "parity", "variant": "main", "classifier": "deterministic", "delta": 0.05,
        "method": "leaves", "bound": "student_t", "exact": False, "upper": upper, "estimate": 0.95,
        "passed": False, "explanation": "'parity': the upper bound is 1.95", "tree": tree,
    }  # fmt: skip
    return record | more


def certified(*records: dict, **experiment: Any) -> Ledger:
    """Return one unsolved trial with these certificates."""
    trial = planned(SAFE, 0, amount=100)
    result = nothing(trial, info={"certificates": list(records)})
    return ledger_of([(trial, result)], **experiment)
