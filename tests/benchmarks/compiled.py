"""What a request costs with the compiled core, in bare SimPy events of the same process.

``python -m tests.benchmarks.compiled NAME`` measures a case with whichever core Python finds.
"""

import json
import os
import subprocess
import sys
from typing import Any

from servetwin.app.cli import is_compiled
from servetwin.core_cache import PURE
from tests.benchmarks.simulator import CASES, costs


def measure(name: str) -> dict[str, Any]:
    """Measure a case of ``tests.benchmarks.simulator`` with the compiled core."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.compiled", name],
        env={**os.environ, PURE: ""},
        capture_output=True,
        text=True,
        check=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def main(name: str) -> None:
    """Write the figures of a case as JSON."""
    found = costs(CASES[name][0]())
    figures = {
        "compiled": is_compiled(),
        "events_per_request": found.events_per_request,
        "line": found.line(name),
    }
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1])
