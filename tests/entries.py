"""Functions of data set entries that take the options of an entry as a dictionary."""

from pathlib import Path

import numpy as np

from ratecli.config.dataset import DatasetSpec, SplitSpec
from ratecli.datasets import load, split
from ratecli.streaming import table as streamed
from ratecli.streaming.cells import CellTable, encoded_stream


def load_entry_table(options, base, **more):
    return load.load_entry_table(DatasetSpec(**options), base, **more)


def table_digest(options, base):
    return load.find_files(DatasetSpec(**options), base).digest


def assign_split_parts(table, spec, rng, fold=0):
    return split.assign_split_parts(table, SplitSpec(**spec), rng, fold)


def read_streamed_table(options, base, *more):
    return streamed.StreamedTable(DatasetSpec(**options), base, *more)


def split_streamed_table(options, folder, seed=3, slices=()):
    """Return a streamed table, its cells, its rows and their encoder."""
    table = read_streamed_table({"stream": True} | options, folder)
    spec = SplitSpec(**options.get("split", {}))
    cells = CellTable(table, dict(slices), spec, str(seed),
                      lambda k: np.random.default_rng([seed, k] if k else seed))  # fmt: skip
    return table, cells, *encoded_stream(table, cells)


def generate_loans(rows=4000, seed=0):
    """Return the generated data set `loans` as a table."""
    return load_entry_table({"source": "loans", "rows": rows, "seed": seed}, Path())


def write(table, path):
    """Write a table in the format of the suffix."""
    table.to_parquet(path) if path.suffix == ".parquet" else table.to_csv(path, index=False)
