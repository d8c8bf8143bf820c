"""The measured numbers of a run as one frame, and its groups of trials that differ in their seed.

Means, shares and their intervals are computed for all groups at once.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from scipy.special import betaincinv, stdtrit

from ratecli.config.base import FAILURE_RATE, SOLUTION_RATE
from ratecli.config.sweep import DATASET_AXIS
from ratecli.ledger import records as rc
from ratecli.ledger.view import MEASURED_STATUSES, NOT_RUN, Ledger, split_rank
from ratecli.ledger.violations import MeasuredViolation, ViolationSample, measured_violation
from ratecli.rates.expression import ALL_ROWS, Slice
from ratecli.rates.parser import parse_conditions

CONCLUSIVE = MEASURED_STATUSES | {"no_solution_found", "infeasible"}
"""Statuses of trials that count in solution and failure rates."""

GROUP = ["point", "variant"]
COLUMNS = ["trial", "variant", "split", "metric", "value"]
EMPTY_FRAME: pd.DataFrame = pd.DataFrame(columns=COLUMNS)

ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT", bound=Hashable)
SplitMetric = tuple[str, str]
"""A split and a metric, or a constraint ("": all), which identify a value."""


@dataclass(frozen=True, eq=False)
class SeedGroup:
    """One variant of one algorithm at one sweep point, over all seeds or only `seed`.

    A `sole` variant is the only one of its algorithm, and is not named. `frame` has the rows of
    `results_frame` that belong to the group, `estimates` the means of its metrics, and `counts` how
    often its constraints are satisfied and violated.
    """

    ledger: Ledger
    label: str
    variant: str
    point: Mapping[str, Any]
    seed: int | None
    trials: tuple[rc.PlannedTrial, ...]
    sole: bool = False
    frame: pd.DataFrame = field(default_factory=lambda: EMPTY_FRAME, repr=False)
    estimates: Mapping[SplitMetric, IntervalEstimate] = field(default_factory=dict, repr=False)
    counts: Mapping[SplitMetric, tuple[int, int]] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.label if self.sole else f"{self.label} ({self.variant})"

    @property
    def fold_overlap(self) -> float:
        return fold_overlap(self.ledger, self.trials[0])

    @cached_property
    def statuses(self) -> Counter[str]:
        return Counter(map(self.ledger.status, self.trials))

    @property
    def ended(self) -> int:
        """Number of trials that have run."""
        return len(self.trials) - self.statuses.get(NOT_RUN, 0)

    @cached_property
    def solved(self) -> int:
        """Number of trials with values."""
        return int(self.frame["trial"].nunique())

    @property
    def results(self) -> list[rc.TrialResult]:
        """The results of the trials that have run."""
        known = self.ledger.results
        return [known[trial.key] for trial in self.trials if trial.key in known]

    def values(self, split: str, metric: str) -> Mapping[int, float]:
        """Return the values of a metric by the trial's position in the plan."""
        own = self.frame
        own = own[(own["split"] == split) & (own["metric"] == metric)]
        return dict(zip(own["trial"].tolist(), own["value"].tolist(), strict=True))

    @cached_property
    def constants(self) -> int:
        """Number of models that are no better than the best constant decision on the test set."""
        values = self.values("test", rc.OBJECTIVE)
        plan = self.ledger.plan
        pairs = ((value, _constant(self.ledger, plan[at])) for at, value in values.items())
        return sum(known is not None and rc.is_no_better(value, known) for value, known in pairs)

    @property
    def best_constant(self) -> IntervalEstimate:
        """The mean objective of the best constant decisions on the test set."""
        known = (_constant(self.ledger, trial) for trial in self.trials)
        return estimate_mean((each for each in known if each is not None), self.fold_overlap)

    def violation_sample(
        self, split: str, constraint: str, confidence: float | None = None
    ) -> ViolationSample | None:
        """Return the violations of a constraint on a split, None if it was not measured there.

        Their noise is known on the test set only. `confidence` is as in `ViolationSample`.
        """
        metric = rc.VIOLATION_PREFIX + constraint
        plan, values = self.ledger.plan, self.values(split, metric)
        known = [self._violation(plan[at], metric, value) for at, value in values.items()]
        known = known if split == "test" else [replace(each, pieces=()) for each in known]
        return ViolationSample(known, confidence, self.fold_overlap) if known else None

    def _violation(self, trial: rc.PlannedTrial, metric: str, value: float) -> MeasuredViolation:
        result, text = self.ledger.results[trial.key], trial.metrics[metric]
        return measured_violation(result, self.variant, text, value, trial.seed)

    @cached_property
    def rates(self) -> Mapping[tuple[str, str], IntervalEstimate]:
        """The means of rates of groups on new rows, by rate and group."""
        found: dict[tuple[str, str], list[float]] = {}
        for trial in self.trials:
            for place, value in _group_rates(self.ledger, trial, self.variant).items():
                found.setdefault(place, []).append(value)
        return {place: estimate_mean(own, self.fold_overlap) for place, own in found.items()}

    def measured(self, places: Iterable[SplitMetric]) -> int:
        """Return the largest number of trials in which one of these was measured, including NaN."""
        found = (self.estimate(*place) for place in places)
        return max((each.n + each.nan for each in found), default=0)

    def count(self, split: str, constraint: str = "") -> tuple[int, int]:
        """Return in how many trials the constraint (default: all) is satisfied and violated."""
        return self.counts.get((split, constraint), (0, 0))

    def estimate(self, split: str, metric: str) -> IntervalEstimate:
        """Return the mean of a metric over trials, or a share of the conclusive trials.

        A trial fails if its classifier violates the constraint (of `failure_rate`: any). Trials
        where this is unknown are left out of the failure rate; if all are, there is none.
        """
        if not is_share(metric):
            return self.estimates.get((split, metric), NO_ESTIMATE)
        conclusive = sum(self.statuses.get(status, 0) for status in CONCLUSIVE)
        if metric == SOLUTION_RATE:
            return estimate_share(self.solved, conclusive)
        constraint = metric.removeprefix(FAILURE_RATE).lstrip(".")
        satisfied, violated = self.count(split, constraint)
        unknown = self.solved - satisfied - violated
        counted = 0 if self.solved and unknown == self.solved else conclusive - unknown
        return estimate_share(violated, counted, unknown)


