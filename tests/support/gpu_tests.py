"""The tests that need a GPU, and how many there were: ``python -m tests.support.gpu_tests FILE..``.

The last line is JSON. pytest's exit code is this one's.
"""

import json
import os
import sys
from collections import Counter
from typing import Any

import pytest
import torch

OPTIONS = ("-q", "-m", "gpu", "-p", "no:cacheprovider", "-o", "filterwarnings=default")
"""A warning of this machine's own torch is no failure."""


class Outcomes:
    """A plug-in of pytest that counts."""

    def __init__(self) -> None:
        self.counts = Counter[str]()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count a test once: when it ran, or when it did not get so far."""
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1


def main(files: list[str]) -> int:
    """Run the tests of ``files``; where there is a GPU, the kernels are compiled for it."""
    if torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "0"
    outcomes = Outcomes()
    exit_code = int(pytest.main([*OPTIONS, *files], plugins=[outcomes]))
    sys.stdout.write(f"\n{json.dumps(outcomes.counts)}\n")
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
