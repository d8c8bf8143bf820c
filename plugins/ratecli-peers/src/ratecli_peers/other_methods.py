"""FairGBM, TFCO and the Seldonian Toolkit, by interpreters of their own."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt

from ratecli.models.base import Classifier
from ratecli.solvers.base import Progress, Solution
from ratecli.solvers.oracles.choice import LINEAR_MODEL
from ratecli.solvers.problem import Problem
from ratecli_peers.other_python import OtherPython
from ratecli_peers.rules import (
    EQUALIZED_ODDS,
    Kind,
    KnownRules,
    tightened_rule,
    tightened_rules,
)

FAIRGBM_OBJECTIVE = "objective=constrained_cross_entropy"
FAIRGBM_OPTIONS = (
    *("n_estimators", "num_leaves", "learning_rate", "min_child_samples"),
    "multiplier_learning_rate",
)
CONSTRAINT_TYPES = {"tpr": "FNR", "fpr": "FPR", EQUALIZED_ODDS: "FNR,FPR"}


@dataclass(frozen=True)
class FairGBM(KnownRules, OtherPython):
    """FairGBM (Cruz et al. 2023): LightGBM's trees with multipliers of the groups' error rates.

    It takes a limit on the difference of `tpr`, `fpr` or both between groups, as the tolerance of
    its constraints `FNR` and `FPR` on a proxy of these rates. Thresholds stay at 0.5. Every
    labelled row must be in a group. It needs `python`, and `ratecli test-plugin` fails without:
    FairGBM 0.9.14 runs with numpy below 1.24, scikit-learn below 1.2 and pandas below 2.

    Attributes
    ----------
    n_estimators
        Number of trees.
    num_leaves
        Largest number of leaves of a tree.
    learning_rate
        Rate of boosting.
    min_child_samples
        Smallest number of rows of a leaf.
    multiplier_learning_rate
        Rate of the multipliers.
    """

    n_estimators: Annotated[int, Ge(1)] = 100
    num_leaves: Annotated[int, Ge(2)] = 31
    learning_rate: Annotated[float, Gt(0)] = 0.1
    min_child_samples: Annotated[int, Ge(1)] = 20
    multiplier_learning_rate: Annotated[float, Gt(0)] = 0.1

    version: ClassVar[int] = 1
    script: ClassVar[str] = "fairgbm"
    accepts: ClassVar[tuple[tuple[Kind, str], ...]] = tuple(
        ("difference", rate) for rate in CONSTRAINT_TYPES
    )

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli.models.composed import ProbabilityThreshold
        from ratecli.models.tree_formats.lightgbm import read_lightgbm
        from ratecli_peers.rows import GroupRows, seed_of

        rows, layout = GroupRows.of(problem, complete=True), problem.layout
        rate, bound = "tpr", 0.999  # which nearly every classifier keeps
        if problem.constraints:
            rule = tightened_rule(problem)
            rate, bound = rule.rate, rule.bound
        own = {name: getattr(self, name) for name in FAIRGBM_OPTIONS}
        bounds = {f"constraint_{name}_tolerance": bound for name in ("fpr", "fnr")}
        options = {"constraint_type": CONSTRAINT_TYPES[rate], **own, **bounds}
        facts = {"options": options, "categories": layout.categories, "seed": seed_of(rng)}

        def classifier(text: str) -> Classifier:
            known = text.replace(FAIRGBM_OBJECTIVE, "objective=binary sigmoid:1")
            return ProbabilityThreshold(read_lightgbm(known, layout))

        columns = layout.columns(problem.X[rows.rows])
        found = self.run_script(problem, rows, columns, facts, classifier)
        progress("FairGBM's trees are ready")
        return found


@dataclass(frozen=True)
class TFCO(KnownRules, OtherPython):
    """TFCO (Cotter et al. 2019): a random choice among linear models from a constrained game.

    It takes any number of differences, ratios and lower limits of rates of groups. The models are
    those of every tenth step, or of every `every` steps; `find_best_candidate_distribution` chooses
    among them. Every labelled row must be in a group. It needs `python`, and `ratecli test-plugin`
    fails without: TFCO 0.2 needs TensorFlow.

    Attributes
    ----------
    steps
        Number of steps, each over all rows.
    every
        Number of steps between two candidates.
    optimizer
        `proxy` (`ProxyLagrangianOptimizer`) or `lagrangian` (`LagrangianOptimizer`).
    learning_rate
        Of Adam, for the weights.
    constraint_learning_rate
        Of Adam, for the multipliers.
    """

    steps: Annotated[int, Ge(1)] = 1000
    every: Annotated[int, Ge(1)] = 10
    optimizer: Literal["proxy", "lagrangian"] = "proxy"
    learning_rate: Annotated[float, Gt(0)] = 0.01
    constraint_learning_rate: Annotated[float, Gt(0)] = 0.01

    version: ClassVar[int] = 1
    script: ClassVar[str] = "tfco"
    several: ClassVar[bool] = True
    accepts: ClassVar[tuple[tuple[Kind, str], ...]] = (
        *(("difference", rate) for rate in ("positive_rate", "tpr", "fpr", "error")),
        *(("ratio", rate) for rate in ("positive_rate", "tpr", "fpr")),
        *(("floor", rate) for rate in ("positive_rate", "tpr")),
    )

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli.models.composed import MixtureClassifier
        from ratecli.models.linear import Threshold
        from ratecli_peers.rows import GroupRows, dense, seed_of

        rows = GroupRows.of(problem, complete=True)
        names = ("steps", "every", "optimizer", "learning_rate", "constraint_learning_rate")
        rules = [asdict(rule) for rule in tightened_rules(problem)]
        facts = {name: getattr(self, name) for name in names}
        facts |= {"rules": rules, "seed": seed_of(rng)}

        def classifier(model: Any) -> Classifier:
            members = [Threshold(np.array(each[:-1]), each[-1]) for each in model["members"]]
            return MixtureClassifier.of(members, np.array(model["chances"]))

        found = self.run_script(problem, rows, dense(problem, rows.rows), facts, classifier)
        progress(f"{self.steps} steps")
        return found


MEASURES = {"positive_rate": "PR", "tpr": "TPR", "fpr": "FPR"}
"""The toolkit's name of a rate."""