def count_satisfied(
    groups: Iterable[SeedGroup], split: str, constraint: str = ""
) -> tuple[int, int]:
    """Return in how many trials the constraint (default: all) is satisfied, of how many."""
    found = [each.count(split, constraint) for each in groups]
    return sum(satisfied for satisfied, _ in found), sum(map(sum, found))


def is_failure(metric: str) -> bool:
    """Return whether the metric is a failure rate, of one constraint or of any."""
    return metric == FAILURE_RATE or metric.startswith(f"{FAILURE_RATE}.")


def is_share(metric: str) -> bool:
    """Return whether the metric is a share of trials rather than a mean of measured values."""
    return metric == SOLUTION_RATE or is_failure(metric)


def seed_groups(ledger: Ledger, *, by_seed: bool = False) -> tuple[SeedGroup, ...]:
    """Return the groups in plan order, then by variant.

    At points where no trial has values, the variants are those the algorithm has at other points;
    if it has none, the variant is unknown ("").
    """
    return ledger.cached(("groups", by_seed), lambda: tuple(_groups(ledger, by_seed)))


def _groups(ledger: Ledger, by_seed: bool) -> Iterator[SeedGroup]:
    # repr: 1, 1.0 and true are different sweep points but equal dict keys
    keys = [
        (trial.label, repr(trial.point), repr(trial.seed) if by_seed else "")
        for trial in ledger.plan
    ]
    points = group_by(range(len(keys)), lambda at: keys[at])
    numbers = {key: number for number, key in enumerate(points)}
    frame = results_frame(ledger)
    own = np.array([numbers[key] for key in keys], dtype=int)[frame["trial"].astype(int)]
    frame = frame.assign(point=own)
    values = frame.groupby([*GROUP, "split", "metric"], sort=False)["value"]
    overlaps = [fold_overlap(ledger, ledger.plan[first]) for first, *_ in points.values()]
    known = mean_estimates(values, overlaps)
    estimates, counts = (defaultdict[Any, dict[Any, Any]](dict) for _ in range(2))
    for (number, variant, *place), each in zip(known.index, as_estimates(known), strict=True):
        estimates[number, variant][tuple(place)] = each
    counted = count_violations(frame, GROUP)[[SATISFIED, VIOLATED]]
    for (number, variant, *place), *pair in counted.itertuples(name=None):
        counts[number, variant][tuple(place)] = tuple(pair)
    parts: dict[Any, pd.DataFrame] = dict(iter(frame.groupby(GROUP)))
    labels = [label for label, *_ in points]
    variants = group_by(parts, lambda part: labels[part[0]])
    for number, places in enumerate(points.values()):
        trials = tuple(ledger.plan[place] for place in places)
        first, seed = trials[0], trials[0].seed if by_seed else None
        everywhere = {variant for _, variant in variants.get(first.label, ())}
        here = {variant for at, variant in variants.get(first.label, ()) if at == number}
        for variant in sorted(here or everywhere) or [""]:
            found = parts.get((number, variant), EMPTY_FRAME)
            about = first.label, variant, first.point, seed, trials, len(everywhere) < 2
            place = number, variant
            yield SeedGroup(ledger, *about, found, estimates[place], counts[place])


