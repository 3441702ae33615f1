"""Fuzz traces and recorded runs: ``python -m tests.fuzz.trace_bytes --minutes 10``.

Every format is read as the program reads it, and what is read can be written again.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from servetwin.loadtest.recorded.reading import read_recording
from servetwin.loadtest.recorded.recorded_run import as_recorded_run
from servetwin.workloads.readers.native import trace_text
from servetwin.workloads.reading import read_trace
from servetwin.workloads.tables.mapping import parse_mapping
from tests.fuzz import trace_samples as samples
from tests.fuzz.campaign import command_line
from tests.fuzz.readings import Kind, check_of, draw_of, written
from tests.support.recorded_files import CSV_MAP


def _trace(path: Path) -> None:
    trace_text(read_trace(path)).encode()


def _sessions(path: Path) -> None:
    (path.parent / "beside.json").write_text(samples.TRACES["weka"][0])
    _trace(path.parent)


def _recording(path: Path) -> None:
    run = as_recorded_run(read_recording(path), path.name)
    trace_text(run.trace).encode()


def _mapped(path: Path) -> None:
    as_recorded_run(read_recording(path, parse_mapping(CSV_MAP)), path.name)


def _kind(texts: tuple[str, ...], read: Callable[[Path], object], name: str = "t") -> Kind:
    return Kind([text.encode() for text in texts], written(read, name))


KINDS = {
    **{f"trace {name}": _kind(texts, _trace) for name, texts in samples.TRACES.items()},
    **{
        f"recorded {name}": _kind(texts, _mapped if name == "mapped" else _recording)
        for name, texts in samples.RECORDED.items()
    },
    "sessions": _kind(samples.SESSIONS, _sessions, "t.json"),
    "parquet": Kind([samples.parquet()], written(_trace, "t.parquet")),
    "arrow": Kind([samples.arrow()], written(_trace, "t.arrow")),
}

draw, check = draw_of(KINDS), check_of(KINDS)


if __name__ == "__main__":
    sys.exit(command_line("trace_bytes", draw, check))
