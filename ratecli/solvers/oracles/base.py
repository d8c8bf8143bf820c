"""What a game asks for: a classifier whose yeses and noes are cheap."""

from __future__ import annotations

from typing import ClassVar, Protocol

from ratecli.models.base import Array, Classifier


class Oracle(Protocol):
    """Answers prices on rates with a classifier of small cost: a cost-sensitive learner.

    The cost is `prices @ rates`, so that a yes of one row costs what its kind, that is its label and
    all slices that it is in, adds to the rates at those prices.
    """

    starts: ClassVar[bool]
    """Whether the answer hangs on the classifier `near` that it is sought from."""

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:
        """A deterministic classifier; (K,) prices, not all 0."""
        ...
