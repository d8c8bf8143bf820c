"""Compiled loops of a training step in all lanes (settings) at once: scores, counts, slopes.

Sixteen lanes form one SIMD vector. A loop over lanes in plain Python is compiled to one number at a
time, because the compiler cannot know that the arrays it reads and writes do not overlap. The
intrinsics here process sixteen numbers at once explicitly; on a CPU with narrower vectors they
become several instructions.

Arrays of lanes are (L, n, WIDTH) float32, C-contiguous: B lanes in L blocks, the last one padded
with lanes of zeros; counts are (L, Q, WIDTH) float64. A score of NaN counts as a negative decision
and has no gradient.

Rows are sorted by kind: those of kind q are `starts[q]` to `starts[q + 1]`, and `weight` (m,) is
the weight of each. `sides` (L, 2 Q, WIDTH), not negative, are the coefficients of the hinges: in a
row of kind q, `weight * sides[q] * max(0, 1 + score)` pulls the score down and `weight * sides[Q +
q] * max(0, 1 - score)` pulls it up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, models, register_model

from ratecli.solvers.players.blocks import WIDTH

_VECTOR = ir.VectorType(ir.FloatType(), WIDTH)
_DOUBLES = ir.VectorType(ir.DoubleType(), WIDTH)
_intrinsic: Callable[[Callable[..., Any]], Any] = intrinsic  # not typed by numba


class _LanesType(types.Type):
    def __init__(self) -> None:
        super().__init__(name=f"Lanes{WIDTH}")


@register_model(_LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: _LanesType) -> None:
        super().__init__(manager, kind, _VECTOR)  # type: ignore[no-untyped-call]


_LANES_TYPE = _LanesType()


def _row_pointer(context: Any, builder: Any, kind: Any, given: Any, vector: Any) -> Any:
    """Return a pointer to a row of an array (n, WIDTH); `given` starts with array and row."""
    array, row, *_ = given
    data = context.make_array(kind)(context, builder, array).data
    first = builder.gep(data, [builder.mul(row, ir.Constant(row.type, WIDTH))])
    return builder.bitcast(first, vector.as_pointer())


@_intrinsic
def load_lanes(_: Any, array: Any, row: Any) -> Any:  # noqa: ARG001
    """Load row `row` of an array (n, WIDTH)."""

    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _row_pointer(context, builder, signature.args[0], given, _VECTOR)
        return builder.load(place, align=4)

    return _LANES_TYPE(array, types.intp), made


@_intrinsic
def store_lanes(_: Any, array: Any, row: Any, lanes: Any) -> Any:  # noqa: ARG001
    """Store lanes in row `row` of an array (n, WIDTH)."""

    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _row_pointer(context, builder, signature.args[0], given, _VECTOR)
        builder.store(given[2], place, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, _LANES_TYPE), made


@_intrinsic
def add_to_lanes(_: Any, array: Any, row: Any, lanes: Any) -> Any:  # noqa: ARG001
    """Add lanes to row `row` of an array (n, WIDTH) of float64."""

    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _row_pointer(context, builder, signature.args[0], given, _DOUBLES)
        sums = builder.fadd(builder.load(place, align=8), builder.fpext(given[2], _DOUBLES))
        builder.store(sums, place, align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, _LANES_TYPE), made


@_intrinsic
def broadcast_lanes(_: Any, number: Any) -> Any:  # noqa: ARG001
    """Return lanes that all hold the same float32."""

    def made(_: Any, builder: Any, __: Any, given: Any) -> Any:
        none = ir.Constant(_VECTOR, ir.Undefined)
        first = ir.Constant(ir.IntType(32), 0)
        alone = builder.insert_element(none, given[0], first)
        firsts = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
        return builder.shuffle_vector(alone, none, firsts)

    return _LANES_TYPE(types.float32), made


def _binary_operation(name: str) -> Any:
    """Return an operation on two vectors; a product and a sum may be fused."""

    @_intrinsic
    def operation(_: Any, left: Any, right: Any) -> Any:  # noqa: ARG001
        def made(_: Any, builder: Any, __: Any, given: Any) -> Any:
            return getattr(builder, name)(*given, flags=("contract",))

        return _LANES_TYPE(_LANES_TYPE, _LANES_TYPE), made

    return operation


add_lanes, subtract_lanes, multiply_lanes = (
    _binary_operation(name) for name in ("fadd", "fsub", "fmul")
)


@_intrinsic
def select_where_above(_: Any, left: Any, right: Any, lanes: Any) -> Any:  # noqa: ARG001
    """Return `lanes` where `left > right`, else 0, also where either is NaN."""

    def made(_: Any, builder: Any, __: Any, given: Any) -> Any:
        above = builder.fcmp_ordered(">", *given[:2])
        return builder.select(above, given[2], ir.Constant(_VECTOR, None))

    return _LANES_TYPE(_LANES_TYPE, _LANES_TYPE, _LANES_TYPE), made


COUNT_BLOCK_ROWS = 256
"""Rows whose counts are summed in single precision: few enough to make rounding negligible."""


@numba.njit(inline="always")
def _hinge_slope(score: Any, weight: Any, low: Any, high: Any) -> Any:
    """Return the derivative of a row's hinges with respect to its score."""
    one = np.float32(1)
    down = select_where_above(score, broadcast_lanes(-one), low)
    return multiply_lanes(
        broadcast_lanes(weight),
        subtract_lanes(down, select_where_above(broadcast_lanes(one), score, high)),
    )


