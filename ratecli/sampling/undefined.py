"""Checks for rates and ratios that are undefined on the training rows for every classifier.

A rate over no rows is undefined. A ratio is undefined where its denominator is 0. It is reported
here if that is so for every classifier, or if the numerator is always 0 and the denominator may be,
as in the F-measure of a group without positive rows. If only some classifiers make the denominator
0 (such as the precision of a classifier without positive decisions), the ratio is measured as NaN
for them, and a constraint on it counts as violated.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ratecli.errors import Diagnostic
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine, affine
from ratecli.rates.expression import Apply, Expression, Leaf, Slice
from ratecli.rates.functions import Interval
from ratecli.rates.matrix import RateMatrix, build_rate_matrix
from ratecli.rates.sample import Sample

ROUNDING = 1e-12
ROW_KIND_WORDS = {
    "+": "is positive",
    "-": "is negative",
    "labelled": "has a label",
    "deployed": "has a decision of the deployed model",
    "logged": "has a logged decision",
}


def check_defined_rates(leaves: Iterable[Leaf], sample: Sample) -> list[Diagnostic]:
    """Return an E306 or E408 for each rate that is a mean over no training rows.

    Rates that need the deployed model's decisions are skipped while these are unknown.
    """
    known = sample.deployed is not None
    asked = [leaf for leaf in leaves if known or not leaf.rate.needs_deployed]
    matrix = build_rate_matrix(asked, sample, "train")
    empty = np.isnan(matrix.c)
    return [empty_rate(leaf, sample) for leaf, gone in zip(asked, empty, strict=True) if gone]


def empty_rate(leaf: Leaf, sample: Sample) -> Diagnostic:
    """Return a diagnostic that explains why a rate is a mean over no rows."""
    among = sample.rows(leaf.over, leaf.split or "train")
    text = ex.to_text(leaf)
    if leaf.rate.needs_labels and among.any() and not (among & sample.mask("labelled")).any():
        message = f"'{text}' needs labels, and no training row of '{leaf.over}' has one"
        return Diagnostic("E306", message, None, leaf.span)
    names = leaf.over.datasets or sorted(set(sample.dataset.tolist()))
    inside = str(leaf.over.visible) if leaf.over.conditions else "all rows"
    why = f"no training row is in '{inside}' of {' and '.join(map(repr, names))}"
    if among.any():
        why += " and " + " and ".join(ROW_KIND_WORDS[word] for word in leaf.rate.among.split("&"))
    hint = (
        "add such rows, leave the group out of the rule, or use a rate of all its rows, such as "
        "positive_rate"
    )
    if len(leaf.where.atoms) > 1:
        hint += "; for by=[...], use fewer columns, or a larger min_rows, as in min_rows=100"
    return Diagnostic("E408", f"'{text}' is a mean over no rows: {why}", hint, leaf.span)


def check_defined_ratios(trees: Iterable[Expression], sample: Sample) -> list[Diagnostic]:
    """Return an E311 for each ratio that is undefined, or 0 at best, for every classifier.

    All rates must be defined. Ratios that depend on another trial are left to that trial.
    """
    found = []
    for part in (part for tree in trees for part in ex.walk(tree)):
        if not (isinstance(part, Apply) and part.function == "quotient"):
            continue
        leaves = ex.leaves(part)
        if sample.deployed is None and any(leaf.rate.needs_deployed for leaf in leaves):
            continue
        if problem := _ratio_problem(part, build_rate_matrix(leaves, sample, "train")):
            message = f"'{ex.to_text(part)}' {problem} on training rows for every classifier"
            counts = dict.fromkeys(_count_labels(leaf.where, sample) for leaf in leaves)
            hint = f"use larger groups: {'; '.join(counts)}"
            found.append(Diagnostic("E311", message, hint, part.span))
    return found


def _count_labels(where: Slice, sample: Sample) -> str:
    """Describe how many training rows of each label a slice has."""
    rows = sample.rows(where, "train")
    positive, negative = (sample.counted(rows & sample.mask(label)) for label in "+-")
    return f"'{where}' has {positive} positive and {negative} negative training rows"


def _ratio_problem(part: Apply, matrix: RateMatrix) -> str:
    top, bottom = map(affine, part.arguments)
    if bottom is None:
        return ""
    low, high = _form_range(bottom, matrix)
    if low >= -ROUNDING and high <= ROUNDING:
        return "divides by zero"
    if top is None or low > ROUNDING:
        return ""
    return "is 0 or undefined" if np.abs(_form_range(top, matrix)).max() <= ROUNDING else ""


def _form_range(form: Affine, matrix: RateMatrix) -> Interval:
    """Return the smallest and largest value over all decisions on the rows."""
    factors = np.array([form.coefficients.get(leaf, 0.0) for leaf in matrix.leaves])
    slopes = matrix.A.T @ factors
    start = float(factors @ matrix.c) + form.constant
    return start + float(slopes[slopes < 0].sum()), start + float(slopes[slopes > 0].sum())
