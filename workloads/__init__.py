"""What clients ask: requests, traces, readers of the public formats, generators, statistics."""

from workloads.errors import ServetwinError, TraceError
from workloads.request import Request
from workloads.trace import Trace

__all__ = ["Request", "ServetwinError", "Trace", "TraceError"]
