import io
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from ratecli.models.composed import CostSensitiveClassifier
from ratecli.models.layout import NUMBER_OR_MISSING, ColumnLayout
from ratecli.models.storage import dumps, loads
from ratecli.models.trees import LEAF, NO_SET, TreeEnsemble


def archive(**members: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **members)  # type: ignore[arg-type]
    return buffer.getvalue()


def two_trees(**changes) -> TreeEnsemble:
    """x0 <= 1 ? a : (x1 <= 0 ? b : c), and a lone leaf."""
    found = TreeEnsemble(
        layout=ColumnLayout.numbers(2),
        roots=np.array([0, 5]),
        column=np.array([0, LEAF, 1, LEAF, LEAF, LEAF]),
        threshold=np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        children=np.array([[1, 2], [0, 0], [3, 4], [0, 0], [0, 0], [0, 0]]),
        missing_second=np.array([True, False, False, False, False, False]),
        set_at=np.full(6, NO_SET),
        sets=np.zeros(0, dtype=bool),
        values=np.array([[9, 9], [0.1, 0.2], [9, 9], [0.3, 0.4], [0.5, 0.6], [1.0, 2.0]]),
        start=np.array([10.0, 20.0]),
    )
    return replace(found, **changes)


POINTS = np.array([[1.0, 5.0], [1.5, 0.0], [1.5, 0.1]])
SUMS = np.array([[11.1, 22.2], [11.3, 22.4], [11.5, 22.6]])


def test_tree_ensemble_sums_leaf_values():
    found = two_trees().probabilities(POINTS)
    np.testing.assert_allclose(found, SUMS)
    np.testing.assert_array_equal(two_trees().probabilities(sparse.csr_array(POINTS)), found)
    assert two_trees().probabilities(np.zeros((0, 2))).shape == (0, 2)
    odds, soft = np.exp(SUMS[:, 1] - SUMS[:, 0]), two_trees(softmax=True).probabilities(POINTS)
    np.testing.assert_allclose(soft[:, 1], odds / (1 + odds))


def test_rounded_trees_compare_32_bit_features():
    just_above = np.array([[1 + 1e-12, 5.0]])
    assert two_trees().probabilities(just_above)[0, 0] == pytest.approx(11.5)
    assert two_trees(rounded=True).probabilities(just_above)[0, 0] == pytest.approx(11.1)


@pytest.mark.parametrize(
    "changes",
    [
        {"children": np.array([[0, 2], [0, 0], [3, 4], [0, 0], [0, 0], [0, 0]])},  # a circle
        {"children": np.array([[1, 2], [0, 0], [3, 6], [0, 0], [0, 0], [0, 0]])},
        {"children": np.array([[1, 2], [0, 0], [-3, 4], [0, 0], [0, 0], [0, 0]])},
        {"column": np.array([0, LEAF, 2, LEAF, LEAF, LEAF])},
        {"column": np.array([0, -2, 1, LEAF, LEAF, LEAF])},
        {"roots": np.array([0, 6])},
        {"roots": np.array([5, 0])},
        {"roots": np.zeros((1, 1), dtype=int)},
        {"values": np.zeros((6, 3))},
        {"threshold": np.zeros(5)},
        {"missing_second": np.zeros(5, dtype=bool)},
        {"set_at": np.array([0, NO_SET, NO_SET, NO_SET, NO_SET, NO_SET])},  # a number has no set
        {"sets": np.zeros((1, 1), dtype=bool)},
    ],
)
def test_invalid_tree_nodes_are_rejected(changes):
    with pytest.raises(ValueError, match="are not trees"):
        two_trees(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"start": np.array([np.nan, 0.0])},
        {"values": np.full((6, 2), np.inf)},
    ],
)
def test_invalid_values_are_rejected(changes):
    with pytest.raises(ValueError, match="no finite value"):
        two_trees(**changes)


def test_cost_sensitive_decision_is_positive_if_cost_is_below_the_cut():
    costs = np.array([2.0, -1.0])
    model = CostSensitiveClassifier(two_trees(), costs)
    assert model.score(POINTS) == pytest.approx(SUMS @ [-2.0, 1.0])
    np.testing.assert_array_equal(replace(model, cut=-0.1).decide(POINTS), [1, 0, 0])
    np.testing.assert_array_equal(replace(model, cut=-1.0).estimate(POINTS), [1, 1, 1])
    with pytest.raises(ValueError, match="3 costs of 2 classes"):
        CostSensitiveClassifier(two_trees(), np.ones(3))


