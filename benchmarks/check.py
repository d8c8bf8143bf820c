"""How often `ratecli check` finds a loss of known size, and how often it finds one where there is none.

    python benchmarks/check.py [COMPARISONS]        # default: 200 each, ten minutes on one core

Real trials on generated loans (4,000 rows, a third of them to test, six sweep points) are run at 40
seeds, and each of their classifiers is measured again with wrong decisions planted: on rows drawn at
random, so many that the error is expected to rise by a given size. A simulated comparison draws some of
the seeds, pins what they gave, and checks what they give with the loss planted at all sweep points of one
algorithm; the experiment has `unconstrained` beside it.

- `majorize`, paired: the same seeds give the same classifiers, but for the loss.
- `three_player`, paired: batches are drawn anew in the second run, as after a change of code that draws
  random numbers in another order. Without a loss whatever trips is a false alarm.
- `majorize`, two samples: other seeds, so other splits of the rows.

The tables have the share of comparisons that trip, with its exact 95 % interval. In the second, nothing is
lost but ratios: of the `last` classifiers so many are made undefined, pinned and now, each seed and sweep point
by itself. (One of the second run is by nature: of its 240 last classifiers one selects no man, so that one
comparison in eight of five seeds has a ratio that is infinite on one side.) Of 200 comparisons each:

    loss of error                   0         0.001     0.0025    0.005     0.01
    majorize, same seeds, 5         0.000     0.690     1.000     1.000     1.000
    majorize, same seeds, 10        0.000     1.000     1.000     1.000     1.000
    three_player, drawn anew, 5     0.000     0.000     0.065     0.730     1.000
    three_player, drawn anew, 10    0.030     0.080     0.745     1.000     1.000
    three_player, drawn anew, 20    0.020     0.160     1.000     1.000     1.000
    majorize, other seeds, 5        0.010     0.010     0.030     0.510     1.000
    majorize, other seeds, 10       0.010     0.015     0.365     1.000     1.000
    majorize, other seeds, 20       0.010     0.055     0.960     1.000     1.000

    undefined, pinned and now       0.1, 0.1  0.3, 0.3  0, 0.3    0, 0.6    0, 0.9
    three_player, drawn anew, 5     0.015     0.155     0.565     1.000     1.000
    three_player, drawn anew, 10    0.020     0.020     1.000     1.000     1.000

Without a loss at most 6 of 200 trip (0.030, up to 0.064), but where ratios are undefined at a third of 5
seeds: then a sweep point may have too few left to compare, which fails by design. With other seeds an error of
1,333 test rows is as uncertain as its rows, and one of all 4,000 is not: the power is that of the mean over
train and test.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib as mpl
import numpy as np

from ratecli.config.document import Document
from ratecli.experiment.prepare import prepare_document
from ratecli.ledger.records import TrialResult, random_stream
from ratecli.rates.metrics import Direction
from ratecli.report.check.compare import TOLERANCE, ComparisonTerms, compare_points
from ratecli.report.check.reference import PinnedTrials, VariantMetric
from ratecli.report.groups import IntervalEstimate, estimate_share
from ratecli.runner import trial
from ratecli.runner.executors import Executor, run_tasks

SEEDS = 40
SIZES = (0.0, 0.001, 0.0025, 0.005, 0.01)
"""Of the error: 0.01 is a point."""
LACKING = ((0.1, 0.1), (0.3, 0.3), (0.0, 0.3), (0.0, 0.6), (0.0, 0.9))
"""Shares of seeds at which the ratio of `last` is undefined, pinned and now."""
EXPERIMENT = f"""
name: planted
datasets: {{loans: {{source: loans, rows: 4000}}}}
groups: {{women: sex = Female, men: sex = Male}}
constraints: {{parity: 'positive_rate[women] >= kappa * positive_rate[men]'}}
sweep: {{kappa: [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]}}
algorithms: [unconstrained, ALGORITHM]
seeds: {SEEDS}
metrics:
  women: positive_rate[women]
  men: positive_rate[men]
  error: error
  ratio: positive_rate[women] / positive_rate[men]
