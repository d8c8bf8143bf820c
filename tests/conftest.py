import gc
import os
from functools import cache

import pytest
import typer.main
from hypothesis import settings
from threadpoolctl import threadpool_limits

# a busy machine is no failure
settings.register_profile("patient", deadline=None, max_examples=50)
settings.load_profile("patient")

# as in the runner: numbers by one thread, and workers that do not fight over cores. The variables
# are for libraries loaded later and processes started here, the limits for those already there
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
threadpool_limits(limits=1)


@pytest.fixture(scope="session", autouse=True)
def commands():
    """What Typer makes of the app, made once: it takes longer than most mistakes to find."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session")
def cluster():
    """The address of a Dask cluster of two workers."""
    from ratecli.runner.dask_pool import start_local_cluster  # noqa: PLC0415  takes a second

    with start_local_cluster(2) as address:
        yield address


def pytest_collection_finish():
    """What was collected stays to the end: to look through it again at every collection takes time, and
    so does to collect as often as Python does by itself.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