def _constant(ledger: Ledger, trial: rc.PlannedTrial) -> float | None:
    """Return the objective on the test set of a trial's best constant decision, if it is known."""
    result = ledger.results.get(trial.key)
    known: Mapping[str, float] = (result.info.get(rc.BEST_CONSTANT_KEY) if result else None) or {}
    return known.get("test")


def trial_datasets(ledger: Ledger, trial: rc.PlannedTrial) -> Mapping[str, Any]:
    """Return the entries of the data sets whose rows the trial used."""
    found: Mapping[str, Any] = ledger.experiment.get("datasets") or {}
    one = trial.point.get(DATASET_AXIS)
    return found if one is None else {k: v for k, v in found.items() if k == str(one)}


def group_rules(ledger: Ledger, trial: rc.PlannedTrial) -> dict[str, str]:
    """Return the conditions of the file's groups in the trial's data sets, by name."""
    groups = ledger.experiment.get("groups") or {}
    first = next(iter(trial_datasets(ledger, trial)), "")
    rules = {name: v if isinstance(v, str) else v.get(first) for name, v in groups.items()}
    return {name: rule for name, rule in rules.items() if rule is not None}


def group_names(ledger: Ledger, trial: rc.PlannedTrial) -> dict[str, str]:
    """Return the names of the file's groups, by their conditions as stored rates have them."""
    rules = group_rules(ledger, trial)
    key = "group names", *rules.items()
    return ledger.cached(
        key, lambda: {str(Slice.of((), parse_conditions(v))): name for name, v in rules.items()}
    )


def _group_rates(
    ledger: Ledger, trial: rc.PlannedTrial, variant: str
) -> dict[tuple[str, str], float]:
    """Return stored rates by rate and group: those that metrics use, or if they use none, all."""
    result = ledger.results.get(trial.key)
    found = (result.info.get(rc.GROUP_RATES_KEY) if result else None) or {"rates": {}}
    rates = {
        (rate, group): math.nan if value is None else value
        for group, own in found["rates"].get(variant, {}).items()
        for rate, (value, *_) in own.items()
        if group != str(ALL_ROWS)
    }
    texts, names = " ".join(trial.metrics.values()), group_names(ledger, trial)
    used = {k: v for k, v in rates.items() if f"{k[0]}[" in texts and f"[{k[1]}]" in texts}
    return {
        (rate, names.get(group, group)): value for (rate, group), value in (used or rates).items()
    }


