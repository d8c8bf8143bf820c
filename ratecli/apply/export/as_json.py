"""Linear classifiers as readable JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from ratecli.apply.export.parts import linear_part, refusal
from ratecli.apply.predict import StoredModel
from ratecli.datasets.encode import NumericBlock, OneHotBlock
from ratecli.models.base import Array
from ratecli.models.composed import GroupThreshold
from ratecli.models.linear import LinearRegressor
from ratecli.rates.parser import parse_conditions
from ratecli.rates.syntax import AnyOf, Clause, parse_number
from ratecli.sampling.encoding import Encoding

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
