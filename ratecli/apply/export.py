"""Stored classifiers as files that need no ratecli: JSON, scikit-learn and ONNX (`apply.onnx`).

Pipelines of scikit-learn take a DataFrame and return decisions. All their steps are scikit-learn's
own, with fitted attributes set to those of the stored model, and skops stores them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ratecli.apply.formats import linear_part, refusal
from ratecli.apply.onnx import onnx_bytes
from ratecli.apply.predict import StoredModel, load_applicable_model
from ratecli.datasets.columns import MISSING_CATEGORY
from ratecli.datasets.encode import Encoder, NumericBlock, OneHotBlock
from ratecli.errors import Diagnostic, FaultError
from ratecli.files import atomic_write
from ratecli.models.base import Array, Classifier
from ratecli.models.composed import CostSensitiveClassifier, GroupThreshold
from ratecli.models.linear import LinearRegressor, Logistic, Threshold
from ratecli.models.probabilities import SklearnModel
from ratecli.rates.parser import parse_conditions
from ratecli.rates.syntax import AnyOf, Clause, parse_number
from ratecli.sampling.encoding import Encoding


def export_model(
    path: Path, form: str, output: Path | None = None, variant: str | None = None
) -> str:
    """Write the model at `path` in a format and return a text about the file.

    Parameters
    ----------
    path, variant
        As in `load_applicable_model`.
    form
        A key of `FORMATS`.
    output
        The file; None for the name of the model's folder in the current folder.

    Raises
    ------
    FaultError
        As `load_applicable_model`; E104 if the format cannot represent the model, E202 if a package
        is missing, E505 if the file cannot be written.
    """
    model, (suffix, content_of) = load_applicable_model(path, variant), FORMATS[form]
    try:
        content = content_of(model)
    except ImportError as error:
        message = f"ONNX files need {error.name}, which is not installed"
        raise FaultError(Diagnostic("E202", message, "pip install 'ratecli[onnx]'")) from None
    place = output or Path(f"{model.folder}{suffix}")
    atomic_write(place, content)
    kinds = model.encoding.columns_for(model.classifier)
    reads = {kind: [name for name in kinds if kinds[name] == kind] for kind in kinds.values()}
    lines = [f"reads {kind or 'other'}: {', '.join(names)}" for kind, names in reads.items()]
    lines += [f"predicts {model.predicts}"] if model.predicts else []
    if form == "sklearn" and "text" in reads:
        types = ", ".join(f"{name!r}: str" for name in reads["text"])
        lines.append(f"with pandas: read_csv(FILE, dtype={{{types}}})")
    return "\n".join([f"{place}: {model.which}", *lines])


NUMBER = "weight * (value - mean) / scale; `missing` where there is no number"
TEXT = (
    "weights[value]; 0 for a value that is not listed; '(missing)' stands for an empty field "
    "and for words such as NA"
)
GROUPS = (
    "the threshold of the group whose slices are exactly those that the row is in; "
    "0 if there is none"
)
SLICES = (
    "a row is in a slice if all its conditions hold; `any` holds if one of its conditions does; "
    "`is` compares the column with a value: = with any of several, != with none of them; no "
    "comparison with an empty field holds"
)


def json_bytes(model: StoredModel) -> bytes:
    """Return a linear model, with thresholds of groups if it has them, as JSON.

    Raises
    ------
    FaultError
        E104 for other models.
    """
    classifier = model.classifier
    linear = linear_part(classifier)
    if linear is None:
        raise refusal(classifier, "json")
    if model.encoding.encoder.kernel is not None:
        raise refusal(classifier, "json", "features of a kernel")
    columns, at = [], 0
    for block in model.encoding.encoder.blocks:
        own = linear.weights[at : at + len(block.names)]
        columns.append(_column(block, own))
        at += len(own)
    how = {"score": "intercept + the sum of a term for each column", "number": NUMBER, "text": TEXT}
    content: dict[str, Any] = {"intercept": linear.bias, "columns": columns}
    if isinstance(linear, LinearRegressor):
        how["estimate"] = "score"
        if any(map(math.isfinite, linear.range)):
            how["estimate"] = "score, but at least range[0] and at most range[1]"
            content["range"] = [end if math.isfinite(end) else None for end in linear.range]
    elif isinstance(classifier, GroupThreshold):
        how |= {"threshold": GROUPS, "slices": SLICES, "decision": "1 if score > threshold, else 0"}
        content |= _groups(classifier, model.encoding)
    else:
        how["decision"] = "1 if score > 0, else 0"
    titles = {"model": model.title, "predicts": model.predicts}
    text = json.dumps({**titles, "how": how, **content}, indent=1, ensure_ascii=False)
    return f"{text}\n".encode()


def _column(block: NumericBlock | OneHotBlock, weights: Array) -> dict[str, Any]:
    weight, *others = map(float, weights)
    if isinstance(block, OneHotBlock):
        named = dict(zip(block.levels, [weight, *others], strict=True))
        return {"column": block.column, "kind": "text", "weights": named}
    missing = {} if block.required else {"missing": others[0] if others else 0.0}
    term = {"mean": block.mean, "scale": block.scale, "weight": weight}
    return {"column": block.column, "kind": "number", **term, **missing}


def _clause(clause: Clause, encoding: Encoding) -> dict[str, Any]:
    """Return a comparison, or several of which at least one must hold."""
    if isinstance(clause, AnyOf):
        return {"any": [_clause(atom, encoding) for atom in clause.atoms]}
    values = list(clause.values)
    if encoding.kind(clause.column) == "number":
        values = list(map(parse_number, values))
    return {"column": clause.column, "is": clause.op, "values": values}


def _groups(classifier: GroupThreshold, encoding: Encoding) -> dict[str, Any]:
    """Return slices by name, as lists of conditions that all hold, and the groups."""
    slices = {
        text: [_clause(each, encoding) for each in parse_conditions(text)]
        for text in classifier.slices
    }
    groups = [
        {
            "slices": [text for text, own in zip(classifier.slices, row, strict=True) if own],
            "threshold": float(threshold),
        }
        for row, threshold in zip(classifier.groups, classifier.thresholds, strict=True)
    ]
    return {"slices": slices, "groups": groups}


Step = tuple[str, Any, list[str]]
"""Name, transformer and columns of a step."""


def sklearn_bytes(model: StoredModel) -> bytes:
    """Return a model as a pipeline of scikit-learn in skops' format.

    It takes a DataFrame with the table's columns; missing values are NaN. Decisions are 1 or 0.

    Raises
    ------
    FaultError
        E104 for models that are neither linear nor scikit-learn's own, and for thresholds of groups
        that are not values of one column.
    """
    from skops.io import dumps  # noqa: PLC0415  slow

    return bytes(dumps(_pipeline(model)))


def _pipeline(model: StoredModel) -> Any:
    from sklearn.pipeline import Pipeline  # noqa: PLC0415  slow

    classifier, encoder, more = model.classifier, model.encoding.encoder, list[Step]()
    linear = linear_part(classifier)
    if linear is None:
        last = _fitted(classifier)
    elif isinstance(classifier, GroupThreshold):
        more, weights, bias = _value_weights(model, classifier)
        last = _linear(linear, np.append(linear.weights, weights), linear.bias + bias)
    else:
        last = _linear(linear, linear.weights, linear.bias)
    steps = [("features", _features(encoder, more))]
    if encoder.kernel is not None:
        steps.append(("kernel", _kernel(encoder, last.n_features_in_)))
    return Pipeline([*steps, ("decision", last)])


def _kernel(encoder: Encoder, count: int) -> Any:
    """Return the transformer of encoded columns and further features to `count` features."""
    from sklearn.compose import ColumnTransformer  # noqa: PLC0415

    assert encoder.kernel is not None
    width = sum(len(block.names) for block in encoder.blocks)
    steps = [("kernel", encoder.kernel.sampler(width), np.arange(width).tolist())]
    found = ColumnTransformer(steps, remainder="passthrough")
    return found.fit(np.zeros((1, width + count - encoder.kernel.components)))


def _linear(model: Threshold | LinearRegressor, weights: Array, bias: float) -> Any:
    from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: PLC0415
    from sklearn.svm import LinearSVC  # noqa: PLC0415

    if isinstance(model, LinearRegressor):
        if any(map(math.isfinite, model.range)):
            raise refusal(model, "sklearn")
        found = LinearRegression()
        found.coef_, found.intercept_ = weights, bias
    else:
        found = LogisticRegression() if isinstance(model, Logistic) else LinearSVC()
        found.coef_, found.intercept_ = weights[None, :], np.array([bias])
        found.classes_ = np.array([0, 1])
    found.n_features_in_ = len(weights)
    return found


def _fitted(classifier: Classifier) -> Any:
    """Return one of scikit-learn's classifiers with a threshold on its score."""
    from sklearn.model_selection import FixedThresholdClassifier  # noqa: PLC0415

    match classifier:
        case CostSensitiveClassifier(chances=SklearnModel() as fitted, costs=costs, cut=cut) if (
            len(costs) == 2 and costs[0] > costs[1]
        ):
            # p (costs[0] - costs[1]) > costs[0] + cut; scores -s and s stand for 1 - p and p
            cut = (cut + costs[0] * fitted.has_probabilities) / (costs[0] - costs[1])
        case _:
            raise refusal(classifier, "sklearn")
    found = FixedThresholdClassifier(
        fitted.model,
        # it is positive from its threshold on, ratecli above it
        threshold=float(np.nextafter(cut, np.inf)),
        pos_label=1,
        response_method="predict_proba" if fitted.has_probabilities else "decision_function",
    )
    found.estimator_ = fitted.model
    return found


