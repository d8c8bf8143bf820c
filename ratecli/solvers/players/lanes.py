"""Sixteen lanes as one vector of the processor, for what is compiled.

A loop over lanes in plain Python is compiled to one number at a time, since the compiler cannot know
that the arrays it reads and writes lie apart. What is here says outright that sixteen numbers are
taken at once: on a processor with narrower vectors they become several.

Arrays of lanes are (L, n, WIDTH) of float32, C-contiguous: B lanes in L blocks, the last one filled up
with lanes of zeros. numba keeps what it compiled by the file of the function that was compiled: who
changes this file removes `__pycache__`.
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


def packed(lanes: Array) -> Floats32:
    """(L, n, WIDTH) of (n, B)."""
    n, count = lanes.shape
    blocks = -(-count // WIDTH)
    filled = np.zeros((n, blocks * WIDTH), np.float32)
    with np.errstate(over="ignore"):  # what diverges is found in the end
        filled[:, :count] = lanes
    return np.ascontiguousarray(filled.reshape(n, blocks, WIDTH).swapaxes(0, 1))


def unpacked(blocks: Array | Floats32, count: int) -> Array:
    """(n, B) of (L, n, WIDTH), as double precision."""
    n = blocks.shape[1]
    return np.asarray(blocks.swapaxes(0, 1).reshape(n, -1)[:, :count], dtype=float)


def _inlined(made: Callable[..., Any]) -> Any:
    """What writes the processor's instructions, as a function for compiled code."""
    return intrinsic(made)


class _Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name=f"Lanes{WIDTH}")


@register_model(_Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: _Lanes) -> None:
        super().__init__(manager, kind, _VECTOR)  # type: ignore[no-untyped-call]


_LANES = _Lanes()


def _place(context: Any, builder: Any, kind: Any, given: Any, vector: Any) -> Any:
    """Where a row of an array (n, WIDTH) begins; given the array and the row, and perhaps more."""
    array, row, *_ = given
    data = context.make_array(kind)(context, builder, array).data
    first = builder.gep(data, [builder.mul(row, ir.Constant(row.type, WIDTH))])
    return builder.bitcast(first, vector.as_pointer())


@_inlined
def load(_: Any, array: Any, row: Any) -> Any:  # noqa: ARG001
    """Row `row` of an array (n, WIDTH)."""

    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _place(context, builder, signature.args[0], given, _VECTOR)
        return builder.load(place, align=4)

    return _LANES(array, types.intp), made


@_inlined
def store(_: Any, array: Any, row: Any, lanes: Any) -> Any:  # noqa: ARG001
    """Put lanes in row `row` of an array (n, WIDTH)."""

    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _place(context, builder, signature.args[0], given, _VECTOR)
        builder.store(given[2], place, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, _LANES), made


@_inlined
def add_to(_: Any, array: Any, row: Any, lanes: Any) -> Any:  # noqa: ARG001
    """Add lanes to row `row` of an array (n, WIDTH) of float64."""

    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _place(context, builder, signature.args[0], given, _DOUBLES)
        sums = builder.fadd(builder.load(place, align=8), builder.fpext(given[2], _DOUBLES))
        builder.store(sums, place, align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, _LANES), made


@_inlined
def all_of(_: Any, number: Any) -> Any:  # noqa: ARG001
    """A float32 in every lane."""

    def made(_: Any, builder: Any, __: Any, given: Any) -> Any:
        none = ir.Constant(_VECTOR, ir.Undefined)
        first = ir.Constant(ir.IntType(32), 0)
        alone = builder.insert_element(none, given[0], first)
        firsts = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
        return builder.shuffle_vector(alone, none, firsts)

    return _LANES(types.float32), made


def _of_two(name: str) -> Any:
    """An operation on two vectors; a product and a sum may be taken in one."""

    @_inlined
    def operation(_: Any, left: Any, right: Any) -> Any:  # noqa: ARG001
        def made(_: Any, builder: Any, __: Any, given: Any) -> Any:
            return getattr(builder, name)(*given, flags=("contract",))

        return _LANES(_LANES, _LANES), made

    return operation


plus, minus, times = (_of_two(name) for name in ("fadd", "fsub", "fmul"))


@_inlined
def where_above(_: Any, left: Any, right: Any, lanes: Any) -> Any:  # noqa: ARG001
    """`lanes` where `left > right`, else 0: also where one of them is not a number."""

    def made(_: Any, builder: Any, __: Any, given: Any) -> Any:
        above = builder.fcmp_ordered(">", *given[:2])
        return builder.select(above, given[2], ir.Constant(_VECTOR, None))

    return _LANES(_LANES, _LANES, _LANES), made
