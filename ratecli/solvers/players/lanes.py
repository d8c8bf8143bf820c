"""Sixteen lanes (settings) as one SIMD vector, for compiled code.

A loop over lanes in plain Python is compiled to one number at a time, because the compiler cannot
know that the arrays it reads and writes do not overlap. The intrinsics here process sixteen numbers
at once explicitly; on a CPU with narrower vectors they become several instructions.

Arrays of lanes are (L, n, WIDTH) float32, C-contiguous: B lanes in L blocks, the last one padded
with lanes of zeros. numba caches compiled code by the file of the compiled function, so
`__pycache__` must be removed after a change of this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, models, register_model
from numpy.typing import NDArray

from ratecli.models.base import Array

Floats32 = NDArray[np.float32]
WIDTH = 16

_VECTOR = ir.VectorType(ir.FloatType(), WIDTH)
_DOUBLES = ir.VectorType(ir.DoubleType(), WIDTH)


def pack_lanes(lanes: Array) -> Floats32:
    """Convert (n, B) to blocks (L, n, WIDTH)."""
    n, count = lanes.shape
    blocks = -(-count // WIDTH)
    filled = np.zeros((n, blocks * WIDTH), np.float32)
    filled[:, :count] = lanes
    return np.ascontiguousarray(filled.reshape(n, blocks, WIDTH).swapaxes(0, 1))


def unpack_lanes(blocks: Array | Floats32, count: int) -> Array:
    """Convert blocks (L, n, WIDTH) to (n, B) in double precision."""
    n = blocks.shape[1]
    return np.asarray(blocks.swapaxes(0, 1).reshape(n, -1)[:, :count], dtype=float)


def _as_intrinsic(made: Callable[..., Any]) -> Any:
    """Register a function that emits LLVM instructions for use in compiled code."""
    return intrinsic(made)


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


@_as_intrinsic
def load_lanes(_: Any, array: Any, row: Any) -> Any:  # noqa: ARG001
    """Load row `row` of an array (n, WIDTH)."""

    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _row_pointer(context, builder, signature.args[0], given, _VECTOR)
        return builder.load(place, align=4)

    return _LANES_TYPE(array, types.intp), made


@_as_intrinsic
def store_lanes(_: Any, array: Any, row: Any, lanes: Any) -> Any:  # noqa: ARG001
    """Store lanes in row `row` of an array (n, WIDTH)."""

    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _row_pointer(context, builder, signature.args[0], given, _VECTOR)
        builder.store(given[2], place, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, _LANES_TYPE), made


@_as_intrinsic
def add_to_lanes(_: Any, array: Any, row: Any, lanes: Any) -> Any:  # noqa: ARG001
    """Add lanes to row `row` of an array (n, WIDTH) of float64."""

    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _row_pointer(context, builder, signature.args[0], given, _DOUBLES)
        sums = builder.fadd(builder.load(place, align=8), builder.fpext(given[2], _DOUBLES))
        builder.store(sums, place, align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, _LANES_TYPE), made


@_as_intrinsic
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

    @_as_intrinsic
    def operation(_: Any, left: Any, right: Any) -> Any:  # noqa: ARG001
        def made(_: Any, builder: Any, __: Any, given: Any) -> Any:
            return getattr(builder, name)(*given, flags=("contract",))

        return _LANES_TYPE(_LANES_TYPE, _LANES_TYPE), made

    return operation


add_lanes, subtract_lanes, multiply_lanes = (
    _binary_operation(name) for name in ("fadd", "fsub", "fmul")
)


@_as_intrinsic
def select_where_above(_: Any, left: Any, right: Any, lanes: Any) -> Any:  # noqa: ARG001
    """Return `lanes` where `left > right`, else 0, also where either is NaN."""

    def made(_: Any, builder: Any, __: Any, given: Any) -> Any:
        above = builder.fcmp_ordered(">", *given[:2])
        return builder.select(above, given[2], ir.Constant(_VECTOR, None))

    return _LANES_TYPE(_LANES_TYPE, _LANES_TYPE, _LANES_TYPE), made
