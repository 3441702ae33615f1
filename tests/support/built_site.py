"""The site of the documentation, as ``make docs`` builds it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

WHAT_IF = ROOT / "tests" / "support" / "what_if.yaml"


def build(root: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Build the site of a checkout into a folder, with few answers on the page "Try it"."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SERVETWIN_WHAT_IF": str(WHAT_IF)},
        capture_output=True,
        text=True,
    )
