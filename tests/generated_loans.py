"""The generated data set `loans`, as a table."""

from __future__ import annotations

from pathlib import Path

from entries import load_entry_table

from ratecli.datasets.table import Table


def generate_loans(rows: int = 4000, seed: int = 0) -> Table:
    return load_entry_table({"source": "loans", "rows": rows, "seed": seed}, Path())
