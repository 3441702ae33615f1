"""The registered trace readers, each a module or a class of this package."""

from typing import Protocol

from servetwin.workloads.errors import TraceError
from servetwin.workloads.plugins import Registry
from servetwin.workloads.program.package import shipped_json
from servetwin.workloads.request import Request
from servetwin.workloads.rows import Rows
from servetwin.workloads.trace import Trace


class Reader(Protocol):
    """Knows one trace format and reads it. Built without arguments."""

    def recognises(self, row: str) -> bool:
        """Return whether the first row of a file is in this format."""

    def read(self, rows: Rows) -> Trace:
        """Return the requests in file order, failed ones included."""


# The readers, in the order in which they see the first row of a file.
READERS: Registry[Reader] = Registry(
    **shipped_json("workloads/readers/registry.json"), error=TraceError
)


def _wrong_trace(trace: Trace, rows: Rows) -> str | None:
    wrong = next((r for r in trace.requests if not isinstance(r, Request)), None)
    return None if wrong is None else f"a trace with a {type(wrong).__name__}, not a Request"


RETURNED = {"read": _wrong_trace}
