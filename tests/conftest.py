from hypothesis import settings
from threadpoolctl import threadpool_limits

# a busy machine is no failure
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# as in the runner: numbers by one thread, and workers that do not fight over cores
threadpool_limits(limits=1)
