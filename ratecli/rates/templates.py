"""What is made of the values of a column, one part for each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ratecli.errors import Span
from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.functions import FUNCTIONS
from ratecli.rates.table import BALANCE_METRICS, RATES, TEMPLATES

JOINT_RATE = RATES["joint_rate"]
POSITIVE_RATE = RATES["positive_rate"]
"""A share is the one of a slice over the other of all rows."""

VARIADIC_FUNCTIONS = tuple(name for name, row in FUNCTIONS.items() if row.arity is None)
"""Functions of any number of arguments: also of a metric's values, as in `min(tpr, by=sex)`."""
COLUMN_FUNCTIONS = (*TEMPLATES, *VARIADIC_FUNCTIONS, *BALANCE_METRICS)
"""All that has a `by=`."""
SINGLE_COLUMN_TEMPLATES = {"max_gap": "max", "min_ratio": "min"}
"""What compares values with each other, and which of those of two columns is then the worse."""


def apply_template(name: str, parts: Sequence[Expression], span: Span) -> Expression:
    """A template or function of one metric's parts, one for each value of a column."""
    if name in VARIADIC_FUNCTIONS:
        return ex.apply(name, tuple(parts), span)
    if name == "mean":
        return ex.divide(ex.add(*parts, span=span), ex.Constant(float(len(parts)), span), span)
    pairs = itertools.permutations(parts, 2)
    if name == "max_gap":
        return ex.apply("max", tuple(ex.subtract(a, b, span=span) for a, b in pairs), span)
    return ex.apply("min", tuple(ex.divide(a, b, span=span) for a, b in pairs), span)


def group_share(group: Leaf) -> Expression:
    """The share of a `joint_rate`'s slice among the rows decided yes."""
    return ex.divide(group, Leaf(POSITIVE_RATE, group.over, group.split, group.span), group.span)


def imbalance_expression(columns: Sequence[Sequence[Leaf]], span: Span) -> Expression:
    """Euclidean distance of the shares of each column's K groups from 1/K each.

    Of several columns that of the concatenated vectors (Deng, Diana, Kearns, Roth 2023, appendix A.2).
    """
    parts = [
        ex.subtract(group_share(group), ex.Constant(1 / len(groups), span), span)
        for groups in columns
        for group in groups
    ]
    size = ex.Constant(math.sqrt(len(parts)), span)
    return ex.multiply(size, ex.apply("rms", tuple(parts), span), span)
