"""`mixture` of boosted trees and forests: label first, then the group given the label."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from oracles.goals import BOTH, KL, Rows, Rules, problem, rates_of, run, smooth_rows
from sklearn.ensemble import RandomForestClassifier
from thinned import one_in

from ratecli.errors import FaultError
from ratecli.experiment.entries import make_solver
from ratecli.models.composed import CostSensitiveClassifier, append_memberships
from ratecli.models.layout import ColumnLayout
from ratecli.models.output_cache import (
    class_probabilities,
    fixed_features,
    leading_features,
    take_rows,
)
from ratecli.models.probabilities import FactoredModel
from ratecli.models.storage import dumps, load_probabilities, loads
from ratecli.models.trees import LEAF, NO_SET, TreeEnsemble
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.baselines.options import PostShift, Unconstrained
from ratecli.solvers.fit_cache import shared_fits
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.hull.options import Mixture
from ratecli.solvers.oracles.choice import LINEAR_ORACLE, is_ensemble, named_estimators
from ratecli.solvers.oracles.plugin import make_unseen_oracle
from ratecli.solvers.oracles.unseen import folds_of, hold_out
from ratecli.solvers.problem import ERROR_RATE

TREES = {"GradientBoostingClassifier": {"n_estimators": 4}}
FOREST = {"RandomForestClassifier": {"n_estimators": 10}}
RATIO = Rules({"ratio": "positive_rate[g=a] >= 0.8 * positive_rate[g=b]"})
RECALL = Rules({"recall": "tpr >= 0.8"}, "fpr")


def constant(shares: list[float]) -> TreeEnsemble:
    """Return a model of one leaf and two features."""
    nothing = np.zeros(1, dtype=np.intp)
    return TreeEnsemble(
        ColumnLayout.numbers(2),
        roots=nothing,
        column=nothing + LEAF,
        threshold=np.zeros(1),
        children=np.zeros((1, 2), dtype=np.intp),
        missing_second=np.zeros(1, dtype=bool),
        set_at=nothing + NO_SET,
        sets=np.zeros(0, dtype=bool),
        values=np.zeros((1, len(shares))),
        start=np.array(shares),
    )


def test_probabilities_of_a_label_are_divided_among_its_classes():
    parts = constant([0.25, 0.75]), constant([0.1, 0.2, 0.7])
    label, column = np.array([2, 0, 1, 0, 2, 2]), np.array([3, 1, 0, 2, 4, 5])
    model = FactoredModel(constant([0.4, 0.1, 0.5]), parts, label, column)
    X = np.zeros((3, 2))
    expected = [0.5 * 0.1, 0.4 * 0.25, 0.1, 0.4 * 0.75, 0.5 * 0.2, 0.5 * 0.7]
    np.testing.assert_allclose(model.probabilities(X), [expected] * 3)
    again = load_probabilities(dumps(model))
    assert isinstance(again, FactoredModel)
    assert dumps(again) == dumps(model)
    np.testing.assert_array_equal(again.probabilities(X), model.probabilities(X))


@pytest.mark.parametrize(
    ("label", "column"),
    [([0, 2], [0, 0]), ([0, -1], [0, 0]), ([0, 1], [0, 3]), ([0, 1], [-1, 0]), ([0, 1], [0])],
)
def test_labels_and_columns_that_do_not_exist_are_refused(label, column):
    labels = constant([0.5, 0.5])
    places = np.array(label, dtype=np.intp), np.array(column, dtype=np.intp)
    with pytest.raises(ValueError, match="the parts do not fit"):
        FactoredModel(labels, (labels,), *places)


@pytest.mark.parametrize(
    ("rules", "parts"),
    [(RATIO, 2), (Rules({"tpr": "abs(tpr[g=a] - tpr[g=b]) <= 0.05"}), 1), (RECALL, 0)],
)
def test_groups_are_fitted_only_for_labels_whose_rates_distinguish_them(rules, parts):
    given = problem(smooth_rows(0), rules)
    plain = run(Unconstrained(model=TREES), given).variants["deterministic"]
    main = run(Mixture(model=TREES, **BOTH), given).variants["stochastic"]
    weighed = [member for member in main.members if isinstance(member, CostSensitiveClassifier)]
    model = weighed[0].chances
    assert all(member.chances is model for member in weighed)
    assert len(model.parts) == parts
    assert model.labels is plain.chances  # the same fit
    np.testing.assert_allclose(model.probabilities(given.X).sum(axis=1), 1)


@pytest.mark.parametrize("n", one_in(3, [100, 333, 777]))
def test_labels_are_fitted_once_for_all_algorithms(n, tmp_path):
    given = problem(smooth_rows(90, n=n), RATIO)
    folder, counts = tmp_path / "fits", []
    with shared_fits(folder):
        for solver in (PostShift(model=TREES, scores={"folds": 3}), Mixture(model=TREES, **BOTH)):
            run(solver, given)
            counts.append(len(list(folder.glob("*.fit"))))
    assert counts == [4, 12]  # labels of all rows and three folds; groups of two labels


@pytest.mark.parametrize("count", [2, 3])
def test_folds_have_probabilities_of_models_fitted_to_the_others(count):
    given = problem(smooth_rows(1), RATIO)
    whole = make_unseen_oracle(TREES, {"folds": count}, given)[0]
    prices = np.array([1.0 if leaf == ERROR_RATE else -0.01 for leaf in given.rates.leaves])
    answer = whole.answer(prices, None)
    decided = whole.rows.decide(answer)
    fold, kinds = folds_of(given, count), RowKinds.by(given.rates)
    for kind in range(kinds.count):  # rows of each kind are spread evenly
        sizes = np.bincount(fold[kinds.of == kind], minlength=count)
        assert sizes.max() - sizes.min() <= 1
    costs = kinds.slopes.T @ prices
    for k in range(count):
        part = given.on(np.flatnonzero(fold != k))
        oracle = make_unseen_oracle(TREES, "in_sample", part)[0]
        known = RowKinds.by(part.rates).patterns.T.tolist()
        order = [known.index(pattern) for pattern in kinds.patterns.T.tolist()]
        model = oracle.answer(np.ones(len(prices)), None).chances
        chances = model.probabilities(given.X[fold == k])[:, order]
        np.testing.assert_array_equal(decided[fold == k], chances @ -costs > 0)
    assert not np.array_equal(decided, answer.decide(given.X))


SCORES = ["in_sample", {"folds": 3}, {"held_out": 0.3}]
KINDS = [
    RATIO,
    Rules({"e": "error <= 0.4"}, KL),
    Rules({"a": "tpr[g=a] >= 0.7", "b": "tpr[g=b] >= 0.7"}, "1 - f1"),
]


@pytest.mark.parametrize(("scores", "rules"), one_in(4, itertools.product(SCORES, KINDS)), ids=str)
def test_constraints_hold_on_the_rows_that_judge_them(rules, scores):
    given = problem(smooth_rows(2), rules)
    found = run(Mixture(model=TREES, scores=scores, **BOTH), given)
    assert found.status == "solved"
    main = found.variants["stochastic"]
    assert len(main.members) <= len(given.rates.leaves) + 1
    if scores == "in_sample":
        assert found.judged is None
        assert given.violation(main) <= 1e-6
    else:
        assert found.judged is not None
        assert set(found.judged.violations()) == set(rules.constraints)
        assert max(found.judged.violations().values()) <= 1e-6
    if isinstance(scores, dict) and "held_out" in scores:
        part = given.on(hold_out(given, 0.3)[1])
        rates = rates_of(part, main)
        assert part.violations(rates) == pytest.approx(found.judged.violations(), abs=1e-9)
        program = RateProgram.of(part)
        trace = float(program.value(program.objective, rates))
        assert trace == pytest.approx(found.trace[-1]["objective"], abs=1e-9)
    again = loads(dumps(main))
    np.testing.assert_array_equal(again.decide(given.X), main.decide(given.X))
    assert set(np.unique(found.variants["deterministic"].decide(given.X))) <= {0.0, 1.0}


@pytest.mark.parametrize("seed", one_in(3, range(3)))
@pytest.mark.parametrize("model", [TREES, "plugin"], ids=str)
def test_the_single_classifier_is_at_least_as_good_as_any_threshold_on_a_member(seed, model):
    given = problem(smooth_rows(seed), RATIO)
    variants = run(
        Mixture(model=model, **({"scores": "in_sample"} if model is TREES else {}), **BOTH), given
    )
    program = RateProgram.of(given)
    best = np.inf
    for member in variants.variants["stochastic"].members:
        scores = member.score(given.X).round(10)  # ties may differ by rounding
        rates = np.stack([given.rates.rates(scores > cut) for cut in np.unique(scores)], axis=1)
        held = program.missed(rates) <= 1e-9
        best = min(best, program.value(program.objective, rates)[held].min(initial=np.inf))
    rates = rates_of(given, variants.variants["deterministic"])
    assert program.excess(rates) <= 1e-9
    assert program.value(program.objective, rates) <= best + 1e-9


@pytest.mark.parametrize("scores", [{"folds": 3}, {"held_out": 0.4}], ids=str)
def test_recall_chosen_by_unseen_rows_holds_on_new_ones(scores):
    """Labels are independent of features: a forest's scores of its own rows say nothing."""
    rng = np.random.default_rng(0)
    X, label = rng.normal(size=(1500, 4)), (rng.random(1500) < 0.5).astype(float)
    rows = Rows(X, label, np.full(1500, "a", dtype=object))
    given = problem(rows, RECALL)
    used, new = given.on(np.arange(750)), given.on(np.arange(750, 1500))
    recall = {}
    for name, option in (("seen", "in_sample"), ("unseen", scores)):
        main = run(Mixture(model=FOREST, scores=option, **BOTH), used).variants["stochastic"]
        recall[name] = 0.8 - new.violations(rates_of(new, main))["recall"]
    assert recall["seen"] < 0.65
    assert recall["unseen"] > 0.74


