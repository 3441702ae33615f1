"""A worker starts quickly: it loads neither pandas nor the simulator."""

import subprocess
import sys

from tests.support.paths import ROOT


def test_a_worker_loads_nothing_heavy() -> None:
    heavy = ["pandas", "simpy", "scipy", "servetwin.sim", "torch"]
    loaded = f"print([m for m in {heavy} if m in sys.modules])"
    code = f"import sys, servetwin.loadtest.run.worker; {loaded}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
