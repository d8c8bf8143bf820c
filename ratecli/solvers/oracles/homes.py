"""The modules of scikit-learn's classifiers that take sample weights in every supported version.

The table is hard-coded because scanning scikit-learn takes seconds. With it, a file that names one
of these classes is checked without a scan, and without any import if it sets no parameters.
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
"""Module by class. Classes of newer versions are found by `estimators.list_classifiers`."""
