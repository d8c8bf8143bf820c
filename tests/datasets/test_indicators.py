from __future__ import annotations

import numpy as np
import pandas as pd

from ratecli.datasets.columns import bin_indicators, category_indicators, step_indicators

VALUES = np.array([0.0, 0.5, 1.0, 1.5, 3.0, 3.5])
EDGES = (0, 1, 3)


def test_bins_hold_their_upper_end_only():
    expected = [[0, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 0]]
    assert bin_indicators(VALUES, EDGES).tolist() == expected


def test_steps_add_up():
    expected = [[0, 0], [1, 0], [1, 0], [1, 1], [1, 1], [0, 0]]
    assert step_indicators(VALUES, EDGES).tolist() == expected


def test_a_missing_category_is_one_of_its_own():
    column = pd.Series(["b", None, "a", "b"], dtype=object)
    assert category_indicators(column).tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
