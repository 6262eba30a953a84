"""Settings for every test process. Our packages are not imported here, so that type checks can be hooked into them first."""

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from model.capture.trajectory import Run

# Set before numpy or torch are loaded by a test: two cores are shared with the rest of the machine, and one
# thread gives the same sums everywhere.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ["STREAMLIT_BROWSER_GATHER_USAGE_STATS"] = "false"

# No example database: a run leaves no files behind. CI draws the same examples every time.
settings.register_profile("local", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture
def toy_run() -> "Run":
    """Two made-up prompts (5 and 6 tokens) through three looped blocks of 8 loops each."""
    from tests import toys

    return toys.toy_run()
