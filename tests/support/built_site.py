"""The site of the documentation, as ``make docs`` builds it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT


def build(root: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Build the site of a checkout into a folder."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
