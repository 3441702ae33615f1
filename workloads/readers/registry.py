"""The registered trace readers, each a module of this package."""

from typing import Protocol

from workloads.errors import TraceError
from workloads.plugins import Registry
from workloads.request import Request
from workloads.rows import Rows
from workloads.trace import Trace


class Reader(Protocol):
    """Knows one trace format and reads it. Built without arguments."""

    def recognises(self, row: str) -> bool:
        """Return whether the first row of a file is in this format."""

    def read(self, rows: Rows) -> Trace:
        """Return the requests in file order, failed ones included."""


READERS: Registry[Reader] = Registry(
    "reader",
    "trace reader",
    "workloads.readers.registry:Reader",
    "",
    {
        "sharegpt": "workloads.readers.sharegpt",
        "chat": "workloads.readers.chat",
        "prompts": "workloads.readers.prompts",
        "azure": "workloads.readers.azure",
        "burstgpt": "workloads.readers.burstgpt",
        "vidur": "workloads.readers.vidur",
        "weka": "workloads.readers.weka",
        "tracelab": "workloads.readers.tracelab",
        "bailian": "workloads.readers.bailian",
        "mooncake": "workloads.readers.mooncake",
        "table": "workloads.readers.table",
        "native": "workloads.readers.native",
    },
    error=TraceError,
    checks="workloads.readers.registry:RETURNED",
    call_limit_s=None,
)
"""In the order in which they are shown a file's first row."""


def _wrong_trace(trace: Trace, rows: Rows) -> str | None:
    wrong = next((r for r in trace.requests if not isinstance(r, Request)), None)
    return None if wrong is None else f"a trace with a {type(wrong).__name__}, not a Request"


RETURNED = {"read": _wrong_trace}