def group_by(items: Iterable[ItemT], key: Callable[[ItemT], KeyT]) -> dict[KeyT, list[ItemT]]:
    """Return the items by key, in order of first occurrence."""
    found: dict[KeyT, list[ItemT]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def main_variant(ledger: Ledger, trial: rc.PlannedTrial) -> str:
    """Return the main variant of a trial, for which constraints are enforced; "" without one."""
    result = ledger.results.get(trial.key)
    return result.values[0].variant if result and result.values else ""


def main_groups(ledger: Ledger) -> list[SeedGroup]:
    """Return the groups of the main variant of each algorithm."""
    mains = {(each.label, main_variant(ledger, each)) for each in ledger.plan}
    return [each for each in seed_groups(ledger) if (each.label, each.variant) in mains]


def same_points(groups: Iterable[SeedGroup]) -> list[list[SeedGroup]]:
    """Return the groups at each sweep point together, which differ in their variants."""
    return list(group_by(groups, lambda group: repr(group.point)).values())


def select_variant(several: Sequence[SeedGroup], variant: str) -> SeedGroup:
    """Return the group of a variant at one point, or a group without values if it is missing."""
    nothing = replace(several[0], variant=variant, frame=EMPTY_FRAME, estimates={}, counts={})
    return next((group for group in several if group.variant == variant), nothing)


LEVEL = 0.95
"""Confidence of intervals."""
SATISFIED, UNKNOWN, VIOLATED = range(3)
"""Values of the column `violated`, in the order in which several constraints are combined."""


@dataclass(frozen=True)
class IntervalEstimate:
    """A mean with its confidence interval; `n` counts the values used, `nan` the ones left out.

    A mean has a Student-t interval of half-width `half`, which requires at least two values, all
    finite. Without values there is no mean. A share of trials has an exact interval, which is
    asymmetric: it has no `half`.
    """

    mean: float | None
    n: int
    nan: int = 0
    low: float | None = None
    high: float | None = None
    half: float | None = None

    @property
    def finite(self) -> bool:
        return self.mean is not None and math.isfinite(self.mean)

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    def negated(self) -> IntervalEstimate:
        mean, low, high = (None if x is None else -x for x in (self.mean, self.high, self.low))
        return replace(self, mean=mean, low=low, high=high)

    def shifted(self, by: float) -> IntervalEstimate:
        mean, low, high = (None if x is None else by + x for x in (self.mean, self.low, self.high))
        return replace(self, mean=mean, low=low, high=high)


NO_ESTIMATE = IntervalEstimate(None, 0)


def results_frame(ledger: Ledger) -> pd.DataFrame:
    """Return a row for each measured number, sorted by plan, variant and split.

    Columns: `trial` (the position in the plan), `variant`, `split`, `metric`, `value`, and
    `violated` for violations of constraints, which is NaN for other metrics. An undefined violation
    is unknown, except on the training set, where the constraint was enforced.
    """
    return ledger.cached("frame", lambda: _results_frame(ledger))


def trial_values(ledger: Ledger, trial: rc.PlannedTrial) -> list[tuple[str, str, str, float]]:
    """Return variant, split, metric and value of each number of a trial of the plan."""

    def by_trial() -> dict[int, list[Any]]:
        rows: Any = results_frame(ledger)[COLUMNS].itertuples(index=False, name=None)
        return group_by(rows, lambda row: id(ledger.plan[row[0]]))

    return [row[1:] for row in ledger.cached("values", by_trial).get(id(trial), ())]


def _results_frame(ledger: Ledger) -> pd.DataFrame:
    rows: list[tuple[int, str, str, str, float]] = []
    for at, trial in enumerate(ledger.plan):
        rank = {name: k for k, name in enumerate(trial.metrics)}
        names = group_by(rank, trial.metrics.__getitem__)  # values are stored by text
        values = ledger.results[trial.key].values if ledger.is_measured(trial) else ()
        own = {
            (v.variant, v.split, name): v.value for v in values for name in names.get(v.metric, ())
        }
        places = sorted(own, key=lambda place: (place[0], split_rank(place[1]), rank[place[2]]))
        rows += [(at, *place, own[place]) for place in places]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame = frame.astype({"value": float})
    known = np.where(frame["value"].map(rc.is_violated), VIOLATED, SATISFIED).astype(float)
    known[frame["value"].isna() & (frame["split"] != "train")] = UNKNOWN
    violations = frame["metric"].str.startswith(rc.VIOLATION_PREFIX).astype(bool)
    return frame.assign(violated=np.where(violations, known, np.nan))


def count_violations(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return how often constraints are `SATISFIED` and `VIOLATED` (columns), in each group.

    The index has the names `by`, `split` and `constraint`, which is empty for all constraints
    together: one that is violated counts before one that is unknown.
    """
    found = frame[frame["violated"].notna()]
    own = found.assign(constraint=found["metric"].str.removeprefix(rc.VIOLATION_PREFIX))
    every = own.groupby([*by, "trial", "split"], as_index=False)["violated"].max()
    both = pd.concat([own, every.assign(constraint="")])
    kinds = pd.get_dummies(both["violated"]).reindex(columns=[SATISFIED, VIOLATED], fill_value=0)
    keys = [both[name] for name in (*by, "split", "constraint")]
    count: pd.DataFrame = kinds.astype(int).groupby(keys).sum()
    return count


def fold_overlap(ledger: Ledger, trial: rc.PlannedTrial) -> float:
    """Return the test rows of a fold as a multiple of its training rows, 0 without folds.

    Models of folds have most training rows in common. Nadeau and Bengio (2003), Inference for the
    Generalization Error, section 3: the variance of a mean is larger by this share of the variance
    of single values.
    """
    entries = trial_datasets(ledger, trial).values()
    folds = [(entry.get("split") or {}).get("folds") or 0 for entry in entries]
    return 1 / (min(folds) - 1) if min(folds, default=0) else 0.0


def mean_estimates(values: Any, overlap: float | Sequence[float] = 0.0) -> pd.DataFrame:
    """Return the means of grouped values, with the fields of `IntervalEstimate` as columns.

    They are NaN where `IntervalEstimate` has None. `overlap` is that of `fold_overlap`, for all
    groups or for each number of the index's first level.
    """
    with np.errstate(invalid="ignore"):  # infinite values have no spread
        found = values.agg(["mean", "std", "count", "size", "min", "max"])
    found.columns = pd.Index(["mean", "spread", "n", "size", "least", "most"])
    equal = found["least"] == found["most"]  # their mean and spread may have rounding errors
    mean = found["mean"].mask(equal, found["least"])
    quantile = stdtrit(np.maximum(found["n"] - 1, 1), (1 + LEVEL) / 2)
    if not isinstance(overlap, float):
        overlap = np.asarray(overlap)[found.index.get_level_values(0)]
    half = quantile * found["spread"].mask(equal, 0.0) * np.sqrt(1 / found["n"] + overlap)
    half = half.where((found["n"] > 1) & np.isfinite(mean))
    low, high, nan = mean - half, mean + half, found["size"] - found["n"]
    return pd.DataFrame(
        {"mean": mean, "n": found["n"], "nan": nan, "low": low, "high": high, "half": half}
    )


def as_estimates(frame: pd.DataFrame) -> list[IntervalEstimate]:
    """Return the rows of `mean_estimates`."""
    return [
        IntervalEstimate(
            mean if n else None, int(n), int(nan), *(None if math.isnan(x) else x for x in interval)
        )
        for mean, n, nan, *interval in frame.itertuples(index=False)
    ]


def estimate_mean(values: Iterable[float], overlap: float = 0.0) -> IntervalEstimate:
    """Return the estimate of a mean from values of which NaN is left out.

    `overlap` is that of `fold_overlap`.
    """
    column = pd.Series(list(values), dtype=float)
    found = as_estimates(mean_estimates(column.groupby(np.zeros(len(column))), overlap))
    return found[0] if found else NO_ESTIMATE


def estimate_share(count: float, n: float, unknown: int = 0) -> IntervalEstimate:
    """Estimate a share, `count` of `n`, with the interval of Clopper and Pearson (1934).

    `unknown` is the number of trials left out of both.
    """
    if not n:
        return IntervalEstimate(None, 0, unknown)
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return IntervalEstimate(count / n, round(n), unknown, low, high)
