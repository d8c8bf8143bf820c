"""Which algorithm to choose: the table of the docs, `explain`, E308 and `init`."""

from __future__ import annotations

from collections.abc import Iterable

CHOICES = {
    "post_shift": (
        "if decisions may depend on the groups, and for existing scores",
        "the group must be known for each row that is classified",
    ),
    "mixture": (
        "if groups are unknown when decisions are made",
        "boosted trees and forests need a fit for each group and label",
    ),
    "majorize": (
        "if a linear model has many features and few rows (Goh et al. 2016)",
        "affine rules only; a local optimum",
    ),
    "three_player": (
        "if the table is larger than memory",
        "approximate: learning rates may need `tune`",
    ),
    "seldonian": (
        "if a model must come with a certificate and there are few features",
        (
            "needs a safety test, such as `safety: {delta: 0.05}`; may return no model, above all "
            "with few rows or many features"
        ),
    ),
    "least_squares": (
        "if labels are numbers",
        "bounds on `mse` and `mean_error` only",
    ),
    "thresholded": (
        "if one threshold for all rows is enough, as for a recall",
        "one threshold may not satisfy several rules together",
    ),
    "exponentiated_gradient": (
        "to compare with fairlearn",
        "affine rules only; may violate them a little",
    ),
    "coco": (
        "to compare with Narasimhan 2018",
        "approximate; the group must be known for each row that is classified",
    ),
    "zafar": (
        "to compare with Zafar et al. 2015",
        "reads which groups are compared, but not the limits of rules",
    ),
    "unconstrained": (
        "to know what constraints cost",
        "ignores all rules",
    ),
    "audit": (
        "to measure or certify the model in use",
        "changes nothing",
    ),
    "balanced_tree": (
        "if the training rows should be balanced, not the decisions",
        "enforces no constraint on decisions",
    ),
    "qp_proxy": (
        "to compare with Deng et al. 2023",
        "does not enforce a bound on disclosivity",
    ),
    "naive_proxy": (
        "to compare with Deng et al. 2023",
        "does not enforce a bound on disclosivity",
    ),
}
"""What each algorithm is chosen for, as the end of a sentence, and what it does not do, or needs.

Those that serve most purposes come first.
"""


def in_order_of_choice(algorithms: Iterable[str]) -> list[str]:
    """Sort algorithms as in `CHOICES`, those of other packages last."""
    order = list(CHOICES)
    return sorted(algorithms, key=lambda name: order.index(name) if name in order else len(order))


def use_and_limits_of(algorithm: str) -> str:
    """Return what an algorithm is chosen for, and its limits."""
    limits = f" ({CHOICES[algorithm][1]})" if algorithm in CHOICES else ""
    return use_of(algorithm) + limits


def use_of(algorithm: str) -> str:
    """Return what an algorithm is chosen for."""
    return CHOICES[algorithm][0] if algorithm in CHOICES else f"see `ratecli show {algorithm}`"
