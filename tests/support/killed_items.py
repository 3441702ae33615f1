"""Work for processes that are killed; it imports next to nothing, so that they begin at once."""

import os
import signal
from pathlib import Path


def own_pid(_: None) -> int:
    """Return the number of the process."""
    return os.getpid()


def killed_at_first(path: Path) -> str:
    """Return the name of the file; where it does not exist, make it and be killed."""
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return path.name
