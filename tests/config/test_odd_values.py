"""Any value at any place of a file gives an experiment or errors with places."""

import json

from full_file import FULL_FILE
from hypothesis import given
from hypothesis import strategies as st
from nested import changed, paths

from ratecli.config.document import Document
from ratecli.config.experiment import read_experiment
from ratecli.errors import FaultError

FULL = Document.of_text(FULL_FILE).data
TEXTS = ["", "a", "zip", "as", "1/0", "1/n", "linspace(1, 2, 0)", "{0}", "../"]
KEYS = st.sampled_from(["a", "d", "as", "sweep", "source", "[key]", "1"])
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=6,
)
PATHS = st.sampled_from([path for path in paths(FULL) if path])


@given(PATHS, ODD)
def test_any_value_gives_an_experiment_or_placed_errors(path, value):
    text = json.dumps(changed(FULL, path, value))
    text = text.replace("-Infinity", "-.inf").replace("Infinity", ".inf").replace("NaN", ".nan")
    try:
        experiment = read_experiment(Document.of_text(text))
    except FaultError as error:
        assert all(fault.place.line == 1 and fault.message for fault in error.faults)  # noqa: PT017
    else:
        assert experiment.resolved()["name"]


@given(PATHS, st.text("a1.=[]{}:, '-", max_size=8))
def test_any_override_gives_an_experiment_or_placed_errors(path, value):
    document = Document.of_text(json.dumps(FULL))
    try:
        read_experiment(document.with_overrides([".".join(map(str, path)) + "=" + value]))
    except FaultError as error:
        assert all(fault.place is not None for fault in error.faults)  # noqa: PT017
