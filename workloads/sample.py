"""The bundled sample trace: small enough to serve on a laptop, with bursts and shared prefixes."""

from contextlib import AbstractContextManager
from importlib.resources import as_file, files
from pathlib import Path

from servetwin.workloads.reading import read_trace
from servetwin.workloads.trace import Trace


def sample_path() -> AbstractContextManager[Path]:
    """Yield the path of the bundled trace, valid inside the block."""
    return as_file(files("servetwin.workloads") / "scenarios" / "sample.jsonl")


def sample_trace() -> Trace:
    """Return the bundled trace; ``tests/workloads/generators/test_generate.py`` generates it."""
    with sample_path() as path:
        return read_trace(path)