"""
ALGORITHMS = {
    "majorize": "majorize: {iterations: 6}",
    "three_player": "three_player: {steps: 1000, batch: 200}",
}
BETTER = {"error": Direction.LOW, "objective": Direction.LOW}
TERMS = ComparisonTerms(TOLERANCE, BETTER, {"train": 2667, "test": 1333})

Values = Mapping[tuple[str, float], Mapping[float, Mapping[VariantMetric, Mapping[int, float]]]]
"""By label and sweep point, then by the size of the loss, then by place and seed."""


@dataclass(frozen=True)
class Scenario:
    """`planted` is the algorithm that gets worse; `other` seeds are compared, or the same."""

    name: str
    planted: str
    seeds: int
    other: bool = False

    @property
    def title(self) -> str:
        return f"{self.planted}, {self.name}, {self.seeds}"


SCENARIOS = (
    Scenario("same seeds", "majorize", 5),
    Scenario("same seeds", "majorize", 10),
    Scenario("drawn anew", "three_player", 5),
    Scenario("drawn anew", "three_player", 10),
    Scenario("drawn anew", "three_player", 20),
    Scenario("other seeds", "majorize", 5, other=True),
    Scenario("other seeds", "majorize", 10, other=True),
    Scenario("other seeds", "majorize", 20, other=True),
)


def measured(algorithm: str, draws: str) -> Values:
    """Every number of all trials with every loss; `draws` names the solver's random numbers."""
    text = EXPERIMENT.replace("ALGORITHM", f"{{{ALGORITHMS[algorithm]}}}")
    plan = prepare_document(Document.of_text(text)).plan
    results: dict[str, TrialResult] = {}
    rng = np.random.default_rng([ord(each) for each in draws])

    def spoilt(self: trial.Trial, predictions: Mapping[str, Any]) -> Any:
        return plain(self, _spoilt(self.rows, predictions, rng))

    def drawn(seed: int, *names: str) -> np.random.Generator:
        return random_stream(seed, *names, draws)

    plain = trial.Trial.measure_variants  # losses are planted where rates are measured
    with (
        patch.object(trial.Trial, "measure_variants", spoilt),
        patch.object(trial, "solution_status", lambda *_: ("ok", "")),
        patch.object(trial, "random_stream", drawn),
        Executor().open_pool(plan.tasks) as pool,
    ):
        run_tasks(
            pool,
            plan.tasks,
            trial.run_trial,
            lambda result: results.update({result.key: result}),
            results.__getitem__,
        )
    found: dict[Any, Any] = {}
    for planned in plan.planned:
        names = {
            text: name for name, text in planned.metrics.items()
        }  # `error` is the objective too
        own = found.setdefault((planned.label, planned.point["kappa"]), {})
        for value in results[planned.key].values:
            variant, size = value.variant.split("@")
            at = (variant, value.split, names[value.metric])
            own.setdefault(float(size), {}).setdefault(at, {})[planned.seed] = value.value
    return found


