"""Rows as sums of few parts that many of them share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.solvers.players.lanes import Floats32

Uint32Array = NDArray[np.uint32]

MAX_DISTINCT_PARTS = 512
"""Distinct parts up to which columns are put together: more make fewer of a row, but more scores."""
MAX_PART_SHARE = 0.5
"""Parts are used if a row has at most this part of the numbers that it stores."""


class CsrArrays(NamedTuple):
    """Compressed sparse rows, as compiled functions take them; `rows` numbers them all."""

    rows: Uint32Array
    starts: NDArray[np.int64]
    columns: Uint32Array
    values: Floats32

    @classmethod
    def of(cls, A: sparse.csr_array) -> CsrArrays:
        return cls(
            np.arange(A.shape[0], dtype=np.uint32),
            A.indptr.astype(np.int64),
            A.indices.astype(np.uint32),
            A.data.astype(np.float32),
        )


class SharedRowParts(NamedTuple):
    """`X = sum over g of table[of[:, g]]`, `of` (m, G), table (U, d)."""

    of: Uint32Array
    table: CsrArrays


def find_shared_parts(X: sparse.csc_array) -> SharedRowParts | None:
    """Columns put together, in their order, while few distinct parts of rows arise; None if it pays
    nothing.
    """
    m, d = X.shape
    groups = list[tuple[NDArray[np.intp], list[int]]]()
    most = max(1, int(MAX_PART_SHARE * X.nnz / max(m, 1)))
    for j in range(d):
        code = _column_codes(X, j)
        if groups:
            joined = groups[-1][0] * (int(code.max()) + 1) + code
            distinct, joined = np.unique(joined, return_inverse=True)
            if len(distinct) <= MAX_DISTINCT_PARTS:
                groups[-1] = (joined, [*groups[-1][1], j])
                continue
        if len(groups) == most or code.max() >= MAX_DISTINCT_PARTS:
            return None
        groups.append((code, [j]))
    if not groups:
        return None
    tables = []
    for code, columns in groups:
        _, first = np.unique(code, return_index=True)
        only = np.isin(np.arange(d), columns).astype(float)
        tables.append(sparse.csr_array(X[first]) * only)
        tables[-1].eliminate_zeros()
    table = sparse.csr_array(sparse.vstack(tables))
    starts = np.cumsum([0, *(t.shape[0] for t in tables)])
    of = np.stack(
        [code + start for (code, _), start in zip(groups, starts[:-1], strict=True)], axis=1
    )
    return SharedRowParts(np.ascontiguousarray(of, dtype=np.uint32), CsrArrays.of(table))


def _column_codes(X: sparse.csc_array, j: int) -> NDArray[np.intp]:
    """(m,) which of its distinct values a column has in each row."""
    column = np.zeros(X.shape[0])
    part = slice(X.indptr[j], X.indptr[j + 1])
    column[X.indices[part]] = X.data[part]
    return np.unique(column, return_inverse=True)[1]
