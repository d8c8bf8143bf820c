"""Whatever stands anywhere in a file, the answer is an experiment or placed faults."""

import json

from hypothesis import given
from hypothesis import strategies as st
from nested import changed, paths

from ratecli.config.document import Document
from ratecli.config.experiment import read_experiment
from ratecli.errors import FaultError

FULL = {
    "name": "x",
    "description": "d",
    "datasets": {
        "d": {"source": "loans", "rows": 5, "split": {"train": 0.5, "stratify": ["s"]}},
        "e": {"path": "e.csv", "label": "y", "positive": 1, "drop": ["s"]},
    },
    "groups": {"w": "s = F"},
    "objective": "error",
    "constraints": {"c": "tpr >= 0.5"},
    "regularization": {"l2": "1/n"},
    "deployed": {"algorithm": "a"},
    "sweep": {
        "k": [1, 2],
        "j": "linspace(0, 1, 2)",
        "zip": [["k", "j"]],
        "include": [{"k": 3, "j": 3}],
        "exclude": [{"k": 1}],
    },
    "algorithms": ["a", {"b": {"as": "c", "steps": 3, "sweep": {"i": [1]}}}],
    "seeds": [0, 1],
    "metrics": {"m": "error"},
    "report": {
        "tables": [{"rows": ["m"], "columns": ["m"], "file": "t"}],
        "plots": [{"kind": "tradeoff", "x": "m", "y": "m", "optimum": True}],
    },
}


ODD = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.floats(),
        st.sampled_from(
            ["", "a", "w", "zip", "as", "1/0", "1/n", "linspace(1, 2, 0)", "{0}", "../"]
        ),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "d", "as", "sweep", "source", "[key]", "1"]), inner)
    ),
    max_leaves=6,
)


def test_the_full_file_is_good():
    read_experiment(Document.of_text(json.dumps(FULL)))


@given(st.sampled_from([path for path in paths(FULL) if path]), ODD)
def test_any_value_anywhere(path, value):
    text = json.dumps(changed(FULL, path, value))
    text = text.replace("-Infinity", "-.inf").replace("Infinity", ".inf").replace("NaN", ".nan")
    try:
        experiment = read_experiment(Document.of_text(text))
    except FaultError as error:
        assert all(fault.place.line == 1 and fault.message for fault in error.faults)  # noqa: PT017
    else:
        assert experiment.resolved()["name"]


@given(
    st.sampled_from([path for path in paths(FULL) if path]), st.text("a1.=[]{}:, '-", max_size=8)
)
def test_any_override_anywhere(path, value):
    document = Document.of_text(json.dumps(FULL))
    try:
        read_experiment(document.with_overrides([".".join(map(str, path)) + "=" + value]))
    except FaultError as error:
        assert all(fault.place is not None for fault in error.faults)  # noqa: PT017
