"""What clients ask: requests, traces, readers of the public formats, generators, statistics."""

from servetwin.workloads.errors import ServetwinError, TraceError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

__all__ = ["Request", "ServetwinError", "Trace", "TraceError"]
