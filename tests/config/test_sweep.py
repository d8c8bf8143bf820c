import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ratecli.config.sweep import Sweep, expand_space, sweep_points

VALUES = st.one_of(
    st.integers(-5, 5),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from("xyz"),
)
AXES = st.dictionaries(
    st.sampled_from(["k", "j", "i"]), st.lists(VALUES, min_size=1, max_size=4), max_size=3
)


def typed(point):
    return tuple((name, isinstance(value, bool), value) for name, value in point.items())


GRIDS = {
    "no sweep": ({}, [{}]),
    "the product, in the order of the file": (
        {"k": [1, 2], "j": ["a", "b"]},
        [{"k": 1, "j": "a"}, {"k": 1, "j": "b"}, {"k": 2, "j": "a"}, {"k": 2, "j": "b"}],
    ),
    "zip": (
        {"a": [1, 2], "b": [True, False], "c": [5, 6], "zip": [["a", "c"]]},
        [
            {"a": 1, "b": True, "c": 5},
            {"a": 1, "b": False, "c": 5},
            {"a": 2, "b": True, "c": 6},
            {"a": 2, "b": False, "c": 6},
        ],
    ),
    "zip of a space and a list": (
        {"a": "linspace(0, 1, 2)", "b": ["x", "y"], "zip": [["b", "a"]]},
        [{"a": 0.0, "b": "x"}, {"a": 1.0, "b": "y"}],
    ),
    "exclude what matches all pairs": (
        {"a": [1, 2], "b": [1, 2], "exclude": [{"a": 1, "b": 2}]},
        [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}],
    ),
    "exclude distinguishes true from 1": (
        {"a": [1, True, 2], "exclude": [{"a": True}]},
        [{"a": 1}, {"a": 2}],
    ),
    "include adds points": ({"a": [1], "include": [{"a": 7}]}, [{"a": 1}, {"a": 7}]),
    "include alone": ({"include": [{"a": 7, "b": 8}]}, [{"a": 7, "b": 8}]),
    "include restores an excluded point": (
        {"a": [1, 2], "exclude": [{"a": 2}], "include": [{"a": 2}]},
        [{"a": 1}, {"a": 2}],
    ),
    "include completes the points it agrees with": (
        {"a": [1, 2], "include": [{"j": 0}, {"a": 2, "j": 5}]},
        [{"a": 1, "j": 0}, {"a": 2, "j": 5}],
    ),
    "equal values make one point": ({"a": [1, 1.0, True, 1]}, [{"a": 1}, {"a": True}]),
}


@pytest.mark.parametrize(("sweep", "points"), GRIDS.values(), ids=GRIDS)
def test_grid(sweep, points):
    assert sweep_points(Sweep.model_validate(sweep)) == points


def test_own_sweep_multiplies_the_grid_and_replaces_names():
    outer = Sweep.model_validate({"k": [1, 2], "j": [5]})
    assert sweep_points(outer, Sweep.model_validate({"i": [3, 4]})) == [
        {"k": 1, "j": 5, "i": 3},
        {"k": 1, "j": 5, "i": 4},
        {"k": 2, "j": 5, "i": 3},
        {"k": 2, "j": 5, "i": 4},
    ]
    assert sweep_points(outer, Sweep.model_validate({"k": [9]})) == [{"j": 5, "k": 9}]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("linspace(0, 1, 11)", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        ("linspace(0.3, 0, 4)", [0.3, 0.2, 0.1, 0.0]),
        (" linspace ( 2 ,3, 1) ", [2.0]),
        ("linspace(-1e-3, 1E-3, 3)", [-0.001, 0.0, 0.001]),
        ("logspace(0.001, 1, 4)", [0.001, 0.01, 0.1, 1.0]),
        ("logspace(1, 1024, 11)", [2.0**k for k in range(11)]),
        ("logspace(5., .5, 2)", [5.0, 0.5]),
        ("logspace(3, 9, 1)", [3.0]),
    ],
)
def test_spaces_give_correctly_rounded_values(text, values):
    assert list(expand_space(text)) == values


@given(AXES)
def test_the_grid_is_the_product_without_repetitions(axes):
    found = sweep_points(Sweep.model_validate(axes))
    distinct = [len({(isinstance(v, bool), v) for v in values}) for values in axes.values()]
    assert len(found) == math.prod(distinct)
    assert len({typed(point) for point in found}) == len(found)
    assert all(list(point) == list(axes) for point in found)
    for name, values in axes.items():
        exact = {(type(value), value) for value in values}
        assert all((type(point[name]), point[name]) in exact for point in found)


def test_many_excluded_and_included_points_take_linear_time():
    values, begun = list(range(3000)), time.perf_counter()
    exclude = [{"a": value} for value in values[1:]]
    include = [{"a": value, "b": -value} for value in values]
    assert sweep_points(Sweep.model_validate({"a": values, "exclude": exclude})) == [{"a": 0}]
    found = sweep_points(Sweep.model_validate({"a": values, "include": include}))
    assert [point["b"] for point in found] == [-value for value in values]
    assert time.perf_counter() - begun < 5


@given(AXES.filter(bool), st.data())
def test_exclude_removes_exactly_the_matching_points(axes, data):
    before = sweep_points(Sweep.model_validate(axes))
    names = data.draw(st.sets(st.sampled_from(sorted(axes)), min_size=1))
    chosen = data.draw(st.sampled_from(before))
    pairs = {name: chosen[name] for name in names}
    kept = [p for p in before if typed({n: p[n] for n in pairs}) != typed(pairs)]
    try:
        after = sweep_points(Sweep.model_validate(axes | {"exclude": [pairs]}))
    except ValidationError:
        after = []
    assert after == kept
