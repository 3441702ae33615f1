"""What clients ask: requests, traces, readers of the public formats, generators, statistics."""

from workloads import old_names
from workloads.errors import ServetwinError, TraceError
from workloads.request import Request
from workloads.trace import Trace

old_names.install()

__all__ = ["Request", "ServetwinError", "Trace", "TraceError"]
