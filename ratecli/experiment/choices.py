"""Which algorithm to choose: the table of the docs, `explain`, E308 and `init`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ROWS = (1_000, 100_000, 10_000_000)
"""Numbers of rows for which `Choice.seconds` was measured (benchmarks/algorithms.py)."""


@dataclass(frozen=True)
class Choice:
    """When to choose an algorithm.

    Attributes
    ----------
    algorithm
        Its name, with options if it is chosen for these.
    use
        What it is chosen for, as the end of a sentence.
    model
        What it trains.
    groups
        Whether decisions depend on the groups in the constraints.
    decisions
        Whether the main classifier is random.
    limits
        What it does not do, or needs.
    seconds
        Processor time of a trial on `ROWS` rows of ten features, None if it was stopped after 15
        minutes or needs too much memory.
    """

    algorithm: str
    use: str
    model: str
    groups: str
    decisions: str
    limits: str
    seconds: tuple[float | None, ...] = ()


ANY_MODEL = "any"
LINEAR = "linear"
CHOICES = (
    Choice(
        "post_shift",
        "if decisions may depend on the groups, and for existing scores",
        ANY_MODEL,
        "yes",
        "random for few scores",
        "the group must be known for each row that is classified",
        (0.03, 0.28, 63),
    ),
    Choice(
        "mixture",
        "if groups are unknown when decisions are made, and decisions may be random",
        ANY_MODEL,
        "no",
        "random",
        "stores several models, which `export` cannot write if they are trees; its `deterministic` "
        "variant may violate rules",
        (0.05, 1.28, 257),
    ),
    Choice(
        "majorize",
        "if groups are unknown when decisions are made, and decisions must not be random",
        LINEAR,
        "no",
        "not random",
        "affine rules only; a local optimum",
        (0.17, 2.73, 595),
    ),
    Choice(
        "three_player",
        "if the table is larger than memory",
        "linear, boosted trees",
        "no",
        "random",
        "approximate: learning rates may need `tune`",
        (0.55, 20.05, None),
    ),
    Choice(
        "seldonian",
        "if a model must come with a certificate and there are few features",
        LINEAR,
        "no",
        "random",
        "may return no model, above all with few rows or many features",
        (0.05, 0.33, 33),
    ),
    Choice(
        "least_squares",
        "if labels are numbers",
        "linear, regressors of scikit-learn, LightGBM, XGBoost",
        "no",
        "not random",
        "bounds on `mse` and `mean_error` only",
        (0.01, 0.13, 22),
    ),
    Choice(
        "thresholded",
        "if one threshold for all rows is enough, as for a recall",
        ANY_MODEL,
        "no",
        "not random",
        "one threshold may not satisfy several rules together",
        (0.03, 0.31, 66),
    ),
    Choice(
        "exponentiated_gradient",
        "to compare with fairlearn",
        "scikit-learn",
        "no",
        "random",
        "affine rules only; may violate them a little",
        (0.16, 1.06, 205),
    ),
    Choice(
        "coco",
        "to compare with Narasimhan 2018",
        LINEAR,
        "yes",
        "random",
        "approximate; the group must be known for each row that is classified",
        (0.28, 2.39, None),
    ),
    Choice(
        "zafar",
        "to compare with Zafar et al. 2015",
        LINEAR,
        "no",
        "not random",
        "reads which groups are compared, but not the limits of rules",
        (0.05, 0.63, None),
    ),
    Choice(
        "unconstrained",
        "to know what constraints cost",
        ANY_MODEL,
        "no",
        "not random",
        "ignores all rules",
        (0.02, 0.36, 73),
    ),
    Choice(
        "audit",
        "to measure or certify the model in use",
        "the deployed one",
        "no",
        "as it is",
        "changes nothing",
        (0.03, 0.24, 18),
    ),
    Choice(
        "balanced_tree",
        "if the training rows should be balanced, not the decisions",
        "a filter of rows",
        "no",
        "random",
        "enforces no constraint on decisions",
        (0.05, 0.39, 57),
    ),
    Choice(
        "qp_proxy",
        "to compare with Deng et al. 2023",
        "a filter of rows",
        "no",
        "random",
        "does not enforce a bound on disclosivity",
        (0.02, 0.25, 39),
    ),
    Choice(
        "naive_proxy",
        "to compare with Deng et al. 2023",
        "a filter of rows",
        "no",
        "random",
        "does not enforce a bound on disclosivity",
        (0.02, 0.34, 50),
    ),
)
"""The algorithms, those that serve most purposes first."""
BY_NAME = {choice.algorithm: choice for choice in CHOICES}


def in_order_of_choice(algorithms: Iterable[str]) -> list[str]:
    """Sort algorithms as in `CHOICES`, those of other packages last."""
    order = list(BY_NAME)
    return sorted(algorithms, key=lambda name: order.index(name) if name in BY_NAME else len(order))


def use_and_limits_of(algorithm: str) -> str:
    """Return what an algorithm is chosen for, and its limits."""
    limits = f" ({BY_NAME[algorithm].limits})" if algorithm in BY_NAME else ""
    return use_of(algorithm) + limits


def use_of(algorithm: str) -> str:
    """Return what an algorithm is chosen for."""
    return BY_NAME[algorithm].use if algorithm in BY_NAME else f"see `ratecli show {algorithm}`"