def _value_weights(
    model: StoredModel, classifier: GroupThreshold
) -> tuple[list[Step], Array, float]:
    """Return a step that encodes a group's value, the weight of each value, and their bias.

    Raises E104 unless each slice consists of own values of the same column.
    """
    slices = [parse_conditions(text) for text in classifier.slices]
    conditions = [atom for slice_ in slices for clause in slice_ for atom in clause.atoms]
    columns = {each.column for each in conditions}
    values = [value for each in conditions for value in each.values]
    plain = len(columns) == 1 and len(conditions) == len(slices)
    if not plain or {each.op for each in conditions} != {"="} or len(set(values)) < len(values):
        raise refusal(classifier, "sklearn", "thresholds of groups of several columns or of ranges")
    thresholds = {
        tuple(row): float(threshold)
        for row, threshold in zip(classifier.groups.tolist(), classifier.thresholds, strict=True)
    }
    without = thresholds.get((False,) * len(slices), 0.0)
    (column,) = columns
    convert = str if model.encoding.kind(column) == "text" else parse_number
    weights: dict[Any, float] = {}
    for k, condition in enumerate(conditions):
        own = thresholds.get(tuple(place == k for place in range(len(slices))), 0.0)
        weights |= {convert(value): without - own for value in condition.values}
    known = sorted(weights)  # as the encoder requires of numbers
    step = "group", _one_hot([known]), [column]
    return [step], np.array([weights[value] for value in known]), -without


