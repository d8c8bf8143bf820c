"""Long lists of cases, of which the quick suite runs a part and `make test-slow` all others."""

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(step: int, cases: Iterable[Any]) -> list[Any]:
    """Mark all cases as slow but the first of each `step`; a tuple is one case's arguments."""
    listed = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [
        pytest.param(*case, marks=[pytest.mark.slow] if at % step else [])
        for at, case in enumerate(listed)
    ]