@numba.njit(cache=True)
def multiply_rows(
    rows: Any, starts: Any, columns: Any, values: Any, given: Any, found: Any
) -> None:
    """Compute `found[i] = A[rows[i]] @ given` for each lane; A (n, d) is in compressed rows."""
    for block in range(len(given)):
        source, target = given[block], found[block]
        for i in range(len(rows)):
            row = rows[i]
            total = broadcast_lanes(np.float32(0))
            for k in range(starts[row], starts[row + 1]):
                total = add_lanes(
                    total,
                    multiply_lanes(broadcast_lanes(values[k]), load_lanes(source, columns[k])),
                )
            store_lanes(target, i, total)


@numba.njit(cache=True)
def add_transposed_product(
    rows: Any, starts: Any, columns: Any, values: Any, given: Any, found: Any
) -> None:
    """Add `A[rows].T @ given` to `found`."""
    for block in range(len(given)):
        source, target = given[block], found[block]
        for i in range(len(rows)):
            row, lanes = rows[i], load_lanes(source, i)
            for k in range(starts[row], starts[row + 1]):
                j = columns[k]
                store_lanes(
                    target,
                    j,
                    add_lanes(
                        load_lanes(target, j), multiply_lanes(broadcast_lanes(values[k]), lanes)
                    ),
                )


@numba.njit(cache=True)
def pass_over_parts(
    parts: Any,
    starts: Any,
    weight: Any,
    table: Any,
    weights: Any,
    sides: Any,
    pull: Any,
    yes: Any,
    slopes: Any,
) -> None:
    """Count decisions and accumulate slopes where row i is the sum of the parts `parts[i]`.

    The score of a row is the sum of `table[parts[i, g]]` over G parts, plus the bias, the last of
    the weights. Adds to `yes` the weight of the rows whose score is above 0; adds to `pull` (L, U,
    WIDTH), and to the last entry of the slopes, the derivatives of the sum of hinges with respect
    to table and bias.
    """
    kinds, last = len(starts) - 1, weights.shape[1] - 1
    zero = broadcast_lanes(np.float32(0))
    for block in range(len(table)):
        own, pulled, counted = table[block], pull[block], yes[block]
        bias = load_lanes(weights[block], last)
        for q in range(kinds):
            low, high = load_lanes(sides[block], q), load_lanes(sides[block], kinds + q)
            for first in range(starts[q], starts[q + 1], COUNT_BLOCK_ROWS):
                count = change = zero
                for i in range(first, min(first + COUNT_BLOCK_ROWS, starts[q + 1])):
                    w = weight[i]
                    score = bias
                    for g in range(parts.shape[1]):
                        score = add_lanes(score, load_lanes(own, parts[i, g]))
                    count = add_lanes(count, select_where_above(score, zero, broadcast_lanes(w)))
                    slope = _hinge_slope(score, w, low, high)
                    change = add_lanes(change, slope)
                    for g in range(parts.shape[1]):
                        u = parts[i, g]
                        store_lanes(pulled, u, add_lanes(load_lanes(pulled, u), slope))
                add_to_lanes(counted, q, count)
                store_lanes(slopes[block], last, add_lanes(load_lanes(slopes[block], last), change))


@numba.njit(cache=True)
def draw_batch(
    order: Any, weight: Any, starts: Any, ends: Any, chances: Any, rows: Any, counts: Any
) -> None:
    """Sample a new batch from `order` and `weight` by a partial shuffle; write `rows` and `counts`.

    From kind q, stored at `starts[q]` to `starts[q + 1]`, `ends[q + 1] - ends[q]` rows are sampled,
    each by one random number in [0, 1) from `chances`.
    """
    for q in range(len(starts) - 1):
        there = starts[q + 1] - starts[q]
        for k in range(ends[q + 1] - ends[q]):
            i, target = starts[q] + k, ends[q] + k
            j = i + int(chances[target] * (there - k))
            order[i], order[j] = order[j], order[i]
            weight[i], weight[j] = weight[j], weight[i]
            rows[target], counts[target] = order[i], weight[i]
