import gc
import os
import signal
from functools import cache

import pytest
import typer.main
from hypothesis import settings
from threadpoolctl import threadpool_limits

# a busy machine must not fail tests, and a commit passes always or never; `make test-slow` searches
settings.register_profile("search", deadline=None, max_examples=25)
settings.register_profile("repeatable", settings.get_profile("search"), derandomize=True)
settings.load_profile("repeatable")

# a shell starts commands in the background with Ctrl-C ignored, and their children inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# use one thread, as the runner does: the variables apply to libraries loaded later and to
# processes started here, the limits to loaded libraries
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
threadpool_limits(limits=1)


@pytest.fixture(scope="session", autouse=True)
def commands():
    """Create the command of the app once, since that takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="module")
def cluster():
    """Yield the address of a Dask cluster of two workers, which may be slow to answer.

    It ends with the module: without work, a cluster takes a tenth of a processor core.
    """
    from ratecli.runner import dask_pool  # noqa: PLC0415  takes a second

    with pytest.MonkeyPatch.context() as patch, dask_pool.start_local_cluster(2) as address:
        patch.setattr(dask_pool, "CONNECT_SECONDS", 600.0)
        yield address


def pytest_collection_finish():
    """Collect garbage less often, and without the collected tests, which stay to the end."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
