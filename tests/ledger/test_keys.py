import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratecli.ledger.records import random_stream, trial_key

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
)
contents = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=6,
    ),
    min_size=1,
    max_size=4,
)


def respelled(value):
    """Return the same content in another order and with other types."""
    match value:
        case dict():
            return {name: respelled(value[name]) for name in reversed(value)}
        case list():
            return tuple(map(respelled, value))
        case float():
            return np.float64(value)
        case int() if not isinstance(value, bool) and float(value % 2**40) == value:
            return float(value)
        case _:
            return value


@given(contents)
def test_keys_do_not_depend_on_order_or_number_types(content):
    assert trial_key(respelled(content)) == trial_key(content)


@given(contents, scalars, scalars, st.text(max_size=5))
def test_keys_depend_on_each_value_and_name(content, one, other, name):
    same = one == other and isinstance(one, bool) == isinstance(other, bool)
    first, second = ({**content, "a": [1, {"b": value}]} for value in (one, other))
    assert (trial_key(first) == trial_key(second)) == same
    if name not in content:
        assert trial_key({**content, name: one}) != trial_key(content)


def test_unequal_contents_have_different_keys():
    pairs = [(1, True), (0, None), ("1", 1), ([], {}), ([1, [2]], [[1], 2]), ("inf", math.inf)]
    for one, other in pairs:
        assert trial_key({"x": one}) != trial_key({"x": other})


def test_keys_do_not_change_between_versions():
    content = {"seed": 3, "point": {"kappa": 0.8}, "needs": ["a"], "by": None}
    assert trial_key(content) == "2b45051950b3e743477c96ee1b86a5752e4f9e73f948527868e3c46235c010f5"


def test_nan_and_unknown_types_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        trial_key({"x": [float("nan")]})
    for unknown in (object(), {1}, b"x", np.int64(1), np.zeros(2)):
        with pytest.raises(TypeError):
            trial_key({"x": unknown})


def draws(*names, root=3):
    return random_stream(root, *names).integers(0, 2**63, 4).tolist()


def test_random_streams_differ_by_name_and_seed():
    names = [(), ("",), ("split",), ("split", "adult"), ("splitadult",), ("adult", "split")]
    seen = [json.dumps(draws(*path, root=root)) for path in names for root in (-1, 3, 2**80)]
    assert len(set(seen)) == len(seen)
    assert draws("split", "adult") == draws("split", "adult")


def test_random_streams_do_not_change_between_versions():
    assert draws("split", "adult")[::3] == [1208142642362302839, 6943520460941410843]
