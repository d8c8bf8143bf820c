"""Stored classifiers as files that need no ratecli: JSON, scikit-learn and ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ratecli.apply.export.as_json import json_bytes
from ratecli.apply.export.as_onnx import onnx_bytes
from ratecli.apply.export.as_sklearn import sklearn_bytes
from ratecli.apply.predict import StoredModel, load_applicable_model
from ratecli.datasets.columns import MISSING_CATEGORY
from ratecli.datasets.encode import OneHotBlock
from ratecli.errors import Diagnostic, FaultError
from ratecli.files import atomic_write
from ratecli.rates.syntax import parse_number


class ModelFormat(NamedTuple):
    """The suffix of a format's files, and the function that makes their content."""

    suffix: str
    content: Callable[[StoredModel], bytes]


FORMATS = {
    "sklearn": ModelFormat(".skops", sklearn_bytes),
    "onnx": ModelFormat(".onnx", onnx_bytes),
    "json": ModelFormat(".json", json_bytes),
}


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
    model, made = load_applicable_model(path, variant), FORMATS[form]
    try:
        content = made.content(model)
    except ImportError as error:
        message = f"ONNX files need {error.name}, which is not installed"
        raise FaultError(Diagnostic("E202", message, "pip install 'ratecli[onnx]'")) from None
    place = output or Path(f"{model.folder}{made.suffix}")
    atomic_write(place, content)
    types = _pandas_types(model) if form == "sklearn" else []
    predicts = [f"predicts {model.predicts}"] if model.predicts else []
    return "\n".join([f"{place}: {model.which}", *_inputs(model), *predicts, *types])


def _pandas_types(model: StoredModel) -> list[str]:
    """Return how to read the text columns that pandas would read as numbers or truth values."""
    guessed = [
        block.column
        for block in model.encoding.encoder.blocks
        if isinstance(block, OneHotBlock)
        and all(
            math.isfinite(parse_number(level)) or level.casefold() in {"true", "false"}
            for level in block.levels
            if level != MISSING_CATEGORY
        )
    ]
    types = ", ".join(f"{name!r}: str" for name in guessed)
    return [f"with pandas: read_csv(FILE, dtype={{{types}}})"] if guessed else []


def _inputs(model: StoredModel) -> list[str]:
    """Return the columns that a model reads, by kind."""
    kinds = model.encoding.columns_for(model.classifier)
    found = {kind: [name for name, own in kinds.items() if own == kind] for kind in kinds.values()}
    return [f"reads {kind or 'other'}: {', '.join(names)}" for kind, names in found.items()]