LAYOUT = ColumnLayout(np.array([NUMBER_OR_MISSING, 3]))
FEATURES = np.array(
    [
        [0.5, 0, 1, 0, 0],
        [0.0, 1, 0, 1, 0],
        [0.0, 1, 0, 0, 1],
        [2.0, 0, 0, 0, 1],
        [2.0, 0, 0, 0, 0],
    ]
)


def by_sets(**changes) -> TreeEnsemble:
    """Number <= 1 or missing ? (level 0 or 2 ? 1 : 2) : (level 1 or none ? 3 : 4)."""
    found = TreeEnsemble(
        layout=LAYOUT,
        roots=np.array([0]),
        column=np.array([0, 1, 1, LEAF, LEAF, LEAF, LEAF]),
        threshold=np.ones(7),
        children=np.array([[1, 2], [3, 4], [5, 6], [0, 0], [0, 0], [0, 0], [0, 0]]),
        missing_second=np.array([False, True, False, False, False, False, False]),
        set_at=np.array([NO_SET, 0, 3, 0, 0, 0, 0]),
        sets=np.array([True, False, True, False, True, False]),
        values=np.array([9, 9, 9, 1.0, 2, 3, 4])[:, None],
        start=np.zeros(1),
    )
    return replace(found, **changes)


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_sets_of_levels_and_missing_values_choose_the_child(convert):
    X = convert(FEATURES)
    np.testing.assert_array_equal(by_sets().sums(X)[:, 0], [1, 2, 1, 4, 3])
    apart = by_sets(missing_second=np.array([True, False, True, False, False, False, False]))
    np.testing.assert_array_equal(apart.sums(X)[:, 0], [1, 3, 4, 4, 4])
    with pytest.raises(ValueError, match="4 features instead of 5"):
        by_sets().sums(X[:, :4])
    members = np.ones((5, 1))  # of a slice
    wider = convert(np.hstack([FEATURES, members]))
    np.testing.assert_array_equal(by_sets().sums(wider), by_sets().sums(X))


@pytest.mark.parametrize(
    "changes",
    [
        {"set_at": np.array([NO_SET, 0, 4, 0, 0, 0, 0])},
        {"set_at": np.array([NO_SET, 0, 2**63 - 1, 0, 0, 0, 0])},
        {"set_at": np.array([NO_SET, 0, -2, 0, 0, 0, 0])},
        {"set_at": np.array([0, 0, 3, 0, 0, 0, 0])},
        {"sets": np.zeros(5, dtype=bool)},
        {"layout": ColumnLayout(np.array([0, 4]))},
        {"layout": ColumnLayout(np.array([3]))},
    ],
)
def test_sets_that_do_not_fit_are_rejected(changes):
    with pytest.raises(ValueError, match="are not trees"):
        by_sets(**changes)


@pytest.mark.parametrize("levels", [[0, -2], [10**7 + 1], [2**62] * 4])
def test_impossible_layouts_are_rejected(levels):
    with pytest.raises(ValueError, match="impossible numbers of levels"):
        ColumnLayout(np.array(levels))


@pytest.mark.parametrize("seed", range(4))
def test_damaged_arrays_raise_value_error_or_give_numbers(seed):
    """Compiled code checks no indices: whatever is accepted stays within the arrays."""
    rng = np.random.default_rng(seed)
    stored = io.BytesIO(dumps(CostSensitiveClassifier(by_sets(), np.ones(1))))
    arrays, names = dict(np.load(stored)), ["int64", "bool"]
    extremes = np.array([-(2**63), -2, -1, 0, 1, 2, 5, 6, 7, 2**31, 2**32, 2**62, 2**63 - 1])
    accepted = 0
    for _ in range(100):
        damaged = {name: array.copy() for name, array in arrays.items()}
        for _ in range(rng.integers(1, 3)):
            array = damaged[names[rng.integers(len(names))]]
            array.flat[rng.integers(array.size)] = extremes[rng.integers(len(extremes))]
        try:
            model = loads(archive(**damaged))
        except ValueError:
            continue
        accepted += 1
        found = model.score(np.resize(FEATURES, (5, model.width)))
        assert found.shape == (5,)
    assert accepted
