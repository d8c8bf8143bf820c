"""The columns of a table that a model's file names, and the codes of their categories."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ratecli.models.layout import NUMBER, ColumnLayout
from ratecli.models.tree_formats.arrays import integers, parsing, require
from ratecli.models.tree_formats.lightgbm import text_fields

CUT = "surrogateescape"
"""How Python represents bytes that are no character."""


@dataclass(frozen=True)
class FileColumn:
    """A column of a table as a model takes it.

    Attributes
    ----------
    name
        Its name.
    levels
        `NUMBER`, or the number of codes of a category, as in `ColumnLayout`.
    words
        The value that each code from 0 stands for, None if the table has numbers or codes.
    unknown
        What the library makes of other values of a category: they are missing, one more code, the
        last one, or refused.
    used
        Whether the model may use it.
    """

    name: str
    levels: int = NUMBER
    words: tuple[Any, ...] | None = None
    unknown: Literal["missing", "last", "refused"] = "missing"
    used: bool = True


def layout_of(columns: list[FileColumn]) -> ColumnLayout:
    """Return the layout of the columns; raise ValueError if one has too many levels."""
    return ColumnLayout(np.array([column.levels for column in columns], dtype=np.intp))


def lightgbm_columns(text: str, is_text: Callable[[str], bool]) -> list[FileColumn]:
    """Return the columns of a text of LightGBM; `is_text` says which ones hold text in the table.

    The text does not name the columns of its lists of categories. They are, in the order of the
    columns, those that the trees use as categories, and other columns of text, such as ordered
    categories.

    Raises
    ------
    ValueError
        If the text is not LightGBM's, or has lists of categories for other columns.
    """
    with parsing("LightGBM"):
        fields = text_fields(text.partition("\nTree=")[0])
        names, ranges = (fields[key].split() for key in ("feature_names", "feature_infos"))
        require(len(names) == len(ranges), "names of other columns")
        coded = [text != "none" and not text.startswith("[") for text in ranges]
        _, found, stated = text.rpartition("\npandas_categorical:")
        lists = (json.loads(stated) if found else None) or []
        own = [k for k, name in enumerate(names) if coded[k] or is_text(name)] if lists else []
        require(len(own) == len(lists), f"{len(lists)} lists of categories for {len(own)} columns")
        words = {k: tuple(listed) for k, listed in zip(own, lists, strict=True)}
        columns = []
        for k, name in enumerate(names):
            codes = [int(code) for code in ranges[k].split(":")] if coded[k] else []
            count = max([len(words.get(k, ())), *(code + 1 for code in codes)])
            levels = count if coded[k] else NUMBER
            columns.append(FileColumn(name, levels, words.get(k), used=ranges[k] != "none"))
        return columns


def xgboost_columns(content: bytes) -> list[FileColumn]:
    """Return the columns of XGBoost's JSON.

    Before version 3.1 it does not say what the codes of categories stand for.

    Raises
    ------
    ValueError
        If it is not XGBoost's, or does not name its columns.
    """
    with parsing("XGBoost"):
        learner = json.loads(content)["learner"]
        names, kinds = learner["feature_names"], learner["feature_types"]
        require(names, "it does not name its columns, as a model trained on a DataFrame does")
        require(all(isinstance(name, str) for name in names), "a name is not text")
        booster = learner["gradient_booster"]
        model = booster.get("gbtree", booster)["model"]
        listed = model.get("cats", {}).get("enc") or [{}] * len(names)
        most = max((max(tree["categories"], default=0) for tree in model["trees"]), default=0)
        columns = []
        for name, kind, stated in zip(names, kinds, listed, strict=True):
            words = _category_words(stated) if kind == "c" else None
            if kind != "c":
                columns.append(FileColumn(name))
            elif words:
                columns.append(FileColumn(name, len(words), words, "refused"))
            else:
                columns.append(FileColumn(name, int(most) + 2, None, "last"))
        return columns


def cut_word(word: str) -> str:
    """Return a word as XGBoost 3.2 writes it."""
    return word.encode(errors=CUT)[: len(word)].decode(errors=CUT)


def _category_words(stated: dict[str, Any]) -> tuple[Any, ...]:
    """Return the categories of a column: numbers, or words in one list of UTF-8 bytes.

    XGBoost 3.2 cuts a word of n characters after n bytes (see `cut_word`).
    """
    values = stated.get("values", [])
    if "offsets" not in stated:
        return tuple(values)
    text, ends = bytes(value & 255 for value in values), integers(stated["offsets"]).tolist()
    return tuple(text[a:b].decode(errors=CUT) for a, b in pairwise(ends))
