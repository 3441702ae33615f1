"""Memory that a step frees stays with the process."""

import platform
import subprocess
import sys

import pytest

FREED = """
import os, sys
from pathlib import Path
from servetwin.engine.core.core_process import keep_freed_memory
def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
kept = sys.argv[1] == "kept" and keep_freed_memory()
block = b"x" * (20 << 20)
most_mib = resident_mib()
del block
print(most_mib - resident_mib())
"""


@pytest.mark.parametrize(("mode", "least_mib", "most_mib"), [("kept", 0, 1), ("usual", 19, 21)])
def test_a_freed_block_stays_in_the_heap(mode: str, least_mib: int, most_mib: int) -> None:
    """Its 20 MiB stay resident; without the setting the C library gives them back."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("needs the GNU C library")
    command = [sys.executable, "-c", FREED, mode]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert least_mib <= int(done.stdout) <= most_mib