@dataclass(frozen=True)
class SeldonianToolkit(KnownRules, OtherPython):
    """The Seldonian Toolkit (engine 0.8): logistic regression with a safety test of its own.

    It takes a difference or ratio of `positive_rate`, `tpr` or `fpr` between two groups. A share of
    the training rows is for its safety test; without a model that passes, there is no solution.
    Every labelled row must be in a group. It needs `python`, and `ratecli test-plugin` fails
    without.

    Attributes
    ----------
    delta
        Largest probability that the constraint does not hold.
    frac_data_in_safety
        Share of the rows for the safety test.
    num_iters
        Number of steps.
    alpha_theta
        Size of steps of the weights.
    alpha_lamb
        Size of steps of the multiplier.
    """

    delta: Annotated[float, Gt(0), Lt(1)] = 0.05
    frac_data_in_safety: Annotated[float, Gt(0), Lt(1)] = 0.6
    num_iters: Annotated[int, Ge(1)] = 200
    alpha_theta: Annotated[float, Gt(0)] = 0.01
    alpha_lamb: Annotated[float, Gt(0)] = 0.01

    version: ClassVar[int] = 1
    script: ClassVar[str] = "seldonian"
    no_model: ClassVar[str] = "no candidate passed the safety test of the toolkit"
    two_groups: ClassVar[bool] = True
    accepts: ClassVar[tuple[tuple[Kind, str], ...]] = (
        *(("difference", rate) for rate in MEASURES),
        *(("ratio", rate) for rate in MEASURES),
    )

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli.models.linear import Logistic
        from ratecli_peers.learner import Learner, fit_weighted
        from ratecli_peers.rows import GroupRows, dense, plain_solution, seed_of

        rows = GroupRows.of(problem, complete=True)
        X = dense(problem, rows.rows)
        if not problem.constraints:
            learner = Learner.of(LINEAR_MODEL, problem)
            return plain_solution(fit_weighted(learner, X, rows.label, np.ones(len(X))))
        rule = tightened_rule(problem)
        one, other = (f"({MEASURES[rule.rate]} | [{name}])" for name in ("g0", "g1"))
        text = f"abs({one} - {other}) - {rule.bound}"
        if rule.kind == "ratio":
            text = f"{rule.bound} - min({one} / {other}, {other} / {one})"
        names = ("delta", "frac_data_in_safety", "num_iters", "alpha_theta", "alpha_lamb")
        facts = {name: getattr(self, name) for name in names}
        facts |= {"constraints": [text], "seed": seed_of(rng)}

        def classifier(weights: list[float]) -> Classifier:
            return Logistic(np.array(weights[1:]), weights[0])

        found = self.run_script(problem, rows, X, facts, classifier)
        progress(f"{self.num_iters} steps")
        return found
