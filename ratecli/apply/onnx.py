"""Classifiers as ONNX graphs from the columns of a table to decisions, in 64-bit floats."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.apply.formats import is_regression, refusal
from ratecli.apply.predict import StoredModel
from ratecli.datasets.columns import MISSING_CATEGORY
from ratecli.datasets.encode import OneHotBlock
from ratecli.models import composed as mc
from ratecli.models.base import Classifier
from ratecli.models.layout import NUMBER
from ratecli.models.linear import LinearRegressor, Threshold
from ratecli.models.probabilities import FactoredModel, ProbabilityModel, SklearnModel
from ratecli.models.trees import LEAF, NO_SET, TreeEnsemble
from ratecli.rates.parser import parse_conditions
from ratecli.rates.syntax import AnyOf, Clause, parse_number

ML = "ai.onnx.ml"
OPSETS = {"": 18, ML: 5}
SKLEARN_OPSETS = {"": 18, ML: 3}
"""The latest that skl2onnx writes; its nodes are the same in `OPSETS`."""
IR_VERSION = 9
AT_MOST, MEMBER = 0, 6
"""Numbers of two comparisons at a node, as the operator `TreeEnsemble` defines them."""
MAX_DIFFERENCE = 1e-8
"""Largest difference of a score that skl2onnx computes from scikit-learn's."""
COMPARISONS = {"<": "Less", "<=": "LessOrEqual", ">": "Greater", ">=": "GreaterOrEqual"}


def onnx_bytes(model: StoredModel) -> bytes:
    """Return a model as an ONNX file.

    Each column of the table is an input (n, 1), doubles for numbers (NaN if missing) and strings
    for text ("" if missing). The outputs are `decision` (n,), 1 or 0, and `score` (n,); that of a
    regressor is `estimate` (n,). An output with the name of a column has `_` appended.

    Raises
    ------
    FaultError
        E104 for a model that cannot be converted.
    ImportError
        If a package of the extra `onnx` is not installed.
    """
    return _Graph(model).file()


