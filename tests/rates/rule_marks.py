"""Where a fault is expected, written into the rule: `tpr >= «>=» 3`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ratecli.errors import Diagnostic, FaultError


def fault_under(mark: str, read: Callable[[str], object]) -> Diagnostic:
    """The only fault of a text; it must cover what stands between « and »."""
    start, end = mark.index("«"), mark.index("»") - 1
    text = mark.replace("«", "").replace("»", "")
    with pytest.raises(FaultError) as raised:
        read(text)
    (fault,) = raised.value.faults
    assert fault.span is not None
    found = fault.span
    shown = f"{text[: found.start]}«{text[found.start : found.end]}»{text[found.end :]}"
    assert shown == f"{text[:start]}«{text[start:end]}»{text[end:]}"
    return fault
