"""Where scikit-learn keeps the classifiers that take sample weights in every version we take.

Known by heart, since to look through all of scikit-learn takes seconds: a file that names one of
these is checked without, and where it gives no parameters without importing any.
"""

from __future__ import annotations

_NAMES_BY_MODULE = {
    "sklearn.calibration": ("CalibratedClassifierCV",),
    "sklearn.ensemble": (
        "AdaBoostClassifier",
        "BaggingClassifier",
        "ExtraTreesClassifier",
        "GradientBoostingClassifier",
        "HistGradientBoostingClassifier",
        "RandomForestClassifier",
    ),
    "sklearn.linear_model": (
        "LogisticRegression",
        "LogisticRegressionCV",
        "Perceptron",
        "RidgeClassifier",
        "RidgeClassifierCV",
        "SGDClassifier",
    ),
    "sklearn.naive_bayes": (
        "BernoulliNB",
        "CategoricalNB",
        "ComplementNB",
        "GaussianNB",
        "MultinomialNB",
    ),
    "sklearn.svm": ("LinearSVC", "NuSVC", "SVC"),
    "sklearn.tree": ("DecisionTreeClassifier", "ExtraTreeClassifier"),
}
CLASSIFIER_MODULES = {name: home for home, names in _NAMES_BY_MODULE.items() for name in names}
"""Module by class. What a newer scikit-learn adds is found by `estimators.classifier` all the same."""
