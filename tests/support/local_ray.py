"""A Ray cluster of this machine, for tests that need a real one; it takes some seconds to start."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest


@contextmanager
def local_ray(*nodes: dict[str, Any]) -> Iterator[str]:
    """Start a cluster with these nodes (``num_cpus`` and such); yield its address.

    Without Ray the test is skipped.
    """
    utils: Any = pytest.importorskip("ray.cluster_utils")
    before = signal.getsignal(signal.SIGTERM)
    head, *others = nodes
    with patch.dict(os.environ, {"RAY_USAGE_STATS_ENABLED": "0"}):
        made = utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        for node in others:
            made.add_node(**node)
        yield made.address
    finally:
        made.shutdown()
        signal.signal(signal.SIGTERM, before)  # The head node had put a handler of its own there.
