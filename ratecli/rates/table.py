"""Definitions of all built-in metrics: rates as a table, composites as expressions over rates.

A rate is a mean over the rows of a slice that match its `among` mask. A row counts 1 if it is
decided positively and matches the `yes` mask, or if it is decided negatively and matches the `no`
mask, so the rate is `a @ p + c` in the probabilities p of a positive decision. Masks depend on a
row's label (+, -, or none) and on the decision of the deployed model; `&` combines masks. A `whole`
rate is a mean over all rows of its data sets, in which only the rows of the slice count.

`of` is the per-row measurement of the model that takes the place of p: its decision, its error on
the scale of the label, the squared error, or the log loss of its estimate as a probability. Ranking
measures are not means over rows and can only be reported.

Rates of logged decisions count the outcome of a row instead of 1: `value(profit)` is the mean
profit if the classifier decided. A row of the log counts if the classifier decides as the log did,
times its importance weight, 1 over the chance of the logged action (Horvitz and Thompson 1952).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, cast

DECISION_MEASUREMENTS = ("decision", "error", "squared_error", "log_loss")
OutcomeSource = Literal["logged", "model", "true"]
Measurement = str
"""One of these, a weight of episodes, or a `return_key`."""


def return_key(name: str, outcome: str) -> Measurement:
    """Return the measurement of episodes by an estimator of returns and an outcome."""
    return f"{name}({outcome})"


@dataclass(frozen=True)
class Rate:
    """A rate: the share of `among` rows that count, by the masks `yes` and `no`.

    Rows count if they match `yes` and are decided positively, or match `no` and are decided
    negatively.

    If `whole`, it is a share of all rows of the data sets instead of the rows of the slice.

    Attributes
    ----------
    outcome
        The outcome of logged decisions that a row counts instead of 1; `OUTCOME` in the table,
        where it is the rate's argument. Rates of episodes have one, too.
    weight_power
        Power of the importance weight by which a row is multiplied.
    outcome_source
        Which outcomes count besides the logged one: those of a model ("model"), or the true ones of
        both decisions in generated data ("true").
    ends
        Smallest and largest possible value of a row, if `outcome` or `weight_power`.
    """

    name: str
    among: str
    yes: str
    no: str
    means: str
    of: Measurement = "decision"
    whole: bool = False
    outcome: str = ""
    weight_power: int = 0
    outcome_source: OutcomeSource = "logged"
    ends: tuple[float, float] = (-math.inf, math.inf)

    @property
    def text(self) -> str:
        """The rate as rules name it."""
        return f"{self.name}({self.outcome})" if self.outcome else self.name

    @property
    def factor(self) -> tuple[str, int, str]:
        """What rows count: rates with equal factors count a row alike, but for the sign."""
        return self.outcome, self.weight_power, self.outcome_source

    @property
    def is_weighted(self) -> bool:
        """Whether rows or episodes are multiplied by importance weights."""
        unweighted = {"return_logged", "return_true"}
        return bool(self.weight_power) or (
            self.of not in DECISION_MEASUREMENTS and self.name not in unweighted
        )

    @property
    def counts_rows(self) -> bool:
        """Whether each row counts 1, or the measurement of a model."""
        return self.of != "decision" or not (self.outcome or self.weight_power)

    @property
    def needs_labels(self) -> bool:
        return any(word in f"{self.among}{self.yes}{self.no}" for word in ("labelled", "+", "-"))

    @property
    def needs_deployed(self) -> bool:
        return "deployed" in f"{self.among}{self.yes}{self.no}"

    @property
    def range(self) -> tuple[float, float]:
        if not self.counts_rows:
            return self.ends
        low = -math.inf if self.of == "error" or self.outcome else 0.0
        return low, 1.0 if self.of == "decision" else math.inf


OTHER = "other"
"""Mask of the rates of another algorithm (`sampling.deployed`), which count by its decisions."""
OUTCOME = "outcome"
EPISODE_WEIGHT = "episode_weight"
"""The measurement of an episode's importance weight."""


def _table(text: str) -> Iterator[list[str]]:
    """Yield the cells of each row, separated by bars; indented lines continue the row above."""
    for row in text.strip().replace("\n ", " ").splitlines():
        yield [" ".join(cell.split()) for cell in row.split("|")]