class _Graph:
    """A graph that grows by nodes; values are named by numbers."""

    def __init__(self, model: StoredModel) -> None:
        from onnx import TensorProto, helper  # noqa: PLC0415  an optional package

        self.helper: Any = helper
        self.types: Any = TensorProto
        self.model = model
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []
        self.kinds = model.encoding.columns_for(model.classifier)
        self.known: dict[int, str] = {}
        """Probabilities by the identity of their model, which members of a vote may share."""
        self.columns, self.features = self._encoded()

    def file(self) -> bytes:
        helper, types, classifier = self.helper, self.types, self.model.classifier
        if is_regression(classifier):
            outputs = {"estimate": self._estimate(classifier)}
        else:
            decision, score = self.classified(classifier)
            outputs = {"decision": self.add("Cast", decision, to=types.INT64), "score": score}
        shown = []
        for name, value in outputs.items():
            names = (name + "_" * k for k in itertools.count())
            free = next(each for each in names if each not in self.kinds)
            flat = self.add("Reshape", value, self.constant(np.array([-1])))
            self.nodes.append(helper.make_node("Identity", [flat], [free]))
            kind = types.INT64 if name == "decision" else types.DOUBLE
            shown.append(helper.make_tensor_value_info(free, kind, [None]))
        inputs = [
            helper.make_tensor_value_info(
                name, types.STRING if kind == "text" else types.DOUBLE, [None, 1]
            )
            for name, kind in self.kinds.items()
        ]
        graph = helper.make_graph(self.nodes, "classifier", inputs, shown, self.tensors)
        opsets = [helper.make_opsetid(*each) for each in OPSETS.items()]
        made = helper.make_model(graph, opset_imports=opsets, producer_name="ratecli")
        made.ir_version = IR_VERSION
        made.doc_string = self.model.title
        return bytes(made.SerializeToString())

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = f"/{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, values: NDArray[Any]) -> str:
        from onnx import numpy_helper  # noqa: PLC0415

        name = f"/constant {len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(values, name))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, dtype=np.float64))

    def matrix(self, values: Any, *, column: bool = False) -> str:
        """Return numbers as a row (1, k) or a column (k, 1)."""
        found = np.asarray(values, dtype=np.float64)
        return self.constant(found.reshape((-1, 1) if column else (1, -1)))

    def joined(self, parts: Sequence[str]) -> str:
        return self.add("Concat", *parts, axis=1)

    def double(self, value: str) -> str:
        return self.add("Cast", value, to=self.types.DOUBLE)

    # columns

    def _encoded(self) -> tuple[str, str]:
        """Return columns (n, C) as `ColumnLayout.columns` does, and features (n, d)."""
        columns, features = [], []
        for block in self.model.encoding.encoder.blocks:
            if isinstance(block, OneHotBlock):
                codes = self.looked_up(block.column, _level_codes(block), np.nan)
                places = self.matrix(np.arange(len(block.levels)))
                columns.append(codes)
                features.append(self.double(self.add("Equal", codes, places)))
                continue
            centred = self.add("Sub", block.column, self.number(block.mean))
            value = self.add("Div", centred, self.number(block.scale))
            missing = self.add("IsNaN", value)
            known = self.add("Where", missing, self.number(0.0), value)
            columns.append(value if block.missing or block.required else known)
            features.append(value if block.required else known)
            features += [self.double(missing)] if block.missing else []
        found = self.joined(features)
        if (kernel := self.model.encoding.encoder.kernel) is None:
            return self.joined(columns), found
        sampler = kernel.sampler(sum(len(b.names) for b in self.model.encoding.encoder.blocks))
        turned = self.add("MatMul", found, self.constant(sampler.random_weights_))
        moved = self.add("Add", turned, self.matrix(sampler.random_offset_))
        waves = self.add("Mul", self.add("Cos", moved), self.number((2 / kernel.components) ** 0.5))
        return waves, waves

    def looked_up(self, column: str, values: Mapping[str, float], other: float) -> str:
        """Return (n, 1) the number of each text, `other` for a text without one."""
        tensor, types = self.helper.make_tensor, self.types
        size, keys = [len(values)], [text.encode() for text in values]
        return self.add(
            "LabelEncoder",
            column,
            domain=ML,
            keys_tensor=tensor("keys", types.STRING, size, keys),
            values_tensor=tensor("values", types.DOUBLE, size, list(values.values())),
            default_tensor=tensor("default", types.DOUBLE, [1], [other]),
        )

    def _group_thresholds(self, classifier: mc.GroupThreshold) -> str:
        """Return (n, 1) the threshold of each row's group, as `GroupThreshold.shifted` does."""
        members = self.joined([self._members(text) for text in classifier.slices])
        signs = self.constant(np.where(classifier.groups, -1.0, 1.0).T)
        sizes = self.matrix(classifier.groups.sum(axis=1))
        apart = self.add("Add", self.add("MatMul", members, signs), sizes)
        own = self.double(self.add("Less", apart, self.number(0.5)))
        return self.add("MatMul", own, self.matrix(classifier.thresholds, column=True))

    def _members(self, text: str) -> str:
        """Return (n, 1) whether rows are in a slice, 1 or 0."""
        first, *others = [self._holds(condition) for condition in parse_conditions(text)]
        for other in others:
            first = self.add("Mul", first, other)
        return first

    def _holds(self, condition: Clause) -> str:
        """Return (n, 1) whether a condition holds, 1 or 0; for a missing value it does not."""
        if isinstance(condition, AnyOf):
            return self.add("Max", *map(self._holds, condition.atoms))
        column, equal = condition.column, condition.op == "="
        if self.kinds[column] == "text":
            if condition.op in COMPARISONS:
                raise refusal(self.model.classifier, "onnx", "a comparison of dates or codes")
            values = {str(value): float(equal) for value in condition.values}
            return self.looked_up(column, {"": 0.0, **values}, float(not equal))
        numbers = self.matrix([parse_number(value) for value in condition.values])
        if condition.op in COMPARISONS:
            return self.double(self.add(COMPARISONS[condition.op], column, numbers))
        same = self.double(self.add("Equal", column, numbers))
        found = self.add("ReduceMax", same, self.constant(np.array([1])))
        known = self.double(self.add("Equal", column, column))  # NaN differs from itself
        return found if equal else self.add("Sub", known, found)

    # classifiers

    def classified(self, classifier: Classifier) -> tuple[str, str]:
        """Return the decisions (n, 1), 1 or 0, and the scores (n, 1) of a classifier."""
        if not isinstance(classifier, mc.MajorityVote):
            score = self.score(classifier)
            return self.double(self.add("Greater", score, self.number(0.0))), score
        members = [self.classified(member) for member in classifier.members]
        chances = self.matrix(classifier.chances, column=True)
        votes, score = (
            self.add("MatMul", self.joined(parts), chances) for parts in zip(*members, strict=True)
        )
        return self.double(self.add("Greater", votes, self.number(0.5))), score

    def _estimate(self, regressor: Classifier) -> str:
        """Return the estimates (n, 1) of a regressor, or of the mean of several."""
        match regressor:
            case LinearRegressor():
                found = self._line(regressor)
            case mc.ModelRegressor(values=TreeEnsemble() as trees):
                found = self.probabilities(trees)
            case mc.MixtureClassifier(members=members, chances=chances):
                parts = self.joined([self._estimate(each) for each in members])
                return self.add("MatMul", parts, self.matrix(chances, column=True))
            case _:
                raise refusal(self.model.classifier, "onnx")
        return self.add("Clip", found, *map(self.number, regressor.range))

    def score(self, classifier: Classifier) -> str:
        """Return the scores (n, 1) of a classifier that is positive where they are."""
        match classifier:
            case Threshold():
                return self._line(classifier)
            case mc.CostSensitiveClassifier(chances=model, costs=costs, cut=cut):
                gains = -costs
            case mc.GroupThreshold(scorer=scorer):
                score = self.score(scorer)
                if not len(classifier.groups):
                    return score
                return self.add("Sub", score, self._group_thresholds(classifier))
            case _:
                raise refusal(classifier, "onnx")
        gain = self.add("MatMul", self.probabilities(model), self.matrix(gains, column=True))
        return self.add("Sub", gain, self.number(cut))

    def _line(self, model: Threshold | LinearRegressor) -> str:
        product = self.add("MatMul", self.features, self.matrix(model.weights, column=True))
        return self.add("Add", product, self.number(model.bias))

    def probabilities(self, model: ProbabilityModel) -> str:
        """Return what `model.probabilities` does, (n, Q)."""
        if id(model) not in self.known:
            match model:
                case TreeEnsemble():
                    found = self.joined([self._leaf_sums(model, q) for q in range(model.classes)])
                    found = self.add("Softmax", found, axis=1) if model.softmax else found
                case SklearnModel():
                    found = self._fitted(model)
                case FactoredModel():
                    found = self._factored(model)
            self.known[id(model)] = found
        return self.known[id(model)]

    def _factored(self, model: FactoredModel) -> str:
        labels = self.probabilities(model.labels)
        ones = self.add("Pow", self._gathered(labels, np.zeros(1)), self.number(0.0))
        given = self.joined([ones, *map(self.probabilities, model.parts)])
        label = self._gathered(labels, model.label)
        return self.add("Mul", label, self._gathered(given, model.column))

    def _gathered(self, values: str, columns: NDArray[Any]) -> str:
        return self.add("Gather", values, self.constant(columns.astype(np.int64)), axis=1)

    def _leaf_sums(self, model: TreeEnsemble, q: int) -> str:
        """Return (n, 1) sums of leaf values of class q."""
        leaf = model.column == LEAF
        # columns as they are in the table, or one for each feature
        columns = self.columns if (model.layout.levels != NUMBER).any() else self.features
        if model.rounded:
            columns = self.double(self.add("Cast", columns, to=self.types.FLOAT))
        values = model.values[leaf, q]
        weights = self.helper.make_tensor("leaves", self.types.DOUBLE, [len(values)], values)
        sums = self.add(
            "TreeEnsemble",
            columns,
            domain=ML,
            n_targets=1,
            leaf_targetids=[0] * len(values),
            leaf_weights=weights,
            **self._tree_nodes(model),
        )
        return self.add("Add", sums, self.number(model.start[q]))

    def _tree_nodes(self, model: TreeEnsemble) -> dict[str, Any]:
        """Return the attributes of `TreeEnsemble` for nodes; it counts leaves apart from others.

        A root that is a leaf gets a node above it, with the leaf as both children.
        """
        leaf = model.column == LEAF
        place = np.where(leaf, np.cumsum(leaf), np.cumsum(~leaf)) - 1
        lone = model.roots[leaf[model.roots]]
        inner, count = np.flatnonzero(~leaf), int((~leaf).sum())
        roots = place[model.roots]
        roots[leaf[model.roots]] = count + np.arange(len(lone))
        children = np.vstack([model.children[inner], np.repeat(lone[:, None], 2, axis=1)])
        nodes = np.append(inner, np.full(len(lone), -1))
        tests = [_node_test(model, node) for node in nodes.tolist()]
        members = [each for _, _, levels in tests if levels for each in (*levels, np.nan)]
        tensor, types, size = self.helper.make_tensor, self.types, [len(nodes)]
        found = {
            "tree_roots": roots.tolist(),
            "nodes_featureids": np.where(nodes < 0, 0, model.column[nodes]).tolist(),
            "nodes_modes": tensor("modes", types.UINT8, size, [mode for mode, _, _ in tests]),
            "nodes_splits": tensor("splits", types.DOUBLE, size, [cut for _, cut, _ in tests]),
            "nodes_missing_value_tracks_true": (~model.missing_second[nodes]).astype(int).tolist(),
        }
        for k, way in enumerate(("true", "false")):
            found[f"nodes_{way}nodeids"] = place[children[:, k]].tolist()
            found[f"nodes_{way}leafs"] = leaf[children[:, k]].astype(int).tolist()
        if members:
            found["membership_values"] = tensor("sets", types.DOUBLE, [len(members)], members)
        return found

    def _fitted(self, fitted: SklearnModel) -> str:
        """Return the outputs of another classifier of scikit-learn, by skl2onnx."""
        from onnx import compose  # noqa: PLC0415
        from skl2onnx import to_onnx  # noqa: PLC0415
        from skl2onnx.common.data_types import DoubleTensorType  # noqa: PLC0415

        model, prefix = fitted.model, f"/{len(self.nodes)} "
        options = {"zipmap": False} | ({} if fitted.has_probabilities else {"raw_scores": True})
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about scikit-learn's later versions
                made = to_onnx(
                    model,
                    initial_types=[("X", DoubleTensorType([None, fitted.width]))],
                    options={id(model): options},
                    target_opset=SKLEARN_OPSETS,
                )
        except Exception as error:  # skl2onnx raises any kind
            what = f"a {type(model).__name__}, which skl2onnx does not convert"
            raise refusal(self.model.classifier, "onnx", what) from error
        # some converters round to 32 bits, or give another kind of score
        if not _largest_difference(made.SerializeToString(), fitted) <= MAX_DIFFERENCE:
            what = f"a {type(model).__name__}, which skl2onnx does not convert exactly"
            raise refusal(self.model.classifier, "onnx", what)
        graph = compose.add_prefix_graph(made.graph, prefix)
        self.nodes.append(self.helper.make_node("Identity", [self.features], [f"{prefix}X"]))
        self.nodes += graph.node
        self.tensors += graph.initializer
        return self.double(graph.output[1].name)


