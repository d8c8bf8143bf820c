"""Peers of `boosted.py`: those that this interpreter can import.

    python boosted_peers.py ROWS.npz GOAL

ROWS.npz holds columns X (categories are codes, NaN is missing), labels y and groups g of training rows, Xt and
gt of test rows, and the indices of the categories. ROWS.peers.npz is written: for each peer the probability of
a positive decision on each test row, then processor seconds. All use the same LightGBM; those that choose
thresholds, its scores out of fold.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from importlib.util import find_spec

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

TREES = {"n_estimators": 100, "num_leaves": 31, "n_jobs": 1, "verbose": -1}
FOLDS, STEPS = 5, 12
"""Of scores; how often the tolerance of a difference is halved to find the largest that keeps a ratio."""


def seconds():
    return sum(os.times()[:4])


def booster(rows):
    from lightgbm import LGBMClassifier

    return LGBMClassifier(**TREES, categorical_feature=rows["categories"].tolist())


class Scores(ClassifierMixin, BaseEstimator):
    """A classifier whose only feature is its score; thresholds are fitted on scores out of fold."""

    classes_ = np.array([0, 1])

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict_proba(self, X):
        return np.column_stack([1 - np.asarray(X)[:, 0], np.asarray(X)[:, 0]])

    @classmethod
    def of(cls, rows):
        """Return scores of training rows out of fold, of test rows, and seconds of the fits."""
        from sklearn.model_selection import StratifiedKFold

        begun, X, y = seconds(), rows["X"], rows["y"]
        out = np.zeros(len(y))
        for train, rest in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y):
            out[rest] = booster(rows).fit(X[train], y[train]).predict_proba(X[rest])[:, 1]
        model = booster(rows).fit(X, y)
        spent = seconds() - begun
        return out, model.predict_proba(rows["Xt"])[:, 1], spent


def fit_at_rule(fit, rates_of, goal):
    """Return the fit at the goal's rule, and its seconds.

    A ratio of .8 is not among the rules: it is the largest difference that keeps the ratio. The
    search for that is ours, so its seconds do not count.
    """
    low, high = (0.0, 1.0) if goal == "ratio" else (0.05, 0.05)
    for _ in range(STEPS if goal == "ratio" else 0):
        middle = (low + high) / 2
        rates = rates_of(fit(middle))
        low, high = (middle, high) if min(rates) >= 0.8 * max(rates) else (low, middle)
    begun = seconds()
    return fit(low), seconds() - begun


def group_means(p, g):
    return [p[g == each].mean() for each in np.unique(g)]


def threshold_optimizer(rows, goal, out, test):
    from fairlearn.postprocessing import ThresholdOptimizer

    rule = {"ratio": "demographic_parity", "tpr": "true_positive_rate_parity"}[goal]

    def fit(tolerance):
        made = ThresholdOptimizer(estimator=Scores(), constraints=rule, prefit=True, tol=tolerance,
                                  predict_method="predict_proba")  # fmt: skip
        return made.fit(out[:, None], rows["y"], sensitive_features=rows["g"])

    def decide(made, score, g):
        return made._pmf_predict(score[:, None], sensitive_features=g)[:, 1]

    def rates(made):
        return group_means(decide(made, out, rows["g"]), rows["g"])

    made, spent = fit_at_rule(fit, rates, goal)
    return decide(made, test, rows["gt"]), spent


def error_parity(rows, goal, out, test):
    from error_parity import RelaxedThresholdOptimizer

    rule = {"ratio": "demographic_parity", "tpr": "true_positive_rate_parity"}[goal]

    def fit(tolerance):
        made = RelaxedThresholdOptimizer(predictor=lambda X: X[:, 0], constraint=rule, tolerance=tolerance,
                                         max_roc_ticks=None)  # fmt: skip
        return made.fit(out[:, None], rows["y"], group=rows["g"])

    def rates(made):
        return [(1 - b) * fpr + b * tpr for (fpr, tpr), b in
                zip(made.groupwise_roc_points, made.groupwise_prevalence, strict=True)]  # fmt: skip

    made, spent = fit_at_rule(fit, rates, goal)
    return made.predict(test[:, None], group=rows["gt"]), spent


def oxonfair(rows, goal, out, test):
    from oxonfair import FairPredictor
    from oxonfair import group_metrics as gm

    objective, rule, value = {"ratio": (gm.accuracy, gm.pos_pred_rate.ratio, 0.8),
                              "tpr": (gm.accuracy, gm.recall.diff, 0.05),
                              "f1": (gm.f1, gm.recall.min, 0.8)}[goal]  # fmt: skip
    both = Scores().predict_proba
    data = {"data": both(out[:, None]), "target": rows["y"], "groups": rows["g"]}
    begun = seconds()
    made = FairPredictor(None, data)
    made.fit(objective, rule, value)
    spent = seconds() - begun
    new = {"data": both(test[:, None]), "target": np.zeros(len(test)), "groups": rows["gt"]}
    return made.predict(new), spent


def exponentiated_gradient(rows, goal):
    """At an equal rule: fairlearn compares two groups with all rows, not with each other."""
    from fairlearn import reductions

    y, g = rows["y"], rows["g"]
    if goal == "ratio":
        low = g == np.argmin(group_means(y, g))
        mean = 0.8 * low.mean() + 1 - low.mean()  # rate of all rows if those of groups are .8 and 1
        moment = reductions.DemographicParity(ratio_bound=min(0.8 / mean, mean))
    else:
        share = g[y == 1].mean()
        moment = reductions.TruePositiveRateParity(difference_bound=0.05 * max(share, 1 - share))
    made = reductions.ExponentiatedGradient(booster(rows), moment)
    begun = seconds()
    made.fit(rows["X"], y, sensitive_features=g)
    spent = seconds() - begun
    return made._pmf_predict(rows["Xt"])[:, 1], spent


def fairgbm(rows, goal):
    """With the settings that were best for tpr on other splits of Adult: thresholds 0, this rate."""
    from fairgbm import FairGBMClassifier

    kind = {"tpr": "FNR", "odds": "FPR,FNR"}[goal]
    made = FairGBMClassifier(**TREES, constraint_type=kind, multiplier_learning_rate=0.03)
    own = {"constraint_group": rows["g"], "categorical_feature": rows["categories"].tolist()}
    begun = seconds()
    made.fit(rows["X"], rows["y"], **own)
    spent = seconds() - begun
    return made.predict_proba(rows["Xt"])[:, -1] > 0.5, spent


PEERS = {  # name: package, function, goals, whether it is given scores out of fold
    "fairlearn thresholds": ("fairlearn", threshold_optimizer, ("ratio", "tpr"), True),
    "error-parity": ("error_parity", error_parity, ("ratio", "tpr"), True),
    "OxonFair": ("oxonfair", oxonfair, ("ratio", "tpr", "f1"), True),
    "fairlearn gradient": ("fairlearn", exponentiated_gradient, ("ratio", "tpr"), False),
    "FairGBM": ("fairgbm", fairgbm, ("tpr", "odds"), False),
}


def main(path, goal):
    rows, found, scores = dict(np.load(path)), {}, None
    for name, (package, work, goals, scored) in PEERS.items():
        if goal not in goals or find_spec(package) is None:
            continue
        scores = Scores.of(rows) if scored and scores is None else scores
        p, spent = work(rows, goal, *scores[:2]) if scored else work(rows, goal)
        found[name] = np.append(np.asarray(p, dtype=float), spent + (scores[2] if scored else 0))
    np.savez(path.replace(".npz", ".peers.npz"), **found)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    main(*sys.argv[1:])