@pytest.mark.parametrize("labels", ["unlabelled", "one label", "rare"])
def test_rows_without_labels_and_rare_kinds_are_taken(labels):
    rows = smooth_rows(3, n=120)
    label = rows.label.copy()
    if labels == "unlabelled":
        label[::3] = np.nan
    elif labels == "one label":
        label[:] = 1.0
    else:
        label[rows.group == "a"] = 0.0
        label[np.flatnonzero(rows.group == "a")[0]] = 1.0
    rows = replace(rows, label=label, weight=np.linspace(0, 2, 120))
    given = problem(rows, RATIO)
    found = run(Mixture(model=TREES, **BOTH), given)
    assert found.status == "solved"
    assert max(found.judged.violations().values()) <= 1e-6


def test_same_seed_gives_the_same_mixture():
    given = replace(problem(smooth_rows(4), RATIO), seed=3)
    first, second = (run(Mixture(model=FOREST, **BOTH), given, seed) for seed in (0, 1))
    for name, classifier in first.variants.items():
        assert dumps(classifier) == dumps(second.variants[name])


def test_scores_are_an_option_of_ensembles_alone():
    assert make_solver("mixture", {"model": TREES}, []).scores == {"folds": 3}
    assert make_solver("mixture", {}, []).scores is None
    assert not is_ensemble(LINEAR_ORACLE)
    assert not is_ensemble("DecisionTreeClassifier")
    assert is_ensemble("lightgbm:LGBMClassifier")
    unseeded = RandomForestClassifier(random_state=np.random.RandomState(0))
    assert is_ensemble(named_estimators(unseeded))
    with pytest.raises(FaultError, match="'scores' is for boosted trees and forests"):
        make_solver("mixture", {"scores": "in_sample"}, [])