def _largest_difference(onnx: bytes, fitted: SklearnModel) -> float:
    """Return the largest difference of outputs from scikit-learn's on 1,000 random rows."""
    from onnxruntime import InferenceSession  # noqa: PLC0415  an optional package

    X = np.random.default_rng(0).normal(size=(1000, fitted.width))
    X[::2] = X[::2] > 0  # as categories are
    session = InferenceSession(onnx, providers=["CPUExecutionProvider"])
    return float(np.abs(session.run(None, {"X": X})[1] - fitted.probabilities(X)).max())


def _level_codes(block: OneHotBlock) -> dict[str, float]:
    """Return the index of each level; a missing text is "" or the level's name."""
    codes = {level: float(k) for k, level in enumerate(block.levels)}
    return {"": codes[MISSING_CATEGORY], **codes} if MISSING_CATEGORY in codes else codes


def _node_test(model: TreeEnsemble, node: int) -> tuple[int, float, list[float]]:
    """Return the code of a node's test, its threshold and its set; -1 is any test."""
    if node < 0 or (start := int(model.set_at[node])) == NO_SET:
        return AT_MOST, 0.0 if node < 0 else float(model.threshold[node]), []
    count = int(model.layout.levels[model.column[node]])
    levels = np.flatnonzero(model.sets[start : start + count]).astype(float).tolist()
    return (MEMBER, 0.0, levels) if levels else (AT_MOST, -1.0, [])  # codes are at least 0