def _features(encoder: Encoder, more: list[Step]) -> Any:
    """Return the transformer of columns to features in the encoder's order, and further steps."""
    from sklearn.compose import ColumnTransformer  # noqa: PLC0415

    steps, example = list[Step](), dict[str, list[Any]]()
    numeric: dict[str, list[NumericBlock]] = {}
    for number, (_, group) in enumerate(groupby(encoder.blocks, _step_key)):
        blocks = list(group)
        name, columns = f"columns {number}", [block.column for block in blocks]
        texts = [block for block in blocks if isinstance(block, OneHotBlock)]
        numbers = [block for block in blocks if isinstance(block, NumericBlock)]
        step = _texts([list(block.levels) for block in texts]) if texts else _numbers(numbers[0])
        steps.append((name, step, columns))
        example |= {block.column: [block.levels[0]] * 2 for block in texts}
        example |= {b.column: [b.mean, np.nan if b.missing else b.mean] for b in numbers}
        numeric |= {name: numbers} if numbers else {}
    for _, step, (column,) in more:
        example.setdefault(column, step.categories[0][:1] * 2)
    found = ColumnTransformer([*steps, *more], sparse_threshold=0.0)
    found.fit(pd.DataFrame(example))
    for name, numbers in numeric.items():
        scaler = found.named_transformers_[name][0]
        scaler.mean_ = np.array([block.mean for block in numbers])
        scaler.scale_ = np.array([block.scale for block in numbers])
        scaler.var_ = scaler.scale_**2
    return found


def _step_key(block: NumericBlock | OneHotBlock) -> tuple[bool, bool, str]:
    """Return a key that neighbouring columns share if one step encodes them, in their order."""
    if isinstance(block, OneHotBlock):
        return True, MISSING_CATEGORY in block.levels, ""
    return False, block.required, block.column if block.missing else ""


def _numbers(block: NumericBlock) -> Any:
    from sklearn.impute import SimpleImputer  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    if block.required:
        return make_pipeline(StandardScaler())
    filled = SimpleImputer(strategy="constant", fill_value=0.0, add_indicator=block.missing)
    return make_pipeline(StandardScaler(), filled)


def _texts(levels: list[list[str]]) -> Any:
    from sklearn.impute import SimpleImputer  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415

    if MISSING_CATEGORY not in levels[0]:
        return make_pipeline(_one_hot(levels))
    filled = SimpleImputer(strategy="constant", fill_value=MISSING_CATEGORY)
    return make_pipeline(filled, _one_hot(levels))


def _one_hot(categories: list[list[Any]]) -> Any:
    from sklearn.preprocessing import OneHotEncoder  # noqa: PLC0415

    return OneHotEncoder(categories=categories, handle_unknown="warn", sparse_output=False)


FORMATS: dict[str, tuple[str, Callable[[StoredModel], bytes]]] = {
    "sklearn": (".skops", sklearn_bytes),
    "onnx": (".onnx", onnx_bytes),
    "json": (".json", json_bytes),
}
"""The suffix of each format's files, and the function that makes their content."""
