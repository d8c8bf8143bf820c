import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from ratecli.models.composed import MixtureClassifier
from ratecli.models.layout import ColumnLayout
from ratecli.models.linear import Threshold
from ratecli.models.proxies import ClassifierProxy, ProxyFilter, SampledFilter, SplitTree
from ratecli.models.tree_formats.scikit_learn import convert_sklearn_trees
from ratecli.models.trees import LEAF

X = np.random.default_rng(5).normal(size=(300, 3))


def tree() -> SplitTree:
    """Node 0 splits into 1 and 2, node 2 into 3 and 4."""
    first = MixtureClassifier((Threshold(np.array([1.0, 0, 0])), Threshold(np.array([0, 1.0, 0]))),
                    np.array([0.25, 0.75]))  # fmt: skip
    second = Threshold(np.array([0.0, 0, 1.0]), 0.2)
    children = np.array([[1, 2], [LEAF, LEAF], [3, 4], [LEAF, LEAF], [LEAF, LEAF]])
    return SplitTree(3, children, (first, second))


def guess(noise: float = 0.0) -> ClassifierProxy:
    groups = (X[:, 0] > 0).astype(int) + (X[:, 1] > 1)
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, groups)
    chances = convert_sklearn_trees(model, ColumnLayout.numbers(model.n_features_in_))
    return ClassifierProxy(chances, np.array([0, 1, 2]), noise)


def test_memberships_are_products_along_the_path():
    yes = 0.25 * (X[:, 0] > 0) + 0.75 * (X[:, 1] > 0)
    up = (X[:, 2] + 0.2 > 0).astype(float)
    expected = np.stack([1 - yes, yes * (1 - up), yes * up], axis=1)
    assert tree().memberships(X) == pytest.approx(expected)
    assert tree().values == 3


@pytest.mark.parametrize("proxy", [tree(), guess(0.3)], ids=["tree", "guess"])
def test_sampled_values_follow_memberships(proxy):
    rounds = 2000
    model = ProxyFilter(proxy, np.ones(proxy.values))
    rng = np.random.default_rng(1)
    some = X[:40]
    counts = np.zeros((len(some), proxy.values))
    for _ in range(rounds):
        counts[np.arange(len(some)), model.sample_rows(some, rng)[0]] += 1
    chances = proxy.memberships(some)
    error = np.sqrt(chances * (1 - chances) / rounds)
    assert (np.abs(counts / rounds - chances) <= 5 * error + 1e-12).all()


def test_noise_replaces_predictions_uniformly():
    """Vector 9.17: A = [[.8, .2], [.4, .6]], sizes (.75, .25), eta .4."""
    said = np.repeat([0, 0, 1, 1], [600, 150, 100, 150])  # 750 and 250 rows
    group = np.repeat([0, 1, 0, 1], [600, 150, 100, 150])
    rows = said[:, None].astype(float)
    model = DecisionTreeClassifier(random_state=0).fit(rows, said)
    proxy = ClassifierProxy(
        convert_sklearn_trees(model, ColumnLayout.numbers(model.n_features_in_)),
        np.array([0, 1]),
        0.4,
    )
    chances = proxy.memberships(rows)
    sizes = chances.mean(axis=0)
    assert sizes == pytest.approx([0.65, 0.35])
    posterior = np.stack([chances[group == k].sum(axis=0) for k in (0, 1)], axis=1) / 1000
    assert posterior / sizes[:, None] == pytest.approx(
        np.array([[0.76923, 0.23077], [0.57143, 0.42857]]), abs=1e-5
    )
    assert posterior.sum(axis=0) == pytest.approx([0.7, 0.3])


def test_filter_keeps_with_the_probability_of_the_value():
    keep = np.array([0.5, 0.0, 1.0])
    model = ProxyFilter(tree(), keep)
    assert model.decide(X) == pytest.approx(tree().memberships(X) @ keep)
    values, kept = model.sample_rows(np.repeat(X, 50, axis=0), np.random.default_rng(0))
    shares = [kept[values == value].mean() for value in range(3)]
    error = 5 * 0.5 / np.sqrt((values == 0).sum())
    assert shares == pytest.approx(keep, abs=error)
    assert shares[1:] == [0, 1]


def test_samples_depend_only_on_seed_and_position():
    model = ProxyFilter(tree(), np.array([0.5, 0.1, 1.0]))
    values, kept = model.sample_rows(X, np.random.default_rng(4))
    fewer = model.sample_rows(X[:7], np.random.default_rng(4))
    assert np.array_equal(fewer, (values[:7], kept[:7]))
    changed = np.vstack([X[:5] + 1, X[5:]])
    others = model.sample_rows(changed, np.random.default_rng(4))
    assert np.array_equal(np.array(others)[:, 5:], (values[5:], kept[5:]))
    again = model.sample_rows(X, np.random.default_rng(5))
    assert (again[0] != values).any()
    assert (again[1] != kept).any()


def test_sampled_filter_averages_to_the_filter():
    model = ProxyFilter(tree(), np.array([0.5, 0.1, 1.0]))
    salts = range(300)
    sampled = [SampledFilter(model.proxy, model.keep, salt=s).decide(X) for s in salts]
    kept = np.mean(sampled, axis=0)
    expected = model.decide(X)
    error = np.sqrt(expected * (1 - expected) / len(salts))
    assert (np.abs(kept - expected) <= 5 * error + 1e-12).all()
    one = SampledFilter(model.proxy, model.keep, salt=3)
    assert set(one.decide(X)) == {0.0, 1.0}
    assert np.array_equal(one.decide(X[::-1]), one.decide(X)[::-1])


@pytest.mark.parametrize(
    "children",
    [
        [[1, 2], [LEAF, LEAF], [LEAF, LEAF]],  # a node too few for two splits
        [[1, 2], [LEAF, LEAF], [0, 4], [LEAF, LEAF], [LEAF, LEAF]],  # a circle
        [[1, 1], [LEAF, LEAF], [3, 4], [LEAF, LEAF], [LEAF, LEAF]],  # one child twice
        [[1, 2], [LEAF, LEAF], [3, LEAF], [LEAF, LEAF], [LEAF, LEAF]],
    ],
)
def test_invalid_split_tree_is_rejected(children):
    with pytest.raises(ValueError, match="not a tree"):
        SplitTree(3, np.array(children), tree().splits)


def test_invalid_filter_is_rejected():
    for keep in ([0.5, 1.5, 0.0], [0.5, 0.5]):
        with pytest.raises(ValueError, match="chances"):
            ProxyFilter(tree(), np.array(keep))
    with pytest.raises(ValueError, match="groups"):
        ClassifierProxy(guess().chances, np.array([0, 9]))
