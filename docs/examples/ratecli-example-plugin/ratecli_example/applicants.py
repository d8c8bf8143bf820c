"""The table of the data set `housing`."""

import numpy as np
import pandas as pd

from ratecli.datasets.columns import with_text
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table


def prepare(raw: Raw) -> Table:
    """`rows` applicants; the same `seed`, the same applicants."""
    rng, n = np.random.default_rng(raw.options["seed"]), raw.options["rows"]
    new = rng.random(n) < 0.6
    frame = pd.DataFrame(
        {
            "years": rng.gamma(2.0, 1.5, size=n).round(1),
            "rooms": rng.integers(1, 6, size=n),
            "income": rng.normal(20 + 4 * new, 5, size=n).round(1),
            "town": np.where(new, "new", "old"),
        }
    )
    score = 0.3 * (frame["years"] - 3) + 0.12 * (frame["income"] - 22) + 0.4 * new
    label = (score + rng.logistic(size=n) > 0).to_numpy(dtype=np.float64)
    features = ("years", "rooms", "income", "town")
    return Table(with_text(frame), features, label, digest=raw.digest)
