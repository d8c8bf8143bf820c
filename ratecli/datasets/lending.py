"""The generated applicants as a lender meets them who has decided by a rule of his own so far.

Each preparation has the applicants of `loans` with the same options, row for row, and the column
`approved`, no feature: 1 where the income is at least `INCOME_FLOOR`, the old rule's yes. That rule is
wrong for 26% of all applicants, the best rule for 17%.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ratecli.datasets import loans
from ratecli.datasets.columns import as_float_array
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

INCOME_FLOOR = 48.0
"""Income, in thousands a year, from which the old rule says yes; of all whole ones it errs least."""


def deployed(raw: Raw) -> Table:
    """All applicants, with the old rule's decisions."""
    table = loans.prepare(raw)
    yes = as_float_array(table.frame["income"]) >= INCOME_FLOOR
    return replace(table, frame=table.frame.assign(approved=yes.astype(np.int64)))


def unlabelled(raw: Raw) -> Table:
    """The same, before any loan falls due: nobody knows who will repay."""
    table = deployed(raw)
    hidden = table.frame.drop(columns="repaid")
    return replace(table, frame=hidden, label=np.full(len(hidden), np.nan))


def egregious(raw: Raw) -> Table:
    """The old rule's needless mistakes, about one applicant in seven: the best rule makes none of them."""
    table = deployed(raw)
    best = loans.repayment_probability(table.frame) > 0.5
    needless = np.asarray((table.frame["approved"] != table.label) & (best == table.label))
    frame = table.frame[needless].reset_index(drop=True)
    return replace(table, frame=frame, label=table.label[needless])
