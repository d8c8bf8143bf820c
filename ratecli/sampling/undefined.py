"""Rates and ratios that say nothing on the training rows, whatever is decided.

A rate of no rows has no value. A ratio has none where its bottom is 0: that is found here where it is so
for every classifier, or where the top is always 0 and the bottom can be, as for the F-measure of a group
without positive rows. Where only some classifiers make a bottom 0 (the precision of one that says yes to
nobody), the ratio is measured as NaN there, and a constraint on it does not count as met.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ratecli.errors import Diagnostic
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine, affine
from ratecli.rates.expression import Expression, Leaf, Quotient, Slice
from ratecli.rates.interval import Interval
from ratecli.rates.matrix import RateMatrix, build_rate_matrix
from ratecli.rates.sample import Sample

ROUNDING = 1e-12
ROW_KIND_WORDS = {"+": "is positive", "-": "is negative", "labelled": "has a label",
         "deployed": "has a decision of the deployed model"}  # fmt: skip


def check_defined_rates(leaves: Iterable[Leaf], sample: Sample) -> list[Diagnostic]:
    """An E306 or E408 for each rate that is a mean over no training rows.

    What the deployed model decides may not be known yet.
    """
    known = sample.deployed is not None
    asked = [leaf for leaf in leaves if known or not leaf.rate.needs_deployed]
    matrix = build_rate_matrix(asked, sample, "train")
    empty = np.isnan(matrix.c)
    return [empty_rate(leaf, sample) for leaf, gone in zip(asked, empty, strict=True) if gone]


def empty_rate(leaf: Leaf, sample: Sample) -> Diagnostic:
    """Why a rate is a mean over no rows."""
    among = sample.rows(leaf.over, leaf.split or "train")
    text = ex.to_text(leaf)
    if leaf.rate.needs_labels and among.any() and not (among & sample.mask("labelled")).any():
        message = f"'{text}' needs labels, and no training row of '{leaf.over}' has one"
        return Diagnostic("E306", message, None, leaf.span)
    why = f"no training row fits {_describe_slice(leaf.over, sample)}"
    if among.any():
        words = " and ".join(ROW_KIND_WORDS[word] for word in leaf.rate.among.split("&"))
        why = f"no training row of {_describe_slice(leaf.over, sample)} {words}"
    return Diagnostic("E408", f"'{text}' is a mean over no rows: {why}", None, leaf.span)


def check_defined_ratios(trees: Iterable[Expression], sample: Sample) -> list[Diagnostic]:
    """An E311 for each ratio that has no value, or no other than 0, whatever is decided.

    All rates are means over some rows. What hangs on another trial is left to it.
    """
    known = sample.deployed is not None
    found = []
    for part in (part for tree in trees for part in ex.walk(tree) if isinstance(part, Quotient)):
        leaves = ex.leaves(part)
        if known or not any(leaf.rate.needs_deployed for leaf in leaves):
            message = _ratio_problem(part, build_rate_matrix(leaves, sample, "train"))
            if message:
                labels = "; ".join(
                    dict.fromkeys(_count_labels(leaf.where, sample) for leaf in leaves)
                )
                message = f"'{ex.to_text(part)}' {message} whatever is decided: {labels}"
                found.append(Diagnostic("E311", message, None, part.span))
    return found


def _ratio_problem(part: Quotient, matrix: RateMatrix) -> str:
    top, bottom = affine(part.numerator), affine(part.denominator)
    if bottom is None:
        return ""
    low, high = _form_range(bottom, matrix)
    if low >= -ROUNDING and high <= ROUNDING:
        return "divides by zero"
    if top is None or low > ROUNDING:
        return ""
    return "is 0 or undefined" if np.abs(_form_range(top, matrix)).max() <= ROUNDING else ""


def _form_range(form: Affine, matrix: RateMatrix) -> Interval:
    """Least and largest value over all decisions on the rows."""
    factors = np.array([form.coefficients.get(leaf, 0.0) for leaf in matrix.leaves])
    slopes = matrix.A.T @ factors
    start = float(factors @ matrix.c) + form.constant
    return start + float(slopes[slopes < 0].sum()), start + float(slopes[slopes > 0].sum())


def _count_labels(where: Slice, sample: Sample) -> str:
    """How many rows of each label a slice has."""
    rows = sample.rows(where, "train")
    counts = (sample.counted(rows & sample.mask(label)) for label in ("+", "-"))
    positive, negative = counts
    return f"{_describe_slice(where, sample)} has {positive} positive and {negative} negative training rows"


def _describe_slice(where: Slice, sample: Sample) -> str:
    """A slice, and of which data sets."""
    names = where.datasets or sorted(set(sample.dataset.tolist()))
    listed = " and ".join(f"'{name}'" for name in names)
    inside = str(where.visible) if where.conditions else "all rows"
    return f"'{inside}' of {listed}"