@dataclass(frozen=True)
class CountedModel:
    """The probabilities of another model; `rows` has the number of rows of each call."""

    model: TreeEnsemble
    rows: list[int]
    classes = 2

    def probabilities(self, X):
        self.rows.append(X.shape[0])
        return self.model.probabilities(X)


def test_outputs_are_computed_once_for_each_row_in_a_block():
    given = problem(smooth_rows(0), RATIO)
    X = given.X.copy()
    inner = run(Unconstrained(model=TREES), given).variants["deterministic"].chances
    expected, counted = inner.probabilities(X), CountedModel(inner, [])
    some, members = np.arange(5, 25), np.arange(len(X)) % 2 == 0
    with fixed_features(X):
        taken = take_rows(X, some)
        np.testing.assert_array_equal(class_probabilities(counted, taken), expected[some])
        part = take_rows(append_memberships(taken, [members[some]]), np.arange(7, 15))
        narrow = leading_features(part, X.shape[1])
        np.testing.assert_array_equal(class_probabilities(counted, narrow), expected[12:20])
    np.testing.assert_array_equal(class_probabilities(counted, X.copy()), expected)
    assert counted.rows == [20, len(X)]  # all rows, since nearly all are unknown


def test_changed_features_are_not_taken_for_those_of_a_block():
    given = problem(smooth_rows(0), RATIO)
    model = run(Unconstrained(model=TREES), given).variants["deterministic"].chances
    X, other = given.X.copy(), given.X[::-1].copy()
    with fixed_features(X):
        first = class_probabilities(model, X)
        assert np.shares_memory(class_probabilities(model, X), first)
        np.testing.assert_array_equal(class_probabilities(model, other), first[::-1])
    X[:] = other
    np.testing.assert_array_equal(class_probabilities(model, X), first[::-1])
