"""The registered trace readers, each a module or a class of this package."""

from typing import Protocol

from servetwin.workloads.errors import TraceError
from servetwin.workloads.plugins import Registry
from servetwin.workloads.request import Request
from servetwin.workloads.rows import Rows
from servetwin.workloads.trace import Trace


class Reader(Protocol):
    """Knows one trace format and reads it. Built without arguments."""

    def recognises(self, row: str) -> bool:
        """Return whether the first row of a file is in this format."""

    def read(self, rows: Rows) -> Trace:
        """Return the requests in file order, failed ones included."""


READERS: Registry[Reader] = Registry(
    "reader",
    "trace reader",
    "servetwin.workloads.readers.registry:Reader",
    "",
    {
        "sharegpt": "servetwin.workloads.readers.sharegpt",
        "chat": "servetwin.workloads.readers.chat",
        "prompts": "servetwin.workloads.readers.prompts",
        "azure": "servetwin.workloads.readers.published_csv:Azure",
        "burstgpt": "servetwin.workloads.readers.published_csv:BurstGPT",
        "vidur": "servetwin.workloads.readers.published_csv:Vidur",
        "weka": "servetwin.workloads.readers.weka",
        "tracelab": "servetwin.workloads.readers.tracelab",
        "bailian": "servetwin.workloads.readers.published_jsonl:Bailian",
        "llmservingsim": "servetwin.workloads.readers.published_jsonl:LLMServingSim",
        "mooncake": "servetwin.workloads.readers.mooncake",
        "table": "servetwin.workloads.readers.table",
        "native": "servetwin.workloads.readers.native",
    },
    error=TraceError,
    checks="servetwin.workloads.readers.registry:RETURNED",
)
"""The readers, in the order in which they see the first row of a file."""


def _wrong_trace(trace: Trace, rows: Rows) -> str | None:
    wrong = next((r for r in trace.requests if not isinstance(r, Request)), None)
    return None if wrong is None else f"a trace with a {type(wrong).__name__}, not a Request"


RETURNED = {"read": _wrong_trace}
