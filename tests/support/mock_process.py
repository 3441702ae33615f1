"""The command line in processes of its own: ``servetwin`` and a mock endpoint."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.paths import ROOT


def servetwin_process(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "servetwin", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@contextmanager
def mock_process(*options: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A mock endpoint on a free port: its process and its URL."""
    process = servetwin_process("serve", "--mock", "--port", 0, *options)
    assert process.stdout
    try:
        yield process, process.stdout.readline().split()[3]
    finally:
        process.kill()
        process.communicate()
