"""A worker on a node of a Ray cluster: an actor that runs a worker process beside itself.

The process is that of a local load test and has an event loop for itself, so its stamps are as good
as there. The actor hands its messages on, and reads the clock that both share. This file is apart
from the link: an actor loads neither pandas nor the simulator.
"""

import os
import socket
import time
from collections.abc import Mapping
from importlib import import_module

from servetwin.loadtest.run.worker_link import ProcessLink


class RayWorker(ProcessLink):
    """A ``ProcessLink`` whose methods are called from another machine."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        super().__init__()
        os.environ.update(variables)

    async def node(self) -> str:
        """Return the name of the machine, and the begin of Ray's own name of the node."""
        context = import_module("ray").get_runtime_context()
        return f"{socket.gethostname()}/{context.get_node_id()[:8]}"

    async def clock_ns(self) -> int:
        """Return the time on the clock of this node."""
        return time.perf_counter_ns()
