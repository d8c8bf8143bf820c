"""Decisions by expected cost, on trees stored as arrays and on what skops stores."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import skops.io
from scipy import sparse
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from ratecli.models.composed import ARGMAX_COSTS, CostSensitiveClassifier
from ratecli.models.probabilities import LEAF, SklearnModel, TreeEnsemble, dump_skops, load_skops
from ratecli.models.storage import dumps, loads, model_arrays


def two_trees(**changes) -> TreeEnsemble:
    """x0 <= 1 ? a : (x1 <= 0 ? b : c), and a lone leaf."""
    found = TreeEnsemble(
        width=2,
        roots=np.array([0, 5]),
        feature=np.array([0, LEAF, 1, LEAF, LEAF, LEAF]),
        threshold=np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        children=np.array([[1, 2], [0, 0], [3, 4], [0, 0], [0, 0], [0, 0]]),
        values=np.array([[9, 9], [0.1, 0.2], [9, 9], [0.3, 0.4], [0.5, 0.6], [1.0, 2.0]]),
        start=np.array([10.0, 20.0]),
    )
    return replace(found, **changes)


ROWS = np.array([[1.0, 5.0], [1.5, 0.0], [1.5, 0.1]])
SUMS = np.array([[11.1, 22.2], [11.3, 22.4], [11.5, 22.6]])


def rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3)).round(1)
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def test_tree_ensemble_sums_leaf_values():
    np.testing.assert_allclose(two_trees().probabilities(ROWS), SUMS)
    np.testing.assert_array_equal(
        two_trees().probabilities(sparse.csr_array(ROWS)), two_trees().probabilities(ROWS)
    )
    assert two_trees().probabilities(np.zeros((0, 2))).shape == (0, 2)
    odds = np.exp(SUMS[:, 1] - SUMS[:, 0])
    np.testing.assert_allclose(two_trees(softmax=True).probabilities(ROWS)[:, 1], odds / (1 + odds))


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
        {"feature": np.array([0, LEAF, 2, LEAF, LEAF, LEAF])},
        {"feature": np.array([0, -2, 1, LEAF, LEAF, LEAF])},
        {"roots": np.array([0, 6])},
        {"values": np.zeros((6, 3))},
        {"threshold": np.zeros(5)},
    ],
)
def test_invalid_tree_nodes_are_rejected(changes):
    with pytest.raises(ValueError, match="are not trees"):
        two_trees(**changes)
    arrays = model_arrays(CostSensitiveClassifier(two_trees(), ARGMAX_COSTS))
    changed = arrays | {f"chances.{name}": array for name, array in changes.items()}
    with pytest.raises(ValueError, match="are not trees"):
        loads(npz(**changed))


def npz(**arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_cost_sensitive_decision_is_positive_if_cost_is_below_the_cut():
    costs = np.array([2.0, -1.0])
    model = CostSensitiveClassifier(two_trees(), costs)
    assert model.score(ROWS) == pytest.approx(SUMS @ [-2.0, 1.0])
    np.testing.assert_array_equal(replace(model, cut=-0.1).decide(ROWS), [1, 0, 0])
    np.testing.assert_array_equal(replace(model, cut=-1.0).estimate(ROWS), [1, 1, 1])
    with pytest.raises(ValueError, match="3 costs of 2 classes"):
        CostSensitiveClassifier(two_trees(), np.ones(3))


def test_skops_bytes_do_not_depend_on_memory_addresses():
    X, y = rows()
    one, other = (SklearnModel(GaussianNB().fit(X.copy(), y.copy())) for _ in range(2))
    assert dumps(CostSensitiveClassifier(one, ARGMAX_COSTS)) == dumps(
        CostSensitiveClassifier(other, ARGMAX_COSTS)
    )


def rewritten(blob: bytes, change) -> bytes:
    """A skops file with another schema."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(blob)) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, change(data.decode()) if name == "schema.json" else data)
    return buffer.getvalue()


def test_untrusted_types_are_rejected():
    X, y = rows()
    tree = DecisionTreeClassifier().fit(X, y)
    with pytest.raises(ValueError, match=r"not trusted: sklearn.tree._tree.Tree"):
        dump_skops(tree)
    with pytest.raises(ValueError, match="not trusted"):
        load_skops(skops.io.dumps(tree))
    bayes = dump_skops(GaussianNB().fit(X, y))
    trap = rewritten(bayes, lambda text: text.replace('"GaussianNB"', '"Popen"', 1).replace(
        '"sklearn.naive_bayes"', '"subprocess"', 1))  # fmt: skip
    with pytest.raises(ValueError, match=r"not trusted: subprocess.Popen"):
        load_skops(trap)
    arrays = {"kind": "weighed", "costs": ARGMAX_COSTS, "cut": 0.0, "chances.kind": "fitted"}
    stored = npz(**arrays, **{"chances.skops": np.frombuffer(trap, dtype=np.uint8)})
    with pytest.raises(ValueError, match="not trusted"):
        loads(stored)


def test_non_classifiers_and_other_versions_are_rejected():
    X, y = rows()
    blob = dump_skops(GaussianNB().fit(X, y))
    with pytest.raises(ValueError, match="not a fitted classifier"):
        load_skops(dump_skops(GaussianNB()))
    with pytest.raises(ValueError, match="not a fitted classifier"):
        load_skops(dump_skops({"a": 1}))
    old = rewritten(
        blob, lambda text: text.replace(json.dumps(json.dumps(version())), '"\\"0.1\\""')
    )
    with pytest.raises(ValueError, match=r"stored by scikit-learn 0\.1, but"):
        load_skops(old)


def version() -> str:
    import sklearn  # noqa: PLC0415

    return sklearn.__version__


@pytest.mark.parametrize("seed", range(40))
def test_corrupt_schema_raises_only_value_error(seed):
    X, y = rows()
    model = GaussianNB().fit(X, y)
    rng = np.random.default_rng(seed)

    def broken(text: str) -> str:
        letters = list(text)
        for _ in range(2):
            letters[rng.integers(len(letters))] = rng.choice(list('0123456789"{}[]:,aN'))
        return "".join(letters)

    skops_bytes = rewritten(dump_skops(model), broken)
    arrays = {"kind": "weighed", "costs": ARGMAX_COSTS, "cut": 0.0, "chances.kind": "fitted"}
    try:
        loads(npz(**arrays, **{"chances.skops": np.frombuffer(skops_bytes, dtype=np.uint8)}))
    except ValueError:
        return
