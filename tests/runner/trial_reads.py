"""A function that worker processes import: real trials that count reads of tables."""

import os
from dataclasses import replace

from ratecli.runner.trial import run_trial
from ratecli.sampling import rows as world


def reading(job, given):
    """Run a trial; return how often its process has read and stacked tables so far."""
    result = run_trial(job, given)
    counts = [cached.cache_info().misses for cached in (world._read_table, world._stack_tables)]
    return replace(result, info={"pid": os.getpid(), "reads": counts})