_DECISION_RATES = """
positive_rate | all | all | none | share of positive decisions
negative_rate | all | none | all | share of negative decisions
joint_rate | all | all | none | in the slice and decided positively
error | labelled | - | + | share of wrong decisions
accuracy | labelled | + | - | share of correct decisions
tpr | + | all | none | share of positive rows decided positively
fnr | + | none | all | share of positive rows decided negatively
fpr | - | all | none | share of negative rows decided positively
tnr | - | none | all | share of negative rows decided negatively
true_positives | labelled | + | none | share of true positives
false_positives | labelled | - | none | share of false positives
true_negatives | labelled | none | - | share of true negatives
false_negatives | labelled | none | + | share of false negatives
base_rate | labelled | + | + | share of positive labels, for any decisions
churn | deployed | deployed_no | deployed_yes |
    share of decisions that differ from those of the deployed model
agreement | deployed | deployed_yes | deployed_no |
    share of decisions that equal those of the deployed model
wins | labelled&deployed | +&deployed_no | -&deployed_yes |
    share of correct decisions where the deployed model is wrong
losses | labelled&deployed | -&deployed_no | +&deployed_yes |
    share of wrong decisions where the deployed model is correct
"""
"""Names of rates, their masks `among`, `yes` and `no`, and what they mean."""

_ESTIMATE_RATES = """
mean_error | error | mean of estimate minus label
mse | squared_error | mean squared error of estimates
log_loss | log_loss | mean of -log of the estimated probability of the label; infinite if it is 0
"""
_LOGGED_RATES = """
value | outcome | 1 | logged | mean outcome if the classifier decided, estimated by inverse
    propensity: a row counts its outcome, times its importance weight, if the classifier decides as
    the log did
value_logged | outcome | 0 | logged | mean outcome of the logged decisions
value_doubly_robust | outcome | 1 | model | mean outcome if the classifier decided: that of a model,
    plus the value of its errors
value_true | outcome | 0 | true | mean outcome if the classifier decided; known in generated data
    only
importance_weight | | 1 | logged | mean importance weight: near 1 if the propensities are right
squared_importance_weight | | 2 | logged | mean squared importance weight
"""
"""Names, outcomes, powers of importance weights, and sources of outcomes."""

_EPISODE_RATES = """
return | outcome | mean return of a policy, by per-decision importance sampling
return_ordinary | outcome | mean return of a policy, by ordinary importance sampling
return_logged | outcome | mean return of the logged episodes
return_true | outcome | expected return of a policy; known in generated environments only
episode_weight | | mean importance weight of episodes: near 1 if the propensities are right
squared_episode_weight | | mean squared importance weight of episodes
"""


def _built_in_rates() -> Iterator[Rate]:
    for name, among, yes, no, means in _table(_DECISION_RATES):
        yield Rate(name, among, yes, no, means, whole=name == "joint_rate")
    for name, of, means in _table(_ESTIMATE_RATES):
        yield Rate(name, "labelled", "all", "none", means, of=of)
    for name, outcome, power, source, means in _table(_LOGGED_RATES):
        sides = ("logged", "logged") if name == "value_logged" else ("taken", "not_taken")
        rate = Rate(name, "logged", *sides, means, outcome=outcome, weight_power=int(power))
        yield replace(rate, outcome_source=cast("OutcomeSource", source))
    for name, outcome, means in _table(_EPISODE_RATES):
        yield Rate(name, "all", "all", "none", means, of=name, outcome=outcome)


RATES = {rate.name: rate for rate in _built_in_rates()}
EPISODE_RATES = tuple(rate.text for rate in RATES.values() if rate.of not in DECISION_MEASUREMENTS)
RANKINGS = {
    "roc_auc": "probability that a positive row scores above a negative one (ties count half)",
    "pr_auc": "mean precision over recall levels as the threshold falls (average precision)",
}
_SYNONYMS = {
    "positive_rate": "coverage selection_rate ppr acceptance_rate",
    "negative_rate": "rejection_rate",
    "error": "error_rate",
    "tpr": "recall sensitivity true_positive_rate hit_rate",
    "fnr": "miss_rate false_negative_rate",
    "fpr": "fall_out false_positive_rate",
    "tnr": "specificity true_negative_rate",
    "base_rate": "prevalence",
    "precision": "ppv",
    "f1": "f_measure",
    "mcc": "matthews_corrcoef phi_coefficient",
    "roc_auc": "auc",
    "pr_auc": "average_precision",
    "mse": "mean_squared_error",
    "log_loss": "cross_entropy",
    "demographic_parity_difference": "statistical_parity_difference selection_rate_difference",
    "demographic_parity_ratio": "disparate_impact selection_rate_ratio statistical_parity_ratio",
    "equal_opportunity_difference": "true_positive_rate_difference",
    "equal_opportunity_ratio": "true_positive_rate_ratio",
    "predictive_equality_difference": "false_positive_rate_difference",
    "predictive_parity_difference": "precision_score_difference",
    "predictive_parity_ratio": "precision_score_ratio",
}
SYNONYMS = {other: name for name, others in _SYNONYMS.items() for other in others.split()}