def _spoilt(rows: Any, answers: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Each variant once for each size of loss."""
    label = rows.sample.label
    found = {}
    for variant, answer in answers.items():
        right = np.where(label == 1, answer.decisions, 1 - answer.decisions)
        for size in SIZES:
            wrong = rng.random(len(label)) < size / right.mean()
            decisions = np.where(wrong, 1 - label, answer.decisions)
            found[f"{variant}@{size}"] = replace(answer, decisions=decisions)
    return found


def rate(
    scenario: Scenario,
    size: float,
    before: Values,
    after: Values,
    *,
    comparisons: int,
    lacking: tuple[float, float] = (0.0, 0.0),
) -> list[bool]:
    """Whether each of the simulated comparisons trips; `lacking` are shares of ratios made undefined."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(comparisons):
        order = [int(seed) for seed in rng.permutation(SEEDS)]
        was = order[: scenario.seeds]
        now = order[scenario.seeds : 2 * scenario.seeds] if scenario.other else was
        pinned = [_pinned(key, sizes[0.0], was) for key, sizes in before.items()]
        checked = [
            _pinned(key, sizes[size if key[0] == scenario.planted else 0.0], now)
            for key, sizes in after.items()
        ]
        for side, share_of in zip((pinned, checked), lacking, strict=True):
            _undefine(side, scenario.planted, share_of, rng)
        made = compare_points(checked, pinned, TERMS)
        found.append(any(not each.verdict.good for each in made))
    return found


def _undefine(
    side: Sequence[PinnedTrials], planted: str, share_of: float, rng: np.random.Generator
) -> None:
    """Ratios of the last classifier at some seeds, drawn for each sweep point, on both splits."""
    for each in side:
        if share_of and each.algorithm == planted:
            gone = rng.random(len(each.seeds)) < share_of
            for metrics in each.values["last"].values():
                numbers = zip(metrics["ratio"], gone, strict=True)
                metrics["ratio"] = ["nan" if lost else number for number, lost in numbers]


def _pinned(
    key: tuple[str, float],
    places: Mapping[VariantMetric, Mapping[int, float]],
    seeds: Sequence[int],
) -> PinnedTrials:
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for (variant, split, metric), numbers in places.items():
        own = values.setdefault(variant, {}).setdefault(split, {})
        own[metric] = [numbers[seed] for seed in seeds]
    return PinnedTrials.model_construct(
        algorithm=key[0],
        point={"kappa": key[1]},
        seeds=list(seeds),
        statuses=["ok"] * len(seeds),
        values=values,
    )


def main(comparisons: int) -> None:
    first = {name: measured(name, "first") for name in ALGORITHMS}
    again = {"three_player": measured("three_player", "again"), "majorize": first["majorize"]}
    print("share of comparisons that trip, by the loss of error that is planted\n")
    print(_line("", map(str, SIZES)))
    curves = {}
    for scenario in SCENARIOS:
        who = scenario.planted
        found = [
            estimate_share(
                sum(rate(scenario, size, first[who], again[who], comparisons=comparisons)),
                comparisons,
            )
            for size in SIZES
        ]
        curves[scenario.title] = found
        print(_line(scenario.title, map(_cell, found)), flush=True)
    draw(curves)
    print("\nthe same, by the shares of seeds whose ratio is undefined, pinned -> now\n")
    print(_line("", (f"{was} -> {now}" for was, now in LACKING)))
    for scenario in SCENARIOS[2:4]:
        sides = first[scenario.planted], again[scenario.planted]
        found = [
            estimate_share(
                sum(rate(scenario, 0.0, *sides, comparisons=comparisons, lacking=each)), comparisons
            )
            for each in LACKING
        ]
        print(_line(scenario.title, map(_cell, found)), flush=True)


def _line(head: str, cells: Iterable[str]) -> str:
    return f"{head:<34}" + "".join(f"{cell:>22}" for cell in cells)


def _cell(found: IntervalEstimate) -> str:
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"


def draw(curves: Mapping[str, Sequence[Any]]) -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.5, 4), layout="constrained")
    styles = {"same seeds": "-", "drawn anew": "--", "other seeds": ":"}
    for k, (name, found) in enumerate(curves.items()):
        style = next(line for key, line in styles.items() if key in name)
        means = [each.mean for each in found]
        ends = [[abs(each.mean - end) for each, end in zip(found, side, strict=True)]
                for side in ([e.low for e in found], [e.high for e in found])]  # fmt: skip
        axes.errorbar([100 * size for size in SIZES], means, ends, ls=style, color=f"C{k}",
                      marker="o", ms=3, capsize=2, label=name)  # fmt: skip
    axes.set(xlabel="planted loss, points of error", ylabel="share of comparisons that trip",
             ylim=(-0.02, 1.02))  # fmt: skip
    title = "algorithm, what is compared, seeds"
    figure.legend(loc="outside right center", fontsize=8, title=title, title_fontsize=8)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=130)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
