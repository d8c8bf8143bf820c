"""Definitions of all built-in metrics: rates as a table, composites as expressions over rates.

A rate is a mean over the rows of a slice that match its `among` mask. A row counts 1 if it is
decided positively and matches the `yes` mask, or if it is decided negatively and matches the `no`
mask, so the rate is `a @ p + c` in the probabilities p of a positive decision. Masks depend on a
row's label (+, -, or none) and on the decision of the deployed model; `&` combines masks. A `whole`
rate is a mean over all rows of its data sets, in which only the rows of the slice count.

`of` is the per-row measurement of the model that takes the place of p: its decision, its error on
the scale of the label, the squared error, or the log loss of its estimate as a probability. Ranking
measures are not means over rows and can only be reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Measurement = Literal["decision", "error", "squared_error", "log_loss"]


@dataclass(frozen=True)
class Rate:
    """A rate: the share of `among` rows that count, by the masks `yes` and `no`.

    Rows count if they match `yes` and are decided positively, or match `no` and are decided
    negatively.

    `complement` is the name of the rate with `yes` and `no` exchanged, if there is one. If `whole`,
    it is a share of all rows of the data sets instead of the rows of the slice.
    """

    name: str
    among: str
    yes: str
    no: str
    means: str
    complement: str = ""
    of: Measurement = "decision"
    whole: bool = False

    @property
    def needs_labels(self) -> bool:
        return any(word in f"{self.among}{self.yes}{self.no}" for word in ("labelled", "+", "-"))

    @property
    def needs_deployed(self) -> bool:
        return "deployed" in f"{self.among}{self.yes}{self.no}"

    @property
    def range(self) -> tuple[float, float]:
        unbounded = float("inf")
        return {"decision": (0.0, 1.0), "error": (-unbounded, unbounded)}.get(
            self.of, (0.0, unbounded)
        )


def _table(*rows: Rate) -> dict[str, Rate]:
    return {row.name: row for row in rows}


# fmt: off
RATES = _table(
    Rate("positive_rate",   "all",      "all",  "none", "rows decided yes", "negative_rate"),
    Rate("negative_rate",   "all",      "none", "all",  "rows decided no", "positive_rate"),
    Rate("joint_rate",      "all",      "all",  "none",
         "rows of the slice that are decided yes, as a share of all rows", whole=True),
    Rate("error",           "labelled", "-",    "+",
         "labelled rows decided wrongly", "accuracy"),
    Rate("accuracy",        "labelled", "+",    "-",
         "labelled rows decided rightly", "error"),
    Rate("tpr",             "+",        "all",  "none", "positive rows decided yes", "fnr"),
    Rate("fnr",             "+",        "none", "all",  "positive rows decided no", "tpr"),
    Rate("fpr",             "-",        "all",  "none", "negative rows decided yes", "tnr"),
    Rate("tnr",             "-",        "none", "all",  "negative rows decided no", "fpr"),
    Rate("true_positives",  "labelled", "+",    "none",
         "labelled rows that are positive, decided yes", "false_negatives"),
    Rate("false_positives", "labelled", "-",    "none",
         "labelled rows that are negative, decided yes", "true_negatives"),
    Rate("true_negatives",  "labelled", "none", "-",
         "labelled rows that are negative, decided no", "false_positives"),
    Rate("false_negatives", "labelled", "none", "+",
         "labelled rows that are positive, decided no", "true_positives"),
    Rate("base_rate",       "labelled", "+",    "+",
         "labelled rows that are positive, whatever is decided"),
    Rate("churn",           "deployed", "deployed_no", "deployed_yes",
         "rows decided otherwise than by the deployed model", "agreement"),
    Rate("agreement",       "deployed", "deployed_yes", "deployed_no",
         "rows decided as by the deployed model", "churn"),
    Rate("wins",            "labelled&deployed", "+&deployed_no", "-&deployed_yes",
         "labelled rows decided rightly that the deployed model decides wrongly"),
    Rate("losses",          "labelled&deployed", "-&deployed_no", "+&deployed_yes",
         "labelled rows decided wrongly that the deployed model decides rightly"),
    Rate("mean_error",      "labelled", "all",  "none",
         "mean of estimate minus label", of="error"),
    Rate("mse",             "labelled", "all",  "none",
         "mean squared difference of estimate and label", of="squared_error"),
    Rate("log_loss",        "labelled", "all",  "none",
         "mean of -log of the estimated chance of the label; "
         "infinite where a certain estimate is wrong", of="log_loss"),
)
# fmt: on
RANKINGS = {
    "roc_auc": "chance that a positive row scores above a negative one (ties count half)",
    "pr_auc": "mean precision over recall levels as the threshold falls (average precision)",
}
# fmt: off
SYNONYMS = {
    "coverage": "positive_rate", "selection_rate": "positive_rate", "ppr": "positive_rate",
    "acceptance_rate": "positive_rate", "rejection_rate": "negative_rate",
    "error_rate": "error",
    "recall": "tpr", "sensitivity": "tpr", "true_positive_rate": "tpr", "hit_rate": "tpr",
    "miss_rate": "fnr", "false_negative_rate": "fnr",
    "fall_out": "fpr", "false_positive_rate": "fpr",
    "specificity": "tnr", "true_negative_rate": "tnr",
    "prevalence": "base_rate",
    "ppv": "precision", "f_measure": "f1", "auc": "roc_auc", "average_precision": "pr_auc",
    "mean_squared_error": "mse", "cross_entropy": "log_loss",
}
# fmt: on


@dataclass(frozen=True)
class Composite:
    """A metric defined by an expression; `parameters` are its arguments.

    The expression is divided by the metric `over`, if any, measured on all rows of the data sets.
    """

    text: str
    means: str
    parameters: tuple[str, ...] = ()
    over: str = ""


COMPOSITES = {
    "precision": Composite(
        "true_positives / (true_positives + false_positives)",
        "rows decided yes that are positive; undefined (nan) where no row is decided yes",
    ),
    "f1": Composite(
        "2 * true_positives / (2 * true_positives + false_positives + false_negatives)",
        "harmonic mean of precision and recall",
    ),
    "f_score": Composite(
        "(1 + beta * beta) * true_positives"
        " / ((1 + beta * beta) * true_positives + beta * beta * false_negatives + false_positives)",
        "weighted harmonic mean of precision and recall; recall counts beta times as much",
        ("beta",),
    ),
    "g_mean": Composite("geo_mean(tpr, tnr)", "geometric mean of tpr and tnr"),
    "h_mean": Composite("harmonic_mean(tpr, tnr)", "harmonic mean of tpr and tnr"),
    "q_mean": Composite("1 - rms(fpr, fnr)", "1 minus the quadratic mean of fpr and fnr"),
    "share": Composite(
        "joint_rate",
        "rows of the slice, as a share of the rows decided yes; undefined (nan) where no row is",
        over="positive_rate",
    ),
    "win_loss_ratio": Composite("wins / losses", "wins over losses against the deployed model"),
}

TEMPLATES = {
    "max_gap": "largest difference of a metric between two values of a column",
    "mean": "mean of a metric over the values of a column, each counting alike",
    "min_ratio": "smallest ratio of a metric between two values of a column",
}

BALANCE_METRICS = {
    "imbalance": "distance of the shares of a column's values "
    "among the rows decided yes from equal shares",
    "disclosivity": "most by which what is decided of a row changes the chance "
    "of a value of a column",
}

OF = "of"
DEPLOYED = "deployed"
"""The name of the deployed model inside `of`."""

IMBALANCE, DISCLOSIVITY = BALANCE_METRICS
"""Metrics that use all values of one or several columns: `imbalance(by=sex)`."""

METRICS = (*RATES, *COMPOSITES, *RANKINGS)


def canonical_name(name: str) -> str:
    """Return the canonical name of a metric, given a name or synonym."""
    return SYNONYMS.get(name, name)