@dataclass(frozen=True)
class Composite:
    """A metric defined by an expression; `parameters` are its arguments.

    The expression is divided by the metric `over`, if any, measured on all rows of the data sets.
    """

    text: str
    means: str
    parameters: tuple[str, ...] = ()
    over: str = ""


_COMPOSITES = """
precision | true_positives / (true_positives + false_positives)
    | share of positive rows among the positive decisions; undefined (nan) without any
f1 | 2 * true_positives / (2 * true_positives + false_positives + false_negatives)
    | harmonic mean of precision and recall
f_score | (1 + beta * beta) * true_positives / ((1 + beta * beta) * true_positives
    + beta * beta * false_negatives + false_positives)
    | weighted harmonic mean of precision and recall; recall counts beta times as much | beta
mcc | (tpr + tnr - 1) * sqrt(base_rate * (1 - base_rate) / (1e-15
    + (true_positives + false_positives) * (true_negatives + false_negatives)))
    | Matthews correlation coefficient of decisions and labels, -1 to 1; 0 if all decisions are
    equal
balanced_accuracy | (tpr + tnr) / 2 | mean of tpr and tnr
g_mean | geo_mean(tpr, tnr) | geometric mean of tpr and tnr
h_mean | harmonic_mean(tpr, tnr) | harmonic mean of tpr and tnr
q_mean | 1 - rms(fpr, fnr) | 1 minus the root mean square of fpr and fnr
share | joint_rate
    | share of the slice among the positive decisions; undefined (nan) without any
value_self_normalized | value(outcome) / importance_weight
    | mean outcome if the classifier decided, divided by the mean importance weight | outcome
return_weighted | return_ordinary(outcome) / episode_weight
    | mean return of a policy, by weighted importance sampling; biased | outcome
effective_share | importance_weight ** 2 / squared_importance_weight
    | share of the logged rows that an unweighted mean of equal variance would need
win_loss_ratio | wins / losses | wins over losses against the deployed model
"""
"""Names, expressions, meanings and parameters. The 1e-15 makes `mcc` 0 if all decisions are equal,
as in scikit-learn.
"""
COMPOSITES = {
    name: Composite(text, means, tuple(parameters), "positive_rate" if name == "share" else "")
    for name, text, means, *parameters in _table(_COMPOSITES)
}

TEMPLATES = {
    "max_gap": "largest difference of a metric between two values of a column",
    "mean": "mean of a metric over the values of a column, with equal weights",
    "min_ratio": "smallest ratio of a metric between two values of a column",
}

_COMPARED = """
demographic_parity | positive_rate | selection rates | difference ratio
equal_opportunity | tpr | true positive rates | difference ratio
equalized_odds | tpr fpr | true or of false positive rates | difference ratio
predictive_equality | fpr | false positive rates | difference
predictive_parity | precision | precision | difference ratio
accuracy_score | accuracy | accuracy | difference ratio
"""


def _fairness_measures() -> Iterator[tuple[str, Composite]]:
    for name, metrics, words, kinds in _table(_COMPARED):
        for kind in kinds.split():
            template, outer, size = _KINDS[kind]
            parts = [f"{template}({metric}, by=columns)" for metric in metrics.split()]
            text = parts[0] if len(parts) == 1 else f"{outer}({', '.join(parts)})"
            yield f"{name}_{kind}", Composite(text, f"{size} {kind} of {words} between two groups")


_KINDS = {"difference": ("max_gap", "max", "largest"), "ratio": ("min_ratio", "min", "smallest")}
MEASURES = dict(_fairness_measures())
"""Fairness measures of the groups of `columns`, with fairlearn's names where it has them."""

BALANCE_METRICS = {
    "imbalance": "distance of the shares of a column's values among positive decisions from 1/K",
    "disclosivity": "largest change of the probability of a column's value by a row's decision",
}

ARGUMENTS = {
    "by": "the columns whose groups are compared, as in max_gap(tpr, by=race); by=[sex, race] "
    "compares all combinations of their values",
    "min_rows": "the fewest rows, of the whole table, of a combination that is compared, as in "
    "max_gap(tpr, by=[sex, race], min_rows=100); 30 by default",
}
"""Named arguments of functions and fairness measures."""

OF = "of"
DEPLOYED = "deployed"
"""The name of the deployed model inside `of`."""

IMBALANCE, DISCLOSIVITY = BALANCE_METRICS
"""Metrics that use all values of one or several columns: `imbalance(by=sex)`."""

METRICS = (*RATES, *COMPOSITES, *RANKINGS)


def canonical_name(name: str) -> str:
    """Return the canonical name of a metric, given a name or synonym."""
    return SYNONYMS.get(name, name)
