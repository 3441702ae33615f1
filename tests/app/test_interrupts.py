"""Ctrl-C while a command is imported: it ends, and no traceback is shown."""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys

class Interrupt:
    left = int(sys.argv.pop(1))

    def find_spec(self, name, path=None, target=None):
        Interrupt.left -= 1
        if Interrupt.left == 0:
            os.kill(os.getpid(), signal.SIGINT)

from servetwin.__main__ import main

sys.meta_path.insert(0, Interrupt())
main()
"""


@pytest.mark.parametrize("imports", [1, 20, 60, 120, 180])
def test_an_interrupt_at_any_import_shows_no_traceback(imports: int) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, str(imports), "list", "models"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (-signal.SIGINT, 130), done.stderr
    assert done.stderr == ""


def test_an_ignored_interrupt_stays_ignored() -> None:
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{SCRIPT}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", ignoring, "20", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
